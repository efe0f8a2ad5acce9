//! The stream of one Envoy: takes its reports in, and returns what it is to be sent. Nothing here is sent or waits for a
//! message; the caller does both, one at a time.
//!
//! | what happens | what follows for a bucket |
//! | --- | --- |
//! | a report with requests | unused hits of earlier grants are returned, the next grant is made |
//! | reports without requests | after the third a grant of one hit, after the fourth it is abandoned |
//! | its order is about to end | the next grant if it had requests lately, else a denial |
//! | its window has ended | the same |
//! | rules or controls change | another order where it blocks, allows, or leaves less |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::bucket::{BucketId, Event, Order, PLAIN_ORDER, QuotaAction};
use crate::metrics::add;
use crate::next_order::{Actions, Looked};
use crate::options::Fallback;
use crate::quotas::{Quotas, StreamBuckets};
use weir_controls::{ActiveView, Snapshot};
use weir_limit::{Micros, SECOND};
use weir_limiter::{Quota, Usage};
use weir_store::{Entry, States};

/// The buckets of a stream whose charges are in flight at the same time.
const CONCURRENCY: usize = 256;

/// Why a report was rejected. The stream is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The first message has no domain.
    #[error("the first message of a stream needs a domain")]
    NoDomain,
    /// The domain is another one than before.
    #[error("the domain of a stream must not change")]
    OtherDomain,
    /// A bucket has no valid id.
    #[error("a bucket needs an id of 1 to 16 entries with different keys, of at most 4096 bytes")]
    BadBucket,
}

/// The stream of one Envoy.
#[derive(Debug)]
pub struct QuotaStream<S: States> {
    quotas: Arc<Quotas<S>>,
    id: u64,
    buckets: Arc<Mutex<StreamBuckets>>,
    /// When buckets are looked at without a report.
    due: BTreeSet<(Micros, BucketId)>,
    /// The buckets to look at, in order, and why.
    events: VecDeque<(BucketId, Event)>,
    /// The denials of buckets that are not kept.
    denied: Vec<QuotaAction>,
    /// The rules and controls by which orders were given last.
    snapshot: Option<Arc<Snapshot>>,
}

impl<S: States> Quotas<S> {
    /// Opens a stream of an Envoy, which `client` names; none if there are too many.
    pub fn open(self: &Arc<Self>, client: String) -> Option<QuotaStream<S>> {
        let (id, buckets) = self.register(client)?;
        let (due, events, denied) = Default::default();
        let (quotas, snapshot) = (self.clone(), self.rules.load().clone());
        Some(QuotaStream { quotas, id, buckets, due, events, denied, snapshot })
    }
}

impl<S: States> QuotaStream<S> {
    /// Takes the buckets of one report in, which has just arrived. `hold` is called before a bucket is added, with the
    /// number of buckets that there will be; where it returns false, the bucket is denied, and not kept.
    ///
    /// # Errors
    ///
    /// The report is invalid. Nothing of it was counted.
    pub fn report(
        &mut self,
        domain: &str,
        reports: impl Iterator<Item = (Option<BucketId>, Usage)>,
        mut hold: impl FnMut(usize) -> bool,
    ) -> Result<(), ReportError> {
        let at = self.quotas.now();
        let mut usages: HashMap<BucketId, Usage> = HashMap::new();
        for (bucket, usage) in reports {
            let sum = usages.entry(bucket.ok_or(ReportError::BadBucket)?).or_default();
            // More cannot be charged.
            let add = |sum: u64, more: u64| sum.saturating_add(more).min(u32::MAX.into());
            sum.admitted = add(sum.admitted, usage.admitted);
            sum.denied = add(sum.denied, usage.denied);
        }
        let (counts, options) = (&self.quotas.counts, &self.quotas.options);
        let mut stream = self.buckets.lock();
        match (&*stream.domain, domain) {
            ("", "") => return Err(ReportError::NoDomain),
            ("", _) => stream.domain = domain.into(),
            // Envoy names it in the first message alone.
            (_, "") => {}
            (known, named) if known != named => return Err(ReportError::OtherDomain),
            _ => {}
        }
        for (bucket, usage) in usages {
            add(&counts.admitted, usage.admitted);
            add(&counts.denied, usage.denied);
            let is_first = !stream.buckets.contains_key(&bucket);
            if is_first {
                let all = counts.buckets.load(Ordering::Relaxed);
                let has_room = stream.buckets.len() < options.max_stream_buckets
                    && all < options.max_buckets as u64
                    && hold(stream.buckets.len() + 1);
                if !has_room {
                    self.denied.push(QuotaAction::order(bucket, Order::Deny, PLAIN_ORDER));
                    continue;
                }
                add(&counts.buckets, 1);
                stream.buckets.insert(bucket.clone(), Box::default());
            }
            self.events.push_back((bucket, Event::Report { at, usage, is_first }));
        }
        Ok(())
    }

    /// Returns the time until [`due`](Self::due) is to be called; none if no bucket waits for anything.
    pub fn until_due(&self) -> Option<Duration> {
        let (due, _) = self.due.first()?;
        Some(Duration::from_micros(due.saturating_sub(self.quotas.now())))
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.lock().buckets.len()
    }

    /// Queues the buckets whose order is about to end, or whose window has ended.
    pub fn due(&mut self) {
        let now = self.quotas.now();
        while let Some((due, _)) = self.due.first()
            && *due <= now
            && let Some((_, bucket)) = self.due.pop_first()
        {
            self.events.push_back((bucket, Event::Due));
        }
    }

    /// Queues all buckets if rules or controls have changed.
    pub fn follow(&mut self) {
        let snapshot = self.quotas.rules.load().clone();
        let as_ptr = |snapshot: &Option<Arc<Snapshot>>| snapshot.as_ref().map(Arc::as_ptr);
        if as_ptr(&snapshot) != as_ptr(&self.snapshot) {
            self.snapshot = snapshot;
            let stream = self.buckets.lock();
            self.events.extend(stream.buckets.keys().map(|id| (id.clone(), Event::Changed)));
        }
    }

    /// Looks at some of the buckets that are queued. Returns what to send of them, which is not to wait for the others:
    /// grants end, and returns count, from now. None if no bucket is queued.
    pub async fn next(&mut self) -> Option<Vec<QuotaAction>> {
        let mut actions = std::mem::take(&mut self.denied);
        if self.events.is_empty() {
            return (!actions.is_empty()).then_some(actions);
        }
        let piece = self.events.len().min(CONCURRENCY);
        let events: Vec<(BucketId, Event)> = self.events.drain(..piece).collect();
        for (bucket, _) in &events {
            if let Some(known) = self.buckets.lock().buckets.get(bucket) {
                self.due.remove(&(known.due, bucket.clone()));
            }
        }
        let looked = events.iter().map(|(bucket, event)| self.look_at(bucket, *event));
        actions.extend(join_all(looked).await.into_iter().flatten());
        self.keep(&events, &actions);
        Some(actions)
    }

    /// Removes the buckets that are abandoned, and keeps when to look at the others again.
    fn keep(&mut self, events: &[(BucketId, Event)], actions: &[QuotaAction]) {
        let mut stream = self.buckets.lock();
        for action in actions.iter().filter(|action| action.order.is_none()) {
            if stream.buckets.remove(&action.bucket).is_some() {
                self.quotas.counts.buckets.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let soonest = self.quotas.now().saturating_add(SECOND / 100);
        for (bucket, event) in events {
            if let Some(known) = stream.buckets.get_mut(bucket)
                && known.due > 0
            {
                if matches!(event, Event::Due) && known.due <= soonest {
                    // What failed is tried again, but not at once.
                    known.due = soonest + SECOND;
                }
                self.due.insert((known.due, bucket.clone()));
            }
        }
    }

    /// Looks at one bucket: settles its report, then gives the next order, if one is due.
    async fn look_at(&self, id: &BucketId, event: Event) -> Actions {
        // Other streams have a turn between two buckets that need not wait.
        tokio::task::coop::consume_budget().await;
        let usage = match event {
            Event::Report { usage, .. } => usage,
            Event::Due | Event::Changed => Usage::default(),
        };
        let domain = self.buckets.lock().domain.clone();
        let quota = {
            let entries: SmallVec<[Entry<'_>; 4]> = id.entries().collect();
            let snapshot = self.quotas.rules.load();
            match &*snapshot {
                Some(snapshot) => {
                    let view = ActiveView::from(&**snapshot);
                    self.quotas.limiter.quota(view, &domain, &entries, usage)
                }
                // Nothing is known yet: the Envoy falls back as it is configured.
                None => return Actions::new(),
            }
        };
        let (quotas, buckets) = (&*self.quotas, &*self.buckets);
        let looked = Looked { quotas, buckets, stream: self.id, domain: &domain, id, event };
        looked.settle(&quota).await;
        if looked.with(|bucket, now| bucket.is_abandoned(now)) {
            return smallvec![QuotaAction { bucket: id.clone(), order: None }];
        }
        match quota {
            Quota::Allowed | Quota::Shadow(_) => looked.plain(Order::Allow),
            Quota::Blocked => looked.plain(Order::Deny),
            Quota::Unsupported { rule, why } => {
                if matches!(event, Event::Report { .. }) {
                    self.quotas.unsupported(&domain, &rule, why);
                }
                looked.plain(match self.quotas.options.unsupported {
                    Fallback::Allow => Order::Allow,
                    Fallback::Deny => Order::Deny,
                })
            }
            Quota::Limited(key) => looked.limit(&key).await,
        }
    }
}

impl<S: States> Drop for QuotaStream<S> {
    /// Nothing is returned: the Envoy may live on, and use what it was granted.
    fn drop(&mut self) {
        let buckets = self.buckets.lock().buckets.len();
        self.quotas.close(self.id, buckets);
    }
}

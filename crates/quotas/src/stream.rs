//! The stream of one Envoy: records its reports, visits the buckets, and returns what to send. Nothing here is sent or
//! waits for a message; the caller does both, one at a time.
//!
//! | what happens | what follows for a bucket |
//! | --- | --- |
//! | a report with requests | the next grant is made; unused hits of earlier ones are kept for it, a part of it, or returned |
//! | reports without requests | after the third a grant of one hit, after the fourth it is abandoned |
//! | its order is about to end | the next grant if it had requests lately, else a denial |
//! | its window has ended | the same |
//! | rules or controls change | another order where it blocks, allows, or leaves less |

use std::collections::{BTreeSet, VecDeque};
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::bucket::{
    BUCKET_BYTES, Bucket, BucketId, Event, Order, PLAIN_ORDER, QuotaAction, ReportedId,
};
use crate::next_order::Visit;
use crate::quotas::{Quotas, StreamBuckets, add};
use weir_controls::Snapshot;
use weir_limit::{Micros, SECOND};
use weir_limiter::Usage;
use weir_store::States;

/// The buckets of a stream whose charges are in flight at the same time.
const CONCURRENCY: usize = 256;

const MAX_DOMAIN_BYTES: usize = 4_096;

/// The most buckets of one report for which there is no room that are denied; others are ignored.
const MAX_DENIED: usize = 1_000;

/// The reports of one message.
#[derive(Debug)]
pub struct QuotaReport<'a, R> {
    /// The domain; empty for that of the stream.
    pub domain: &'a str,
    /// The reported buckets; none in place of an invalid id.
    pub buckets: R,
    /// How long ago the message may have arrived.
    pub waited: Duration,
}

/// Why a report was rejected. The stream is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// The first message has no domain.
    #[error("the first message of a stream needs a domain")]
    NoDomain,
    /// The domain is another one than before.
    #[error("the domain of a stream must not change")]
    OtherDomain,
    /// The domain is too long.
    #[error("the domain has more than 4096 bytes")]
    LongDomain,
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
    /// When buckets are visited without a report.
    due: BTreeSet<(Micros, BucketId)>,
    /// The buckets to visit, in order, and why.
    events: VecDeque<(BucketId, Event)>,
    /// The denials of buckets that are not kept.
    denied: Vec<QuotaAction>,
    /// The rules and controls by which orders were given last.
    snapshot: Option<Arc<Snapshot>>,
    bytes: usize,
}

impl<S: States> Quotas<S> {
    /// Opens a stream of an Envoy, which `client` names; none if there are too many.
    pub fn open(self: &Arc<Self>, client: String) -> Option<QuotaStream<S>> {
        let (id, buckets) = self.register(client)?;
        let (due, events, denied, bytes) = Default::default();
        let (quotas, snapshot) = (self.clone(), self.rules.load().clone());
        Some(QuotaStream { quotas, id, buckets, due, events, denied, snapshot, bytes })
    }
}

impl<S: States> QuotaStream<S> {
    /// Records a report. `hold` is called before a bucket is added, with the bytes that all will take; where it returns
    /// false, the bucket is denied, and not kept.
    ///
    /// # Errors
    ///
    /// The report is invalid. Nothing of it was counted.
    pub fn report<'a>(
        &mut self,
        report: QuotaReport<'_, impl Iterator<Item = (Option<ReportedId<'a>>, Usage)> + Clone>,
        mut hold: impl FnMut(usize) -> bool,
    ) -> Result<(), ReportError> {
        let QuotaReport { domain, buckets, waited } = report;
        let now = self.quotas.now();
        let at = now.saturating_sub(Micros::try_from(waited.as_micros()).unwrap_or(now));
        if buckets.clone().any(|(id, _)| id.is_none()) {
            return Err(ReportError::BadBucket);
        }
        let (counts, options) = (&self.quotas.counts, &self.quotas.options);
        let mut stream = self.buckets.lock();
        match (&*stream.domain, domain) {
            ("", "") => return Err(ReportError::NoDomain),
            _ if domain.len() > MAX_DOMAIN_BYTES => return Err(ReportError::LongDomain),
            ("", _) => stream.domain = domain.into(),
            // Envoy names it in the first message alone.
            (_, "") => {}
            (known, named) if known != named => return Err(ReportError::OtherDomain),
            _ => {}
        }
        for (reported, usage) in buckets.filter_map(|(id, usage)| Some((id?, usage))) {
            add(&counts.admitted, usage.admitted);
            add(&counts.denied, usage.denied);
            let Some((bucket, known)) = stream.buckets.get_key_value_mut(&reported) else {
                let bucket = BucketId::from(&reported);
                let bytes = self.bytes + BUCKET_BYTES + bucket.bytes();
                let has_room = stream.buckets.len() < options.max_stream_buckets
                    && counts.buckets.load(Ordering::Relaxed) < options.max_buckets as u64;
                if has_room && hold(bytes) {
                    add(&counts.buckets, 1);
                    self.bytes = bytes;
                    let new = Bucket { reported_at: now, ..Bucket::default() };
                    stream.buckets.insert(bucket.clone(), Box::new(new));
                    self.events.push_back((bucket, Event::Report { at, usage, is_first: true }));
                } else if self.denied.len() < MAX_DENIED {
                    self.denied.push(QuotaAction::order(bucket, Order::Deny, PLAIN_ORDER));
                }
                continue;
            };
            // A further report within a second waits, also one of the same message.
            if now < known.settles_at() {
                match &mut known.waiting {
                    Some(waiting) => waiting.1.add(usage),
                    None => {
                        self.due.remove(&(known.next_visit(), bucket.clone()));
                        known.waiting = Some(Box::new((at, usage)));
                        self.due.insert((known.next_visit(), bucket.clone()));
                    }
                }
                continue;
            }
            known.reported_at = now;
            let is_first = known.order.is_none();
            self.events.push_back((bucket.clone(), Event::Report { at, usage, is_first }));
        }
        Ok(())
    }

    /// Returns the time until [`due`](Self::due) is to be called; none if no bucket waits for anything.
    pub fn until_due(&self) -> Option<Duration> {
        let (due, _) = self.due.first()?;
        Some(Duration::from_micros(due.saturating_sub(self.quotas.now())))
    }

    /// Returns the bytes that the buckets take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues the buckets whose order is about to end, or whose window has ended.
    pub fn due(&mut self) {
        let now = self.quotas.now();
        while let Some((due, _)) = self.due.first()
            && *due <= now
            && let Some((_, bucket)) = self.due.pop_first()
        {
            let waiting = self.buckets.lock().buckets.get_mut(&bucket).and_then(|known| {
                known.reported_at = if known.waiting.is_some() { now } else { known.reported_at };
                known.waiting.take()
            });
            let event = match waiting {
                Some(waiting) => Event::Report { at: waiting.0, usage: waiting.1, is_first: false },
                None => Event::Due,
            };
            self.events.push_back((bucket, event));
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

    /// Visits some of the buckets that are queued. Returns what to send of them at once: grants end, and returns count,
    /// from now. None if no bucket is queued.
    pub async fn next(&mut self) -> Option<Vec<QuotaAction>> {
        let mut actions = std::mem::take(&mut self.denied);
        if self.events.is_empty() {
            return (!actions.is_empty()).then_some(actions);
        }
        let piece = self.events.len().min(CONCURRENCY);
        let events: Vec<(BucketId, Event)> = self.events.drain(..piece).collect();
        for (bucket, _) in &events {
            if let Some(known) = self.buckets.lock().buckets.get(bucket) {
                self.due.remove(&(known.next_visit(), bucket.clone()));
            }
        }
        let domain = self.buckets.lock().domain.clone();
        let visits: Vec<Visit<'_, S>> = events
            .iter()
            .map(|(id, event)| {
                let (quotas, buckets, domain) = (&*self.quotas, &*self.buckets, &*domain);
                Visit { quotas, buckets, stream: self.id, domain, id, event: *event }
            })
            .collect();
        let next = join_all(visits.iter().map(Visit::visit)).await;
        // Orders count from here, however long the store took for some of them.
        actions.extend(zip(&visits, next).flat_map(|(visit, next)| visit.give(next)));
        self.keep(&events, &actions);
        Some(actions)
    }

    /// Removes the buckets that are abandoned, and keeps when to look at the others again.
    fn keep(&mut self, events: &[(BucketId, Event)], actions: &[QuotaAction]) {
        let mut stream = self.buckets.lock();
        for action in actions.iter().filter(|action| action.order.is_none()) {
            if stream.buckets.remove(&action.bucket).is_some() {
                self.bytes -= BUCKET_BYTES + action.bucket.bytes();
                self.quotas.counts.buckets.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let soonest = self.quotas.now().saturating_add(SECOND / 100);
        for (bucket, event) in events {
            if let Some(known) = stream.buckets.get_mut(bucket)
                && known.next_visit() > 0
            {
                if matches!(event, Event::Due) && known.due <= soonest {
                    // What failed is tried again, but not at once.
                    known.due = soonest + SECOND;
                }
                self.due.insert((known.next_visit(), bucket.clone()));
            }
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

//! The stream of one Envoy: takes its reports in, and returns what it is to be sent. Nothing here is sent or waits for a
//! message; the caller does both, one thing at a time.
//!
//! | what happens | what follows for a bucket |
//! | --- | --- |
//! | a report with requests | unused hits of earlier grants are returned, the next grant is made |
//! | reports without requests | after the third a grant of one hit, after the fourth it is abandoned |
//! | its order is about to end | the next grant if it had requests lately, else a denial |
//! | its window has ended | the same |
//! | rules or controls change | another order where it blocks, allows, or leaves less |

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::account::Granted;
use crate::bucket::{Bucket, BucketId, Order};
use crate::metrics::add;
use crate::options::Fallback;
use crate::quotas::{Quotas, StreamBuckets};
use crate::size::{self, LAST_PART};
use crate::window::WindowEnd;
use weir_common::failure::OnStoreFailure;
use weir_controls::{ActiveView, Snapshot};
use weir_limit::{Decision, Micros, Op, SECOND, Source, UpTo};
use weir_limiter::{Quota, QuotaKey, Usage};
use weir_store::{Answers, Batch, Charge, Entry, Grant, Key, Role, States, key_text};

/// The buckets of a stream whose charges are in flight at the same time.
const CONCURRENCY: usize = 256;

/// How long an Envoy obeys an order that depends on no window.
const PLAIN_ORDER: Micros = 60 * SECOND;

/// The longest denial until the end of a window. It is renewed, so that an Envoy without weir falls back at some time.
const LONGEST_DENIAL: Micros = 300 * SECOND;

/// What is sent about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaAction {
    /// The bucket.
    pub bucket: BucketId,
    /// The order, and its seconds; none if the Envoy may forget the bucket.
    pub order: Option<(Order, u32)>,
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
    /// The rules and controls by which orders were given last.
    snapshot: Option<Arc<Snapshot>>,
}

/// Why a bucket is looked at.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It was reported, for the first time or again.
    Report { usage: Usage, is_first: bool },
    /// Its order is about to end, or its window has ended.
    Due,
    /// Rules or controls have changed.
    Changed,
}

type Actions = SmallVec<[QuotaAction; 2]>;

type Events = Vec<(BucketId, Event)>;

impl<S: States> QuotaStream<S> {
    pub(crate) fn new(
        quotas: Arc<Quotas<S>>,
        id: u64,
        buckets: Arc<Mutex<StreamBuckets>>,
    ) -> QuotaStream<S> {
        let snapshot = quotas.rules.load().clone();
        QuotaStream { quotas, id, buckets, due: BTreeSet::new(), snapshot }
    }

    /// Takes the buckets of one report in. Returns what to send, with the orders of new buckets first of all.
    /// `hold` is called before a bucket is added, with the number of buckets that there will be; where it returns false,
    /// the bucket is denied, and not kept.
    ///
    /// # Errors
    ///
    /// The report is invalid. Nothing of it was counted.
    pub async fn report(
        &mut self,
        domain: &str,
        reports: impl Iterator<Item = (Option<BucketId>, Usage)>,
        hold: impl FnMut(usize) -> bool,
    ) -> Result<Vec<QuotaAction>, ReportError> {
        let mut usages: hashbrown::HashMap<BucketId, Usage> = hashbrown::HashMap::new();
        for (bucket, usage) in reports {
            let sum = usages.entry(bucket.ok_or(ReportError::BadBucket)?).or_default();
            sum.admitted = sum.admitted.saturating_add(usage.admitted);
            sum.denied = sum.denied.saturating_add(usage.denied);
        }
        let (events, mut actions) = self.take_in(domain, usages, hold)?;
        actions.extend(self.look_at(events).await);
        Ok(actions)
    }

    /// Adds new buckets, as far as there is room. Returns the events of all that are kept, and denies the others.
    fn take_in(
        &mut self,
        domain: &str,
        usages: hashbrown::HashMap<BucketId, Usage>,
        mut hold: impl FnMut(usize) -> bool,
    ) -> Result<(Events, Vec<QuotaAction>), ReportError> {
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
        let (mut events, mut denied) = (Vec::new(), Vec::new());
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
                    let order = Some((Order::Deny, seconds(PLAIN_ORDER)));
                    denied.push(QuotaAction { bucket, order });
                    continue;
                }
                add(&counts.buckets, 1);
                stream.buckets.insert(bucket.clone(), Box::default());
            }
            events.push((bucket, Event::Report { usage, is_first }));
        }
        Ok((events, denied))
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

    /// Looks at the buckets whose order is about to end, or whose window has ended. Returns what to send.
    pub async fn due(&mut self) -> Vec<QuotaAction> {
        let now = self.quotas.now();
        let mut events = Vec::new();
        while let Some((due, _)) = self.due.first()
            && *due <= now
            && let Some((_, bucket)) = self.due.pop_first()
        {
            events.push((bucket, Event::Due));
        }
        self.look_at(events).await
    }

    /// Looks at all buckets if rules or controls have changed. Returns what to send.
    pub async fn follow(&mut self) -> Vec<QuotaAction> {
        let snapshot = self.quotas.rules.load().clone();
        let as_ptr = |snapshot: &Option<Arc<Snapshot>>| snapshot.as_ref().map(Arc::as_ptr);
        if as_ptr(&snapshot) == as_ptr(&self.snapshot) {
            return Vec::new();
        }
        self.snapshot = snapshot;
        let buckets: Vec<BucketId> = self.buckets.lock().buckets.keys().cloned().collect();
        self.look_at(buckets.into_iter().map(|bucket| (bucket, Event::Changed)).collect()).await
    }

    /// Looks at buckets, each for one reason, and keeps when to look at them again.
    async fn look_at(&mut self, events: Events) -> Vec<QuotaAction> {
        for (bucket, _) in &events {
            if let Some(known) = self.buckets.lock().buckets.get(bucket) {
                self.due.remove(&(known.due, bucket.clone()));
            }
        }
        let mut actions = Vec::new();
        let is_due = |event: &Event| matches!(event, Event::Due);
        let buckets: Vec<(BucketId, bool)> =
            events.iter().map(|(bucket, event)| (bucket.clone(), is_due(event))).collect();
        let this = &*self;
        let mut looked = stream::iter(events)
            .map(|(bucket, event)| this.look_at_one(bucket, event))
            .buffer_unordered(CONCURRENCY);
        while let Some(found) = looked.next().await {
            actions.extend(found);
        }
        drop(looked);
        let mut stream = self.buckets.lock();
        for action in actions.iter().filter(|action| action.order.is_none()) {
            if stream.buckets.remove(&action.bucket).is_some() {
                self.quotas.counts.buckets.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let soonest = self.quotas.now().saturating_add(SECOND / 100);
        for (bucket, was_due) in buckets {
            if let Some(known) = stream.buckets.get_mut(&bucket)
                && known.due > 0
            {
                if was_due && known.due <= soonest {
                    // What failed is tried again, but not at once.
                    known.due = soonest + SECOND;
                }
                self.due.insert((known.due, bucket));
            }
        }
        actions
    }

    /// Looks at one bucket: settles its report, then gives the next order, if one is due.
    async fn look_at_one(&self, id: BucketId, event: Event) -> Actions {
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
        let looked = Looked { stream: self, domain: &domain, id: &id, event };
        if let Event::Report { usage, is_first } = event {
            looked.settle(usage, is_first, &quota).await;
        }
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

/// A bucket that is looked at.
struct Looked<'a, S: States> {
    stream: &'a QuotaStream<S>,
    domain: &'a str,
    id: &'a BucketId,
    event: Event,
}

impl<S: States> Looked<'_, S> {
    /// Passes the bucket to `then`, with the time.
    fn with<T: Default>(&self, then: impl FnOnce(&mut Bucket, Micros) -> T) -> T {
        let now = self.stream.quotas.now();
        let mut stream = self.stream.buckets.lock();
        stream.buckets.get_mut(self.id).map(|bucket| then(bucket, now)).unwrap_or_default()
    }

    /// Settles a report: returns what will not be used, and charges what was used beyond the grants.
    async fn settle(&self, usage: Usage, is_first: bool, quota: &Quota) {
        let key = match quota {
            Quota::Shadow(key) | Quota::Limited(key) => Some(key),
            Quota::Allowed | Quota::Blocked | Quota::Unsupported { .. } => None,
        };
        let quotas = &self.stream.quotas;
        let requests = usage.admitted.saturating_add(usage.denied);
        let (settled, may_have_passed) = self.with(|bucket, now| {
            bucket.demand = (!is_first).then_some(requests);
            bucket.idle_reports =
                if requests == 0 { bucket.idle_reports.saturating_add(1) } else { 0 };
            bucket.admitted = bucket.admitted.saturating_add(usage.admitted);
            let settled = bucket.account.report(now, usage.admitted);
            let is_allowed = bucket.order == Some(Order::Allow) || now < bucket.allowed_until;
            (settled, is_allowed)
        });
        let Some(key) = key else { return };
        if let Some((plan, undo)) = settled.returns
            && Arc::ptr_eq(&plan, &key.plan)
            && self.charge(key, Op::Undo(undo)).await.is_some()
        {
            add(&quotas.counts.returned, undo.hits.into());
            self.with(|bucket, _| bucket.returned += u64::from(undo.hits));
        }
        // Before the first order of a stream, requests pass by the fallback, or by a grant of an earlier stream.
        let is_charged = match quota {
            Quota::Shadow(_) => true,
            _ if is_first => quotas.options.fallback == Fallback::Allow,
            _ => !may_have_passed,
        };
        if settled.excess > 0 && is_charged {
            let hits = u32::try_from(settled.excess).unwrap_or(u32::MAX);
            let limits = (1_u32 << key.plan.limits().len()) - 1;
            self.charge(key, Op::Add { hits, limits: limits as u16 }).await;
            if matches!(quota, Quota::Limited(_)) {
                add(&quotas.counts.excess, settled.excess);
            }
        }
    }

    /// Gives an order that depends on no window, unless the Envoy obeys it already.
    fn plain(&self, order: Order) -> Actions {
        self.with(|bucket, now| {
            let is_renewed = bucket.obeys(now, order) && bucket.plan.is_none();
            if is_renewed {
                bucket.due = bucket.ends.saturating_sub(crate::bucket::EARLY);
                return Actions::new();
            }
            (bucket.plan, bucket.window) = (None, None);
            self.ordered(bucket, now, order, PLAIN_ORDER)
        })
    }

    /// Gives the next order of a bucket with limits, if it is due.
    async fn limit(&self, key: &QuotaKey) -> Actions {
        let (is_wanted, is_granted) = self.with(|bucket, _| {
            let has_less = bucket.plan.as_ref().is_none_or(|plan| {
                plan.shape() != key.plan.shape() || key.plan.capacity() < plan.capacity()
            });
            let is_wanted = match self.event {
                Event::Report { usage, is_first } => {
                    is_first || usage != Usage::default() || bucket.shrinks()
                }
                Event::Due => true,
                Event::Changed => has_less,
            };
            (is_wanted, bucket.is_active() || bucket.shrinks())
        });
        if !is_wanted {
            return Actions::new();
        }
        if !is_granted {
            return self.deny(key);
        }
        match self.grant(key).await {
            Granting::Granted(granted, lasts) => self.admit(key, granted, lasts),
            Granting::Nothing => self.deny(key),
            Granting::Kept | Granting::Failed => Actions::new(),
            Granting::Allowed => self.plain(Order::Allow),
        }
    }

    /// Orders to admit the hits of a grant: a denial first, or the Envoy would keep what is left of the grant before.
    fn admit(&self, key: &QuotaKey, granted: Granted, lasts: Micros) -> Actions {
        self.with(|bucket, now| {
            let hits = granted.hits;
            bucket.granted += u64::from(hits);
            bucket.plan = Some(key.plan.clone());
            bucket.account.grant(now, granted);
            bucket.order(now, Order::Admit(hits), lasts);
            let action =
                |order| QuotaAction { bucket: self.id.clone(), order: Some((order, seconds(lasts))) };
            smallvec![action(Order::Deny), action(Order::Admit(hits))]
        })
    }

    /// Orders to deny, until the next window if the Envoy had requests lately.
    fn deny(&self, key: &QuotaKey) -> Actions {
        self.with(|bucket, now| {
            bucket.plan = Some(key.plan.clone());
            let next = bucket.window.filter(|window| now < window.latest);
            let until_next = next.map_or(0, |window| window.latest - now);
            let whole = until_next.div_ceil(SECOND).saturating_mul(SECOND);
            let lasts = (whole + 2 * SECOND).clamp(20 * SECOND, LONGEST_DENIAL);
            let actions = match bucket.obeys(now, Order::Deny) {
                true => Actions::new(),
                false => self.ordered(bucket, now, Order::Deny, lasts),
            };
            let ends = bucket.ends.saturating_sub(crate::bucket::EARLY);
            bucket.due = match next {
                Some(window) if bucket.is_active() => ends.min(window.latest),
                _ => ends,
            };
            actions
        })
    }

    fn ordered(&self, bucket: &mut Bucket, now: Micros, order: Order, lasts: Micros) -> Actions {
        bucket.order(now, order, lasts);
        smallvec![QuotaAction { bucket: self.id.clone(), order: Some((order, seconds(lasts))) }]
    }

    /// Has the store grant hits.
    async fn grant(&self, key: &QuotaKey) -> Granting {
        let quotas = &self.stream.quotas;
        let entries: SmallVec<[Entry<'_>; 4]> = key.entries.iter().map(entry).collect();
        let name = Key { domain: self.domain, entries: &entries };
        let text = key_text("", &name, &key.plan, false);
        let is_report = matches!(self.event, Event::Report { .. });
        let (window, demand, shrinks, keeps) = self.with(|bucket, now| {
            let window = bucket.window.filter(|window| now < window.latest);
            let keeps = is_report && bucket.has_grant(now);
            (window, bucket.demand, bucket.shrinks(), keeps)
        });
        // What the Envoy has is worth more than a denial.
        let nothing = || if keeps { Granting::Kept } else { Granting::Nothing };
        let now = quotas.now();
        if window.is_some_and(|window| window.grant_for(now).is_none()) {
            return nothing();
        }
        let (demand, left) = quotas.keys.report(&text, self.stream.id, demand, now);
        let left = match left {
            Some(left) => left,
            None => self.charge(key, Op::Take(0)).await.map_or(0, |looked| looked.remaining),
        };
        let is_last_part = window.is_some_and(|window| window.left(now) <= LAST_PART);
        let most = match shrinks {
            true => 1,
            false => size::size(left, demand, quotas.options.replicas.into(), is_last_part),
        };
        if is_report && !shrinks && self.with(|bucket, now| bucket.needs_no(most, now)) {
            return Granting::Kept;
        }
        let up_to = Op::UpTo(UpTo { least: 0, most, share: NonZeroU32::MIN });
        let charge =
            [Charge { key: name, plan: &key.plan, op: up_to, hold: None, role: Role::Enforced }];
        let batch = Batch {
            on_failure: key.on_failure,
            ..Batch::new(&charge, quotas.options.store_timeout)
        };
        let sent = quotas.now();
        let granted = quotas.limiter.store().grant(&batch).await;
        let answered = quotas.now();
        match granted {
            Ok(grant) => match self.granted(key, &text, grant, (sent, answered)).await {
                Granting::Nothing => nothing(),
                granting => granting,
            },
            Err(error) => {
                tracing::debug!(domain = self.domain, %error, "no grant");
                Granting::Failed
            }
        }
    }

    /// Keeps what a grant of the store shows. Returns the grant, and for how long it may be used.
    async fn granted(
        &self,
        key: &QuotaKey,
        text: &str,
        grant: Grant,
        (sent, answered): (Micros, Micros),
    ) -> Granting {
        let quotas = &self.stream.quotas;
        let Grant { decision, undos, now: store_now } = grant;
        let hits = decision.granted;
        let is_by_store = decision.source == Source::Store;
        if !is_by_store {
            let policy = key.on_failure.unwrap_or(quotas.options.on_failure);
            match policy {
                OnStoreFailure::Allow => return Granting::Allowed,
                OnStoreFailure::Local if hits > 0 => {}
                _ => return Granting::Nothing,
            }
        }
        let window = WindowEnd::new(&key.plan, store_now, sent, answered);
        quotas.keys.set_left(text, decision.remaining, window.earliest);
        self.with(|bucket, _| bucket.window = Some(window));
        // Several: the clock has stepped back behind the window of some limit. That is not worth it.
        let undo = match undos.as_slice() {
            [undo] if is_by_store => Some(*undo),
            _ => None,
        };
        let plan = key.plan.clone();
        match window.grant_for(quotas.now()) {
            _ if hits == 0 => Granting::Nothing,
            Some(lasts) => {
                add(&quotas.counts.granted, hits.into());
                let window_end = window.end;
                Granting::Granted(Granted { hits, undo, plan, window_end }, lasts)
            }
            None => {
                if let Some(undo) = undo {
                    self.charge(key, Op::Undo(undo)).await;
                }
                Granting::Nothing
            }
        }
    }

    /// Charges a key, whatever its limits say. Returns the decision of the store; none if it failed.
    async fn charge(&self, key: &QuotaKey, op: Op) -> Option<Decision> {
        let quotas = &self.stream.quotas;
        let entries: SmallVec<[Entry<'_>; 4]> = key.entries.iter().map(entry).collect();
        let name = Key { domain: self.domain, entries: &entries };
        let charges = [Charge { key: name, plan: &key.plan, op, hold: None, role: Role::Enforced }];
        let batch = Batch {
            on_failure: key.on_failure,
            ..Batch::new(&charges, quotas.options.store_timeout)
        };
        let mut answers = Answers::new();
        quotas.limiter.store().charge(&batch, &mut answers).await;
        answers.pop()?.ok().filter(|decision| decision.source == Source::Store)
    }
}

/// What became of a grant.
enum Granting {
    Granted(Granted, Micros),
    /// Nothing is left, or the window is about to end.
    Nothing,
    /// The Envoy keeps what it has.
    Kept,
    /// The failure policy allows.
    Allowed,
    /// The store failed, and there is no policy: what the Envoy was granted ends by itself.
    Failed,
}

fn entry(entry: &weir_common::entry::OwnedEntry) -> Entry<'_> {
    (&entry.key, &entry.value)
}

fn seconds(lasts: Micros) -> u32 {
    u32::try_from(lasts / SECOND).unwrap_or(u32::MAX).max(1)
}

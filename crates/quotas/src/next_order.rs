//! A visit of one bucket: settles its report, and gives its next order.

use std::hash::BuildHasher;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::account::{Granted, REPORT_DELAY};
use crate::bucket::{Bucket, BucketId, EARLY, Event, Order, PLAIN_ORDER, QuotaAction};
use crate::options::Fallback;
use crate::quotas::{Quotas, StreamBuckets, add};
use crate::size;
use crate::window::WindowEnd;
use weir_common::failure::OnStoreFailure;
use weir_controls::ActiveView;
use weir_limit::{Decision, Micros, Op, Plan, SECOND, Source, Undo, UpTo};
use weir_limiter::{BucketKey, BucketQuota, Usage};
use weir_store::{Answers, Batch, Charge, Entry, Grant, Key, Role, States};

/// The longest denial until the end of a window. It is renewed, so that an Envoy without weir falls back at some time.
const LONGEST_DENIAL: Micros = 300 * SECOND;

pub(crate) struct Visit<'a, S> {
    pub quotas: &'a Quotas<S>,
    /// The stream, and its number.
    pub buckets: &'a Mutex<StreamBuckets>,
    pub stream: u64,
    pub domain: &'a str,
    pub id: &'a BucketId,
    pub event: Event,
}

type Actions = SmallVec<[QuotaAction; 2]>;

/// The next order of a bucket. What counts from when it is sent is filled in once all of its piece are known.
pub(crate) enum NextOrder {
    /// None: the Envoy obeys the one that it has.
    Same,
    /// The Envoy may forget the bucket.
    Abandon,
    Plain(Order),
    /// Denies, by the limits of a plan.
    Deny(Arc<Plan>),
    Admit(Granted, WindowEnd),
}

impl<S: States> Visit<'_, S> {
    /// Settles the report, then returns the next order, if one is due.
    pub async fn visit(&self) -> NextOrder {
        // Other streams have a turn between two buckets that need not wait.
        tokio::task::coop::consume_budget().await;
        let usage = match self.event {
            Event::Report { usage, .. } => usage,
            Event::Due | Event::Changed => Usage::default(),
        };
        let quota = {
            let entries: SmallVec<[Entry<'_>; 4]> = self.id.entries().collect();
            let snapshot = self.quotas.rules.load();
            // Without rules, the Envoy falls back as it is configured.
            let Some(snapshot) = &*snapshot else { return NextOrder::Same };
            let view = ActiveView::from(&**snapshot);
            self.quotas.limiter.bucket_quota(view, self.domain, &entries, usage)
        };
        let mut unused = self.settle(&quota).await;
        let next = self.next(&quota, unused.as_mut()).await;
        if let (Some(key), Some(Granted { hits, undo: Some(undo), .. })) = (quota.key(), unused)
            && hits > 0
            && self.charge(key, Op::Undo(Undo { hits, ..undo })).await.is_some()
        {
            self.count_returned(hits);
        }
        next
    }

    /// Returns the next order, which may grant hits again that the Envoy has not used.
    async fn next(&self, quota: &BucketQuota, unused: Option<&mut Granted>) -> NextOrder {
        let fallback = self.quotas.options.fallback;
        if self.with(|bucket, now| bucket.is_abandoned(now, fallback)) {
            return NextOrder::Abandon;
        }
        match quota {
            BucketQuota::Allowed | BucketQuota::Shadow(_) => NextOrder::Plain(Order::Allow),
            BucketQuota::Blocked => NextOrder::Plain(Order::Deny),
            BucketQuota::Unsupported { rule, why } => {
                if matches!(self.event, Event::Report { .. }) {
                    self.quotas.unsupported(self.domain, rule, why);
                }
                NextOrder::Plain(match self.quotas.options.unsupported {
                    Fallback::Allow => Order::Allow,
                    Fallback::Deny => Order::Deny,
                })
            }
            BucketQuota::Limited(key) => self.limit(key, unused).await,
        }
    }

    /// Gives an order, which is sent now. Returns what to send.
    pub fn give(&self, next: NextOrder) -> Actions {
        match next {
            NextOrder::Same => Actions::new(),
            NextOrder::Abandon => smallvec![QuotaAction { bucket: self.id.clone(), order: None }],
            NextOrder::Plain(order) => self.plain(order),
            NextOrder::Deny(plan) => self.deny(plan),
            NextOrder::Admit(granted, window) => self.admit(granted, &window),
        }
    }

    /// Passes the bucket to `then`, with the time.
    fn with<T: Default>(&self, then: impl FnOnce(&mut Bucket, Micros) -> T) -> T {
        let now = self.quotas.now();
        let mut stream = self.buckets.lock();
        stream.buckets.get_mut(self.id).map(|bucket| then(bucket, now)).unwrap_or_default()
    }

    /// Settles a report: charges what was used beyond the grants. Returns what will not be used.
    async fn settle(&self, quota: &BucketQuota) -> Option<Granted> {
        let Event::Report { at, usage, is_first } = self.event else { return None };
        let quotas = self.quotas;
        let requests = usage.admitted.saturating_add(usage.denied);
        let (settled, may_have_passed) = self.with(|bucket, now| {
            let requests_32 = u32::try_from(requests).unwrap_or(u32::MAX);
            bucket.follows_first_grant = !is_first && bucket.demand.is_none();
            bucket.demand = (!is_first).then_some(requests_32);
            bucket.idle_reports =
                if requests == 0 { bucket.idle_reports.saturating_add(1) } else { 0 };
            bucket.admitted = bucket.admitted.saturating_add(usage.admitted);
            let settled = bucket.account.report(at, usage.admitted);
            let is_allowed = bucket.order == Some(Order::Allow) || now < bucket.allowed_until;
            if is_first && quotas.options.fallback == Fallback::Deny {
                bucket.allowed_until = now.saturating_add(2 * REPORT_DELAY);
            }
            (settled, is_allowed)
        });
        let key = quota.key()?;
        // Before the first order of a stream, requests pass by the fallback, or by a grant of an earlier stream.
        let is_charged = match quota {
            BucketQuota::Shadow(_) => true,
            _ if is_first => quotas.options.fallback == Fallback::Allow,
            _ => !may_have_passed,
        };
        if settled.excess > 0 && is_charged {
            let hits = u32::try_from(settled.excess).unwrap_or(u32::MAX);
            let limits = (1_u32 << key.plan.limits().len()) - 1;
            self.charge(key, Op::Add { hits, limits: limits as u16 }).await;
            if matches!(quota, BucketQuota::Limited(_)) {
                add(&quotas.counts.excess, settled.excess);
            }
        }
        settled.unused.filter(|unused| Arc::ptr_eq(&unused.plan, &key.plan))
    }

    fn count_granted(&self, hits: u32) {
        add(&self.quotas.counts.granted, hits.into());
        self.with(|bucket, _| bucket.granted += u64::from(hits));
    }

    fn count_returned(&self, hits: u32) {
        add(&self.quotas.counts.returned, hits.into());
        self.with(|bucket, _| bucket.returned += u64::from(hits));
    }

    /// Gives an order that depends on no window, unless the Envoy obeys it already.
    fn plain(&self, order: Order) -> Actions {
        self.with(|bucket, now| {
            if bucket.obeys(now, order) && bucket.plan.is_none() {
                return Actions::new();
            }
            (bucket.plan, bucket.window) = (None, None);
            self.ordered(bucket, now, order, PLAIN_ORDER)
        })
    }

    /// Returns the next order of a bucket with limits, if it is due.
    async fn limit(&self, key: &BucketKey, unused: Option<&mut Granted>) -> NextOrder {
        let (is_wanted, is_granted) = self.with(|bucket, now| {
            let has_less = bucket.plan.as_ref().is_none_or(|plan| {
                plan.shape() != key.plan.shape() || key.plan.capacity() < plan.capacity()
            });
            let is_wanted = match self.event {
                Event::Report { usage, is_first, .. } => {
                    let is_used = usage != Usage::default();
                    is_first || is_used || bucket.shrinks() || bucket.has_too_much()
                }
                Event::Due => true,
                Event::Changed => has_less,
            };
            (is_wanted, bucket.is_active(now) || bucket.shrinks())
        });
        if !is_wanted {
            return NextOrder::Same;
        }
        if !is_granted {
            return NextOrder::Deny(key.plan.clone());
        }
        self.grant(key, unused).await
    }

    /// Orders to admit the hits of a grant: a denial first, or the bucket would start with the share that is left of the
    /// one before.
    fn admit(&self, granted: Granted, window: &WindowEnd) -> Actions {
        let plan = granted.plan.clone();
        let actions = self.with(|bucket, now| {
            let lasts = window.grant_for(now)?;
            let hits = granted.hits;
            bucket.plan = Some(granted.plan.clone());
            bucket.account.grant(now, granted);
            bucket.order(now, Order::Admit(hits), lasts);
            let action = |order| QuotaAction::order(self.id.clone(), order, lasts);
            Some(smallvec![action(Order::Deny), action(Order::Admit(hits))])
        });
        // Too late: the hits stay charged.
        actions.unwrap_or_else(|| self.deny(plan))
    }

    /// Orders to deny, until the next window if the Envoy had requests lately.
    fn deny(&self, plan: Arc<Plan>) -> Actions {
        self.with(|bucket, now| {
            bucket.plan = Some(plan);
            let next = bucket.window.filter(|window| now < window.latest);
            let until_next = next.map_or(0, |window| window.latest - now);
            let whole = until_next.div_ceil(SECOND).saturating_mul(SECOND);
            let lasts = (whole + 2 * SECOND).clamp(20 * SECOND, LONGEST_DENIAL);
            let actions = match bucket.obeys(now, Order::Deny) {
                true => Actions::new(),
                false => self.ordered(bucket, now, Order::Deny, lasts),
            };
            let ends = bucket.ends.saturating_sub(EARLY);
            bucket.due = match next {
                Some(window) if bucket.is_active(now) => ends.min(window.latest),
                _ => ends,
            };
            actions
        })
    }

    fn ordered(&self, bucket: &mut Bucket, now: Micros, order: Order, lasts: Micros) -> Actions {
        bucket.order(now, order, lasts);
        smallvec![QuotaAction::order(self.id.clone(), order, lasts)]
    }

    /// Grants unused hits again, and more from the store. Returns what to order by that.
    async fn grant(&self, key: &BucketKey, unused: Option<&mut Granted>) -> NextOrder {
        let quotas = self.quotas;
        let report = match self.event {
            Event::Report { at, usage, .. } => Some((at, usage)),
            Event::Due | Event::Changed => None,
        };
        let is_report = report.is_some();
        let (window, demand, shrinks, keeps) = self.with(|bucket, now| {
            let window = bucket.window.filter(|window| now < window.latest);
            let keeps = is_report && bucket.has_grant(now);
            (window, bucket.demand, bucket.shrinks(), keeps)
        });
        // What the Envoy has is worth more than a denial.
        let nothing = || if keeps { NextOrder::Same } else { NextOrder::Deny(key.plan.clone()) };
        let now = quotas.now();
        if window.is_some_and(|window| window.grant_for(now).is_none()) {
            return nothing();
        }
        let (demand, left) =
            quotas.keys.report(self.key_hash(key), self.stream, demand.map(u64::from), now);
        let left = match left {
            Some(left) => left,
            None => self.charge(key, Op::Take(0)).await.map_or(0, |look| look.remaining),
        };
        let is_same_window = |unused: &&mut Granted| {
            window.is_some_and(|window| window.end.get() == unused.window_end)
        };
        let mut unused = unused.filter(is_same_window);
        let unused_hits = unused.as_ref().map_or(0, |unused| unused.hits);
        let left = left.saturating_add(unused_hits.into());
        let window_left = window.map_or(Micros::MAX, |window| window.left(now));
        let most = match shrinks {
            true => 1,
            false => size::size(left, demand, quotas.options.replicas.into(), window_left),
        };
        let has_enough = |bucket: &mut Bucket, now: Micros| {
            // Denials show that nothing is left, whatever the sums of the reports allow.
            let is_short =
                report.is_some_and(|(at, usage)| usage.denied > 0 && bucket.account.is_applied(at));
            let has_enough = !is_short && bucket.has_enough(most, now);
            if has_enough
                && bucket.is_doubled(most)
                && let Some(unused) = unused.as_deref_mut()
                && unused.hits <= most
            {
                bucket.account.keep_unused(unused);
            }
            has_enough
        };
        if is_report && !shrinks && self.with(has_enough) {
            return NextOrder::Same;
        }
        let (mut granted, window) = match window.filter(|_| most <= unused_hits) {
            Some(window) => (Granted::none(key.plan.clone(), window.end.get()), window),
            None => match self.ask_store(key, most - unused_hits, nothing).await {
                Ok(answer) => answer,
                Err(next) => return next,
            },
        };
        if let Some(unused) = unused {
            let regranted = granted.take(unused, most.saturating_sub(granted.hits));
            self.count_granted(regranted);
            self.count_returned(regranted);
        }
        match granted.hits {
            0 => nothing(),
            _ => NextOrder::Admit(granted, window),
        }
    }

    /// Has the store grant hits. Returns them, 0 or more, and their window.
    ///
    /// # Errors
    ///
    /// The store has granted nothing that can be used. Returns what to order instead.
    async fn ask_store(
        &self,
        key: &BucketKey,
        most: u32,
        nothing: impl Fn() -> NextOrder,
    ) -> Result<(Granted, WindowEnd), NextOrder> {
        let quotas = self.quotas;
        let up_to = Op::UpTo(UpTo { least: 0, most, share: NonZeroU32::MIN });
        let sent = quotas.now();
        let store = quotas.limiter.store();
        let grant = self.with_batch(key, up_to, async |batch| store.grant(batch).await).await;
        let answered = quotas.now();
        let Grant { decision, undos, now: store_now } = grant.map_err(|error| {
            // What the Envoy was granted ends by itself.
            tracing::debug!(domain = self.domain, %error, "no grant");
            NextOrder::Same
        })?;
        let hits = decision.granted;
        let is_by_store = decision.source == Source::Store;
        if !is_by_store {
            match key.on_failure.unwrap_or(quotas.options.on_failure) {
                OnStoreFailure::Allow => return Err(NextOrder::Plain(Order::Allow)),
                OnStoreFailure::Local => {}
                OnStoreFailure::Deny | OnStoreFailure::Error => return Err(nothing()),
            }
        }
        let window = WindowEnd::new(&key.plan, store_now, sent, answered);
        quotas.keys.set_left(self.key_hash(key), decision.remaining, window.earliest);
        self.with(|bucket, _| bucket.window = is_by_store.then_some(window));
        // Several: the clock has stepped back behind the window of some limit. That is not worth it.
        let undo = match undos.as_slice() {
            [undo] if is_by_store => Some(*undo),
            _ => None,
        };
        if window.grant_for(quotas.now()).is_none() {
            // Too late.
            if let Some(undo) = undo {
                self.charge(key, Op::Undo(undo)).await;
            }
            return Err(nothing());
        }
        self.count_granted(hits);
        let (plan, window_end) = (key.plan.clone(), window.end.get());
        Ok((Granted { hits, undo, plan, window_end }, window))
    }

    /// Charges a key, whatever its limits say. Returns the decision of the store; none if it failed.
    async fn charge(&self, key: &BucketKey, op: Op) -> Option<Decision> {
        let store = self.quotas.limiter.store();
        let charged = self.with_batch(key, op, async |batch| {
            let mut answers = Answers::new();
            store.charge(batch, &mut answers).await;
            answers
        });
        charged.await.pop()?.ok().filter(|decision| decision.source == Source::Store)
    }

    /// Passes a batch of one charge to `then`.
    async fn with_batch<T>(
        &self,
        key: &BucketKey,
        op: Op,
        then: impl AsyncFnOnce(&Batch<'_>) -> T,
    ) -> T {
        let entries: SmallVec<[Entry<'_>; 4]> = key.entries().collect();
        let name = Key { domain: self.domain, entries: &entries };
        let charge = [Charge { key: name, plan: &key.plan, op, hold: None, role: Role::Enforced }];
        let timeout = self.quotas.options.store_timeout;
        then(&Batch { on_failure: key.on_failure, ..Batch::new(&charge, timeout) }).await
    }

    fn key_hash(&self, key: &BucketKey) -> u64 {
        self.quotas.keys.hasher.hash_one((self.domain, &key.entries, key.plan.shape()))
    }
}

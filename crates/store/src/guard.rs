//! Answers by policy when the store fails.

mod operations;
mod outage;
#[cfg(test)]
mod tests;

use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

pub use self::outage::FailureCounts;
use self::outage::Outage;
use super::memory::MemoryStore;
use super::{
    Answer, Answers, Batch, Charge, OnStoreFailure, Role, StateKey, States, Store, StoreError,
};
use weir_common::clock::{Clock, Monotonic};
use weir_limit::{
    Decision, KeyState, Micros, NearLimits, Op, Plan, ReservationResult, SECOND, Source,
};

/// The wait in denials by the policy `deny`.
const RETRY_AFTER: Micros = SECOND;

/// A wrapper that answers by policy when the inner store fails.
///
/// For each charge that the inner store failed to answer, the policy of the batch decides, or that of
/// the guard if the batch has none:
///
/// - `error` returns the error.
/// - `allow` allows.
/// - `deny` denies, with a wait of one second. It allows what limits never deny (refunds, for instance), and
///   plans whose limits are all in shadow mode.
/// - `local` limits in memory by this replica's [share](Plan::replica_share), starting empty. Hits beyond the
///   share are denied, even if the whole limit has room. The failed charges of a batch that is charged
///   together are charged together with each other. What is settled without a
///   reservation in memory was reserved in the store, and stays charged there.
///
/// The [source](Source::Degraded) of such decisions shows that a policy made them.
///
/// **Local counts** start with the first failure. They are dropped when the store answers and has not
/// failed for ten seconds: part of a store may fail while the rest answers, and an unstable store does
/// not reset everybody's counts each time.
///
/// **Time.** The guard has no timer of its own: every store ends within the batch's budget.
///
/// **Cost.** While the store answers: a look at each answer, one atomic load and one addition.
#[derive(Debug)]
pub struct Guard<S, C> {
    inner: S,
    clock: C,
    options: GuardOptions,
    /// The counts during an outage.
    local: ArcSwapOption<MemoryStore<C>>,
    outage: Outage,
    counts: FailureCounts,
}

/// How a guard answers when the inner store fails.
#[derive(Clone, Copy, Debug)]
pub struct GuardOptions {
    /// The policy of batches without their own.
    pub on_failure: OnStoreFailure,
    /// The replicas among which the policy `local` divides limits; 0 is 1.
    pub replicas: u32,
    /// How many keys that policy counts in memory at most.
    pub max_keys: usize,
}

impl<S: Store, C: Clock + Monotonic + Clone> Guard<S, C> {
    pub fn new(inner: S, clock: C, options: GuardOptions) -> Guard<S, C> {
        let (local, outage, counts) = Default::default();
        Guard { inner, clock, options, local, outage, counts }
    }

    /// The charges, and those that failed by policy and by kind.
    pub fn counts(&self) -> &FailureCounts {
        &self.counts
    }

    /// Returns the store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the batch with the policy that is to answer for it.
    fn with_policy<'a>(&self, batch: Batch<'a>) -> Batch<'a> {
        Batch { on_failure: Some(batch.on_failure.unwrap_or(self.options.on_failure)), ..batch }
    }

    /// Replaces failures among the answers of the inner store; notices when an outage is over.
    fn check(&self, batch: Batch<'_>, answers: &mut [Answer]) {
        self.counts.add_charges(answers.len());
        if answers.iter().any(Result::is_err) {
            self.degrade(batch, answers);
        } else if self.outage.is_active() {
            self.answered();
        }
    }

    /// Replaces failures by the answers of the policy.
    #[cold]
    fn degrade(&self, batch: Batch<'_>, answers: &mut [Answer]) {
        let policy = batch.on_failure.unwrap_or(self.options.on_failure);
        let failures = || answers.iter().filter_map(|answer| answer.as_ref().err().copied());
        let failed = failures().inspect(|kind| self.counts.count(policy, *kind)).count() as u64;
        let kind = failures().max_by_key(|kind| *kind != StoreError::CallerDeadline);
        if let (Some(kind), Some(charge)) = (kind, batch.charges.first())
            && let Some(suppressed) = self.outage.fail(self.clock.monotonic(), failed, kind)
        {
            let (policy, domain) = (policy.name(), charge.key.domain);
            tracing::warn!(policy, domain, error = %kind, suppressed, "store failed");
        }
        match policy {
            OnStoreFailure::Error => {}
            OnStoreFailure::Allow => replace(&batch, answers, allow),
            OnStoreFailure::Deny => replace(&batch, answers, deny),
            OnStoreFailure::Local => self.charge_locally(batch, answers),
        }
    }

    fn charge_locally(&self, batch: Batch<'_>, answers: &mut [Answer]) {
        let counts = self.local_counts();
        // What was charged elsewhere is neither undone nor settled here.
        for (charge, answer) in zip(batch.charges, &mut *answers) {
            let is_elsewhere = match charge.op {
                Op::Undo(_) => true,
                Op::Reservation(op) => {
                    let plan = &self.share(charge.plan);
                    let local = Charge { plan, ..*charge };
                    op.reserve().is_none() && counts.reservation_now(&local).is_none()
                }
                Op::Take(_) | Op::Refund(_) | Op::UpTo(_) | Op::Add { .. } => false,
            };
            if answer.is_err() && is_elsewhere {
                *answer = Ok(allow(charge));
            }
        }
        let failed = || zip(batch.charges, &*answers).filter(|(_, answer)| answer.is_err());
        let shares: SmallVec<[Arc<Plan>; 4]> =
            failed().map(|(charge, _)| self.share(charge.plan)).collect();
        let charges: SmallVec<[Charge<'_>; 4]> =
            zip(failed(), &shares).map(|((charge, _), plan)| Charge { plan, ..*charge }).collect();
        let allows_quota = |(charge, answer): (&Charge<'_>, &Answer)| {
            charge.role == Role::Quota && answer.as_ref().is_ok_and(|decision| decision.allowed)
        };
        let quota_passes = batch.quota_passes || zip(batch.charges, &*answers).any(allows_quota);
        let local_batch = Batch { charges: &charges, quota_passes, ..batch };
        let mut local = Answers::new();
        counts.charge_now(local_batch, &mut local);

        let mut local = zip(local.into_iter().flatten(), &shares);
        replace(&batch, answers, |charge| {
            let Some((mut decision, share)) = local.next() else { return deny(charge) };
            decision.source = Source::Degraded;
            if !decision.allowed {
                let whole = n(charge.plan, decision.limit);
                let limit = charge.plan.limits().get(usize::from(decision.limit));
                decision.used_before =
                    if limit.is_some_and(|limit| limit.algorithm.reports_tokens()) {
                        // The reply leaves the tokens of the share.
                        let others = whole.saturating_sub(n(share, decision.limit));
                        decision.used_before.saturating_add(others)
                    } else {
                        // Statistics compare it with the whole limit, which counts as used up.
                        decision.used_before.max(whole)
                    };
            }
            decision
        });
    }

    /// Returns what this replica limits by on its own: its share.
    fn share(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        match self.options.replicas {
            0 | 1 => plan.clone(),
            replicas => Arc::new(plan.replica_share(replicas)),
        }
    }

    fn local_counts(&self) -> Arc<MemoryStore<C>> {
        loop {
            if let Some(local) = self.local.load_full() {
                return local;
            }
            let fresh = MemoryStore::new(self.clock.clone(), self.options.max_keys);
            // If two threads make a store at the same time, one is kept.
            self.local.compare_and_swap(&None::<Arc<MemoryStore<C>>>, Some(Arc::new(fresh)));
        }
    }

    /// The store answered after failures.
    #[cold]
    fn answered(&self) {
        if self.outage.end_if_over(self.clock.monotonic()) {
            let local = self.local.swap(None);
            // Freeing a full store takes long, and no request should wait for it. If no thread can
            // start, it is freed here.
            let _ = std::thread::Builder::new().name("free".into()).spawn(move || drop(local));
        }
    }
}

impl<S: Store, C: Clock + Monotonic + Clone> Store for Guard<S, C> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let (first, batch) = (answers.len(), self.with_policy(batch));
        self.inner.charge(batch, answers).await;
        self.check(batch, &mut answers[first..]);
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        let (first, batch) = (answers.len(), self.with_policy(batch));
        if !self.inner.try_charge(batch, answers) {
            return false;
        }
        self.check(batch, &mut answers[first..]);
        true
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate()
    }
}

impl<S: States, C: Clock + Monotonic + Clone> States for Guard<S, C> {
    /// Returns errors of the inner store as they are, whatever the policy.
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        self.inner.read(key, spans, budget).await
    }

    /// Resets the local count of an outage too, also if the inner store fails.
    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        let reset = self.inner.reset(key, budget).await;
        if let Some(local) = &*self.local.load() {
            let plan = self.share(key.plan);
            local.reset_now(StateKey { plan: &plan, ..key });
        }
        reset
    }
}

/// Replaces each failure by a decision, in order.
fn replace(
    batch: &Batch<'_>,
    answers: &mut [Answer],
    mut with: impl FnMut(&Charge<'_>) -> Decision,
) {
    for (charge, answer) in zip(batch.charges, answers) {
        if answer.is_err() {
            *answer = Ok(with(charge));
        }
    }
}

/// The `n` of one of a plan's limits.
fn n(plan: &Plan, limit: u8) -> u64 {
    plan.limits().get(usize::from(limit)).map_or(0, |limit| limit.requests_per_unit.into())
}

fn allow(charge: &Charge<'_>) -> Decision {
    let limit = charge.enforced_limit().unwrap_or(0);
    Decision {
        allowed: true,
        limit,
        would_deny: 0,
        used_before: 0,
        remaining: n(charge.plan, limit),
        reset_after: 0,
        retry_after: None,
        source: Source::Degraded,
        granted: 0,
        reserved: 0,
        reservation: ReservationResult::None,
        near: NearLimits::default(),
    }
}

fn deny(charge: &Charge<'_>) -> Decision {
    let (Some(_), Some(limit)) = (charge.op.asks(), charge.enforced_limit()) else {
        return allow(charge);
    };
    Decision {
        allowed: false,
        // All hits count as over the limit.
        used_before: n(charge.plan, limit),
        remaining: 0,
        reset_after: RETRY_AFTER,
        retry_after: Some(RETRY_AFTER),
        ..allow(charge)
    }
}

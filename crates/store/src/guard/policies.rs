//! The answers of the guard when the store fails, by the policy: `allow`, `deny`, or `local` counts.

use std::iter::zip;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Guard;
use crate::charge::{Answer, Answers, Batch, Charge, Role};
use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::store::Store;
use weir_common::clock::{Clock, Monotonic};
use weir_common::failure::OnStoreFailure;
use weir_limit::{Decision, Micros, Op, Plan, SECOND, Source};

/// The wait in denials by the policy `deny`.
const RETRY_AFTER: Micros = SECOND;

impl<S: Store, C: Clock + Monotonic + Clone> Guard<S, C> {
    /// Replaces the errors among the answers by decisions of the policy, and counts and logs them.
    #[cold]
    pub(super) fn degrade(&self, batch: &Batch<'_>, answers: &mut [Answer]) {
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
            OnStoreFailure::Allow => replace(batch, answers, allow),
            OnStoreFailure::Deny => replace(batch, answers, deny),
            OnStoreFailure::Local => self.charge_locally(batch, answers),
        }
    }

    fn charge_locally(&self, batch: &Batch<'_>, answers: &mut [Answer]) {
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
        let local_batch = Batch { charges: &charges, quota_passes, ..*batch };
        let mut local = Answers::new();
        counts.charge_now(&local_batch, &mut local);

        let mut local = zip(local.into_iter().flatten(), &shares);
        replace(batch, answers, |charge| {
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

    pub(super) fn share(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        match self.options.replicas {
            // A share has no bans.
            0 | 1 if plan.ban().is_none() => plan.clone(),
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
}

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

fn n(plan: &Plan, limit: u8) -> u64 {
    plan.limits().get(usize::from(limit)).map_or(0, |limit| limit.requests_per_unit.into())
}

fn allow(charge: &Charge<'_>) -> Decision {
    let limit = charge.enforced_limit().unwrap_or(0);
    Decision {
        allowed: true,
        limit,
        remaining: n(charge.plan, limit),
        source: Source::Degraded,
        ..Decision::default()
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

//! Wraps a store: when it fails, answers by the policy `store.on_failure` (an error, allow, deny, or count locally).

mod operations;
mod policies;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;

use crate::charge::{Answer, Answers, Batch};
use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::states::{Grant, StateKey, States};
use crate::store::Store;
use weir_common::clock::{Clock, Monotonic};
use weir_common::failure::OnStoreFailure;
use weir_common::throttle::Throttle;
use weir_limit::{KeyState, Micros, Plan, SECOND};

/// How long the store must answer without a failure for an outage to be over.
const QUIET: Micros = 10 * SECOND;

/// A wrapper that answers by policy when the inner store fails.
///
/// For each charge that the inner store failed to answer, the batch's policy decides, or else that of the guard:
///
/// - `error` returns the error.
/// - `allow` allows.
/// - `deny` denies, with a wait of one second. It allows what limits never deny (refunds, for instance), and plans
///   whose limits are all in shadow mode.
/// - `local` limits in memory by this replica's [share](weir_limit::Plan::replica_share), starting empty. Hits beyond
///   the share are denied, even if the whole limit has room. The failed charges of a batch that is charged together are
///   charged together with each other. What is settled without a reservation in memory was reserved in the store, and
///   stays charged there.
///
/// The [source](weir_limit::Source::Degraded) of such decisions shows that a policy made them.
///
/// **Local counts** start with the first failure. They are dropped when the store answers and has not failed for ten
/// seconds: part of a store may fail while the rest answers, and an unstable one does not reset all counts each time.
///
/// **Time.** The guard has no timer of its own: every store ends within the batch's timeout.
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
    /// Returns a guard of a store.
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

    /// Replaces failures among the answers of the inner store; notices when an outage is over.
    fn check(&self, batch: &Batch<'_>, answers: &mut [Answer]) {
        self.counts.charges.fetch_add(answers.len() as u64, Relaxed);
        if answers.iter().any(Result::is_err) {
            self.degrade(batch, answers);
        } else if self.outage.is_active() {
            self.answered();
        }
    }

    #[cold]
    fn answered(&self) {
        if self.outage.end_if_over(self.clock.monotonic()) {
            let local = self.local.swap(None);
            // Freeing a full store takes long, and no request should wait for it, unless no thread can start.
            let _ = std::thread::Builder::new().name("free".into()).spawn(move || drop(local));
        }
    }
}

impl<S: Store, C: Clock + Monotonic + Clone> Store for Guard<S, C> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S, C>> {
        let (first, policy) = (answers.len(), batch.on_failure.unwrap_or(self.options.on_failure));
        let batch = Batch { on_failure: Some(policy), ..batch };
        let Some(waiting) = self.inner.start(batch, answers) else {
            self.check(&batch, &mut answers[first..]);
            return None;
        };
        Some(waiting.map(move |mut answers| {
            self.check(&batch, &mut answers);
            answers
        }))
    }
}

impl<S: States, C: Clock + Monotonic + Clone> States for Guard<S, C> {
    /// Returns errors of the inner store as they are, whatever the policy.
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        self.inner.read(key, spans, timeout).await
    }

    fn read_local(&self, key: StateKey<'_>) -> Option<(Arc<Plan>, KeyState)> {
        let (local, plan) = (self.local.load_full()?, self.share(key.plan));
        let state = local.read_now(StateKey { plan: &plan, ..key }, &[]);
        state.limits.iter().any(|limit| limit.used > 0).then_some((plan, state))
    }

    /// Resets the local count of an outage too, also if the inner store fails.
    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        let reset = self.inner.reset(key, timeout).await;
        if let Some(local) = &*self.local.load() {
            let plan = self.share(key.plan);
            local.reset_now(StateKey { plan: &plan, ..key });
        }
        reset
    }

    /// What a policy decides has the time of the guard, and is undone by nothing.
    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let granted = self.inner.grant(batch).await;
        let mut answer = [Grant::answer(&granted)];
        self.check(batch, &mut answer);
        let [answer] = answer;
        granted.or_else(|_| {
            let now = self.clock.now();
            answer.map(|decision| Grant { decision, undos: Vec::new(), now })
        })
    }
}

/// Charges since the start, and those that the store failed to answer.
#[derive(Debug, Default)]
pub struct FailureCounts {
    charges: AtomicU64,
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
    failed: [AtomicU64; StoreError::ALL.len()],
}

/// Failures with less than [`QUIET`] between them.
#[derive(Debug, Default)]
struct Outage {
    /// When a charge last failed; 0 if there is no outage.
    last: AtomicU64,
    /// When a charge last failed because of the store and not of its caller's deadline; 0 if no end is to be logged.
    last_by_store: AtomicU64,
    warnings: Throttle,
    /// Charges that failed because of the store in this outage.
    failed: AtomicU64,
}

impl FailureCounts {
    /// All charges.
    pub fn charges(&self) -> u64 {
        self.charges.load(Relaxed)
    }

    /// Charges answered by a policy.
    pub fn degraded(&self, policy: OnStoreFailure) -> u64 {
        self.degraded[policy as usize].load(Relaxed)
    }

    /// Charges that failed with an error.
    pub fn failed(&self, kind: StoreError) -> u64 {
        self.failed[kind as usize].load(Relaxed)
    }

    fn count(&self, policy: OnStoreFailure, kind: StoreError) {
        self.degraded[policy as usize].fetch_add(1, Relaxed);
        self.failed[kind as usize].fetch_add(1, Relaxed);
    }
}

impl Outage {
    fn is_active(&self) -> bool {
        self.last.load(Relaxed) > 0
    }

    /// Records that `charges` failed, at least one of them with `kind`. If that is to be logged, returns how often it
    /// was not. Callers' deadlines are not logged: callers could fill the log with them, and the store may be healthy.
    fn fail(&self, now: Micros, charges: u64, kind: StoreError) -> Option<u64> {
        self.last.fetch_max(now.max(1), Relaxed);
        if kind == StoreError::CallerDeadline {
            return None;
        }
        self.last_by_store.fetch_max(now.max(1), Relaxed);
        self.failed.fetch_add(charges, Relaxed);
        self.warnings.pass()
    }

    /// Returns whether the store has failed a charge in the last [`QUIET`], and since its connections came up again,
    /// `recovered` ago.
    fn has_failed(&self, now: Micros, recovered: Option<Duration>) -> bool {
        let last = self.last_by_store.load(Relaxed);
        let failed = now.saturating_sub(last);
        let recovered = recovered.map_or(QUIET, |ago| ago.as_micros() as Micros);
        last > 0 && failed < QUIET.min(recovered)
    }

    /// Records that the store answered. Returns true to one caller if that ends the outage.
    fn end_if_over(&self, now: Micros) -> bool {
        // A thread that loses the race was overtaken by another one, or by a failure.
        let is_over = |last: &AtomicU64| {
            let since = last.load(Relaxed);
            since > 0
                && now.saturating_sub(since) >= QUIET
                && last.compare_exchange(since, 0, Relaxed, Relaxed).is_ok()
        };
        if is_over(&self.last_by_store) {
            let failed_charges = self.failed.swap(0, Relaxed);
            let quiet_seconds = QUIET / SECOND;
            tracing::info!(failed_charges, quiet_seconds, "store answers again");
        }
        is_over(&self.last)
    }
}

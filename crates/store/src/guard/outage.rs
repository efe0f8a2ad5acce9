//! Failures of the store: how many there were, and whether they are an outage.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{OnStoreFailure, StoreError};
use weir_common::throttle::Throttle;
use weir_limit::{Micros, SECOND};

/// How long the store must answer without a failure for an outage to be over.
pub(super) const QUIET: Micros = 10 * SECOND;

/// How often failures are logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Charges since the start, and those that the store failed to answer.
#[derive(Debug, Default)]
pub struct FailureCounts {
    charges: AtomicU64,
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
    failed: [AtomicU64; StoreError::ALL.len()],
}

/// Failures with less than [`QUIET`] between them.
#[derive(Debug)]
pub(super) struct Outage {
    /// When a charge last failed; 0 if there is no outage.
    last: AtomicU64,
    /// When a charge last failed because of the store and not of its caller's deadline; 0 if there is
    /// no outage whose end is to be logged.
    last_by_store: AtomicU64,
    /// When the first charge failed because of the store.
    began: AtomicU64,
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

    /// Charges that failed with this error.
    pub fn failed(&self, kind: StoreError) -> u64 {
        self.failed[kind as usize].load(Relaxed)
    }

    pub(super) fn add_charges(&self, charges: usize) {
        self.charges.fetch_add(charges as u64, Relaxed);
    }

    pub(super) fn count(&self, policy: OnStoreFailure, kind: StoreError) {
        self.degraded[policy as usize].fetch_add(1, Relaxed);
        self.failed[kind as usize].fetch_add(1, Relaxed);
    }
}

impl Default for Outage {
    fn default() -> Self {
        Outage {
            last: AtomicU64::new(0),
            last_by_store: AtomicU64::new(0),
            began: AtomicU64::new(0),
            warnings: Throttle::new(LOG_INTERVAL),
            failed: AtomicU64::new(0),
        }
    }
}

impl Outage {
    /// Returns whether there is an outage whose end has not been noticed.
    pub(super) fn is_active(&self) -> bool {
        self.last.load(Relaxed) > 0
    }

    /// Records that `charges` failed, at least one of them with `kind`. If that is to be logged, returns how often it
    /// was not. Callers' deadlines are not logged: callers could fill the log with them, and the store may be healthy.
    pub(super) fn fail(&self, now: Micros, charges: u64, kind: StoreError) -> Option<u64> {
        self.last.fetch_max(now.max(1), Relaxed);
        if kind == StoreError::CallerDeadline {
            return None;
        }
        let last = self.last_by_store.fetch_max(now.max(1), Relaxed);
        if last == 0 || now.saturating_sub(last) >= QUIET {
            self.began.store(now, Relaxed);
        }
        self.failed.fetch_add(charges, Relaxed);
        self.warnings.pass()
    }

    /// Returns how long the store has failed charges; none if it has not failed one for [`QUIET`], or since its
    /// connections came up again, `recovered` ago.
    pub(super) fn lasts(&self, now: Micros, recovered: Option<Duration>) -> Option<Duration> {
        let last = self.last_by_store.load(Relaxed);
        let failed = now.saturating_sub(last);
        let recovered = recovered.map_or(QUIET, |ago| ago.as_micros() as Micros);
        let is_active = last > 0 && failed < QUIET.min(recovered);
        is_active.then(|| Duration::from_micros(now.saturating_sub(self.began.load(Relaxed))))
    }

    /// Records that the store answered. Returns true to one caller if that ends the outage.
    pub(super) fn end_if_over(&self, now: Micros) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_of_callers_are_not_failures_of_the_store() {
        let outage = Outage::default();
        let fail = |now, kind| outage.fail(now, 1, kind);
        fail(SECOND, StoreError::CallerDeadline);
        assert_eq!((outage.last_by_store.load(Relaxed), outage.failed.load(Relaxed)), (0, 0));
        assert!(
            outage.is_active() && !outage.end_if_over(QUIET),
            "what is counted locally is kept"
        );
        assert_eq!(outage.lasts(SECOND, None), None);
        fail(2 * SECOND, StoreError::TimedOut);
        fail(3 * SECOND, StoreError::TimedOut);
        let lasts = |now, recovered| outage.lasts(now, recovered);
        assert_eq!(lasts(5 * SECOND, None), Some(Duration::from_secs(3)));
        assert_eq!(lasts(3 * SECOND + QUIET, None), None);
        // Its connections came up before the last failure, or after it.
        let ago = |ms| Some(Duration::from_millis(ms));
        assert_eq!(lasts(5 * SECOND, ago(2_001)), Some(Duration::from_secs(3)));
        assert_eq!(lasts(5 * SECOND, ago(1_999)), None);
        fail(QUIET, StoreError::CallerDeadline);
        assert_eq!(outage.failed.load(Relaxed), 2);
        assert!(!outage.end_if_over(3 * SECOND + QUIET));
        assert_eq!(outage.failed.load(Relaxed), 0, "its end is logged");
        assert!(outage.end_if_over(2 * QUIET) && !outage.is_active());
    }

    #[test]
    fn an_outage_ends_once_and_only_after_quiet() {
        let outage = Outage::default();
        assert!(!outage.is_active() && !outage.end_if_over(QUIET));
        outage.fail(SECOND, 1, StoreError::TimedOut);
        assert!(outage.is_active() && !outage.end_if_over(SECOND + QUIET - 1));
        assert!(outage.end_if_over(SECOND + QUIET));
        assert!(!outage.is_active() && !outage.end_if_over(SECOND + QUIET));
    }
}

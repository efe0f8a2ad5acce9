//! How long the store has been failing, and what the log says of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::{OnStoreFailure, StoreError};
use crate::limit::{Micros, SECOND};
use crate::throttle::Throttle;

/// How long the store must answer without failing for a outage of failures to be over.
pub(super) const QUIET: Micros = 10 * SECOND;

/// At most one warning in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Failures that lie close together.
#[derive(Debug)]
pub(super) struct Outage {
    /// When a charge failed last; 0: there is no outage.
    last: AtomicU64,
    /// When one last failed because of the store, and not because of its caller's deadline; 0: there
    /// is no end to log.
    unwell: AtomicU64,
    warnings: Throttle,
    /// Failures of the store in this outage.
    failed: AtomicU64,
}

impl Default for Outage {
    fn default() -> Self {
        Outage {
            last: AtomicU64::new(0),
            unwell: AtomicU64::new(0),
            warnings: Throttle::new(WARN_EVERY),
            failed: AtomicU64::new(0),
        }
    }
}

impl Outage {
    /// Whether the store has failed and nobody has noticed yet that it is well again.
    pub(super) fn lasts(&self) -> bool {
        self.last.load(Relaxed) > 0
    }

    /// Notes that `charges` failed, at least one of them as `kind`. Callers' deadlines are not logged:
    /// callers could fill the log with them, and the store may be well.
    pub(super) fn fail(
        &self,
        now: Micros,
        charges: u64,
        policy: OnStoreFailure,
        kind: StoreError,
        domain: &str,
    ) {
        self.last.fetch_max(now.max(1), Relaxed);
        if kind == StoreError::CallerDeadline {
            return;
        }
        self.unwell.fetch_max(now.max(1), Relaxed);
        self.failed.fetch_add(charges, Relaxed);
        if let Some(suppressed) = self.warnings.pass() {
            let policy = policy.name();
            tracing::warn!(policy, domain, error = %kind, suppressed, "store failed");
        }
    }

    /// The store answered. Whether that ends the outage: true for one of those who ask.
    pub(super) fn ends(&self, now: Micros) -> bool {
        // Who loses the race was overtaken by another, or by a failure.
        let is_over = |last: &AtomicU64| {
            let since = last.load(Relaxed);
            since > 0
                && now.saturating_sub(since) >= QUIET
                && last.compare_exchange(since, 0, Relaxed, Relaxed).is_ok()
        };
        if is_over(&self.unwell) {
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
    fn callers_deadlines_are_no_failures_of_the_store() {
        let outage = Outage::default();
        let fail = |now, kind| outage.fail(now, 1, OnStoreFailure::Local, kind, "d");
        fail(SECOND, StoreError::CallerDeadline);
        assert_eq!((outage.unwell.load(Relaxed), outage.failed.load(Relaxed)), (0, 0));
        assert!(outage.lasts() && !outage.ends(QUIET), "what is counted locally is kept");
        fail(2 * SECOND, StoreError::TimedOut);
        fail(QUIET, StoreError::CallerDeadline);
        assert_eq!(outage.failed.load(Relaxed), 1);
        assert!(!outage.ends(2 * SECOND + QUIET));
        assert_eq!(outage.failed.load(Relaxed), 0, "its end is logged");
        assert!(outage.ends(2 * QUIET) && !outage.lasts());
    }

    #[test]
    fn an_outage_ends_once_and_only_after_quiet() {
        let outage = Outage::default();
        assert!(!outage.lasts() && !outage.ends(QUIET));
        outage.fail(SECOND, 1, OnStoreFailure::Deny, StoreError::TimedOut, "d");
        assert!(outage.lasts() && !outage.ends(SECOND + QUIET - 1));
        assert!(outage.ends(SECOND + QUIET));
        assert!(!outage.lasts() && !outage.ends(SECOND + QUIET));
    }
}

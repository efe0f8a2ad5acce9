//! Readiness, status and metrics of a store behind a guard, which answers by policy when that store fails.

use super::Guard;
use crate::error::StoreError;
use crate::operations::{BackendStatus, FailureStatus, Operations, StoreStatus};
use weir_common::clock::{Clock, Monotonic};
use weir_common::failure::OnStoreFailure;
use weir_common::metric_families;
use weir_common::metrics::MetricSink;

metric_families! {
    DEGRADED_CHARGES: counter("store_degraded_charges", &["policy"])
        = "Charges that the store failed to answer, by the policy that answered";
    FAILED_CHARGES: counter("store_failed_charges", &["reason"]) = "Charges that the store failed to answer, by reason";
    OUTAGE: gauge("store_outage", &[])
        = "Whether charges failed in the last ten seconds, or the store cannot be reached";
    REPLICAS: gauge("store_replicas", &[]) = "Replicas among which the policy local divides limits";
}

impl<S: Operations, C: Clock + Monotonic + Clone> Operations for Guard<S, C> {
    fn inner(&self) -> Option<&dyn Operations> {
        Some(&self.inner)
    }

    /// With any policy but `error`, requests get answers without the inner store.
    fn is_ready(&self) -> bool {
        self.options.on_failure != OnStoreFailure::Error || self.inner.is_ready()
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        let degraded = |policy: OnStoreFailure| (policy.name(), self.counts.degraded(policy));
        sink.counters(DEGRADED_CHARGES, OnStoreFailure::ALL.map(degraded));
        let failed = |kind: StoreError| (kind.name(), self.counts.failed(kind));
        sink.counters(FAILED_CHARGES, StoreError::ALL.map(failed));
        let mut status = StoreStatus::default();
        self.inner.status(&mut status);
        sink.gauge(OUTAGE, f64::from(self.is_failing(&status.backends)));
        sink.gauge(REPLICAS, f64::from(self.options.replicas));
        self.inner.collect(sink);
    }

    fn status(&self, status: &mut StoreStatus) {
        self.inner.status(status);
        let degraded = OnStoreFailure::ALL;
        status.failures = Some(FailureStatus {
            on_failure: self.options.on_failure.name(),
            charges: self.counts.charges(),
            failed: StoreError::ALL.map(|kind| (kind, self.counts.failed(kind))),
            degraded: degraded.map(|policy| (policy.name(), self.counts.degraded(policy))).to_vec(),
        });
    }
}

impl<S: Operations, C: Monotonic> Guard<S, C> {
    /// Returns whether the store fails charges, or cannot be reached: until it can be, and no charge has failed for
    /// ten seconds, or since its connections came up again.
    fn is_failing(&self, backends: &[BackendStatus]) -> bool {
        let is_up =
            |backend: &BackendStatus| backend.connections_down + backend.connections_slow == 0;
        let recovered = backends.iter().filter_map(|backend| backend.up_for).min();
        let recovered = recovered.filter(|_| backends.iter().all(is_up));
        let is_down = |backend: &BackendStatus| backend.down_because.is_some();
        self.outage.has_failed(self.clock.monotonic(), recovered)
            || backends.iter().any(is_down) && !self.inner.is_connected()
    }
}

//! Readiness under a policy, and metrics.

use super::{Guard, kind_name};
use crate::clock::{Clock, Monotonic};
use crate::store::{
    FailureStatus, MetricFamilies, OnStoreFailure, Operations, StoreError, StoreStatus,
};

impl<S: Operations, C: Clock + Monotonic + Clone> Operations for Guard<S, C> {
    async fn connect(&self) {
        self.inner.connect().await;
    }

    /// With any policy but `error`, requests get answers without the inner store.
    fn is_ready(&self) -> bool {
        self.on_failure != OnStoreFailure::Error || self.inner.is_ready()
    }

    fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    async fn maintain(&self) {
        self.inner.maintain().await;
    }

    fn collect(&self, families: &mut MetricFamilies) {
        let help = "Charges that the store failed to answer, by the policy that answered";
        for policy in OnStoreFailure::ALL {
            let labels = [("policy", policy.name())];
            families.counter("store_degraded_charges", help, &labels, self.counts.degraded(policy));
        }
        let help = "Charges that the store failed to answer, by reason";
        for kind in StoreError::ALL {
            let labels = [("reason", kind_name(kind))];
            families.counter("store_failed_charges", help, &labels, self.counts.failed(kind));
        }
        self.inner.collect(families);
    }

    fn status(&self, status: &mut StoreStatus) {
        self.inner.status(status);
        let degraded = OnStoreFailure::ALL;
        status.failures = Some(FailureStatus {
            on_failure: self.on_failure.name(),
            is_failing: self.outage.is_active(),
            degraded: degraded.map(|it| (it.name(), self.counts.degraded(it))).to_vec(),
        });
    }
}

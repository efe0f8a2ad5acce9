//! Readiness under a policy, and metrics.

use super::{Guard, kind_name};
use crate::{FailureStatus, OnStoreFailure, Operations, StoreError, StoreStatus};
use weir_common::clock::{Clock, Monotonic};
use weir_common::metrics::{MetricFamily, MetricSink, SampleValue};

const DEGRADED_CHARGES: MetricFamily = MetricFamily::counter(
    "store_degraded_charges",
    "Charges that the store failed to answer, by the policy that answered",
    &["policy"],
);
const FAILED_CHARGES: MetricFamily = MetricFamily::counter(
    "store_failed_charges",
    "Charges that the store failed to answer, by reason",
    &["reason"],
);
const OUTAGE: MetricFamily = MetricFamily::gauge(
    "store_outage",
    "Whether charges failed and the store has not answered for ten seconds without a failure since",
    &[],
);

impl<S: Operations, C: Clock + Monotonic + Clone> Operations for Guard<S, C> {
    fn inner(&self) -> Option<&dyn Operations> {
        Some(&self.inner)
    }

    /// With any policy but `error`, requests get answers without the inner store.
    fn is_ready(&self) -> bool {
        self.on_failure != OnStoreFailure::Error || self.inner.is_ready()
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.family(DEGRADED_CHARGES);
        for policy in OnStoreFailure::ALL {
            let count = SampleValue::Counter(self.counts.degraded(policy));
            sink.sample(&[("policy", policy.name())], count);
        }
        sink.family(FAILED_CHARGES);
        for kind in StoreError::ALL {
            let count = SampleValue::Counter(self.counts.failed(kind));
            sink.sample(&[("reason", kind_name(kind))], count);
        }
        sink.gauge(OUTAGE, f64::from(self.outage.is_active()));
        self.inner.collect(sink);
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

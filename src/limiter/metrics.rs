//! The metrics of requests, and of the store.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Limiter;
use crate::metrics::{MetricFamily, MetricSink, MetricSource, SampleValue};
use crate::store::Operations;

/// Counts of requests, besides the counts of each rule. A request has one outcome.
#[derive(Debug, Default)]
pub struct LimiterCounts {
    /// Requests answered as within their limits.
    pub ok: AtomicU64,
    /// Requests answered as over their limit.
    pub over_limit: AtomicU64,
    /// Invalid requests rejected.
    pub invalid: AtomicU64,
    /// Requests that got an error because the store failed.
    pub store_error: AtomicU64,
    /// Descriptors whose domain has no rules.
    pub domain_not_found: AtomicU64,
    /// Requests over their limit that the global shadow mode let pass.
    pub global_shadow_mode: AtomicU64,
}

const REQUESTS: MetricFamily =
    MetricFamily::counter("requests", "Requests for a decision, by outcome", &["outcome"]);
const DOMAIN_NOT_FOUND: MetricFamily =
    MetricFamily::counter("domain_not_found", "Descriptors whose domain has no rules", &[]);
const GLOBAL_SHADOW_MODE: MetricFamily = MetricFamily::counter(
    "global_shadow_mode",
    "Requests over their limit passed by the global shadow mode",
    &[],
);

impl<S: Operations + Debug> MetricSource for Limiter<S> {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let counts = &self.counts;
        sink.family(REQUESTS);
        for (outcome, count) in [
            ("ok", &counts.ok),
            ("over_limit", &counts.over_limit),
            ("invalid", &counts.invalid),
            ("store_error", &counts.store_error),
        ] {
            let count = SampleValue::Counter(count.load(Ordering::Relaxed));
            sink.sample(&[("outcome", outcome)], count);
        }
        sink.counter(DOMAIN_NOT_FOUND, counts.domain_not_found.load(Ordering::Relaxed));
        sink.counter(GLOBAL_SHADOW_MODE, counts.global_shadow_mode.load(Ordering::Relaxed));
        self.store.collect(sink);
    }
}

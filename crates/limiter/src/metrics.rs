//! Counts of requests by outcome and of unknown domains, and their metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_common::metric_families;
use weir_common::metrics::{MetricSink, OTHER, SampleValue, SeriesLimit, SeriesMap};

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
    pub domain_not_found: DomainCounts,
    /// Requests over their limit that the global shadow mode let pass.
    pub global_shadow_mode: AtomicU64,
    /// Requests within their limits that would be over one but for the shadow mode of a rule or a limit.
    pub rule_shadow_mode: AtomicU64,
    /// Descriptors that an operator's control blocks, allows, or gives another limit.
    pub controlled: [AtomicU64; 3],
    /// Descriptors that a block matches and does not deny, because of an exception in it.
    pub spared: AtomicU64,
    /// Refunds to rules with `reserve`, which do nothing.
    pub ignored_refunds: AtomicU64,
}

impl LimiterCounts {
    /// Creates counts, of up to `max_series` unknown domains.
    pub fn new(max_series: usize) -> LimiterCounts {
        let counts = LimiterCounts::default();
        counts.domain_not_found.limit.set_max(max_series);
        counts
    }

    pub(super) fn collect(&self, sink: &mut dyn MetricSink) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let outcomes = [
            ("ok", &self.ok),
            ("over_limit", &self.over_limit),
            ("invalid", &self.invalid),
            ("store_error", &self.store_error),
        ];
        sink.counters(REQUESTS, outcomes.map(|(outcome, count)| (outcome, get(count))));
        self.domain_not_found.collect(sink);
        sink.counter(GLOBAL_SHADOW_MODE, get(&self.global_shadow_mode));
        sink.counter(IGNORED_REFUNDS, get(&self.ignored_refunds));
        let controlled = ["block", "allow", "limit"].into_iter().zip(&self.controlled);
        sink.counters(CONTROLLED, controlled.map(|(action, count)| (action, get(count))));
        sink.counter(SPARED, get(&self.spared));
    }
}

/// Counts by a domain that clients choose.
#[derive(Debug)]
pub struct DomainCounts {
    limit: Arc<SeriesLimit<AtomicU64>>,
    domains: SeriesMap<AtomicU64>,
}

impl Default for DomainCounts {
    fn default() -> DomainCounts {
        let limit = Arc::new(SeriesLimit::default());
        DomainCounts { domains: SeriesMap::new(limit.clone()), limit }
    }
}

impl DomainCounts {
    pub(super) fn add(&self, domain: &str, count: u64) {
        self.domains.update(domain, |counter| {
            counter.fetch_add(count, Ordering::Relaxed);
        });
    }

    /// Returns the count of each domain, in order, but of those beyond the cap.
    pub fn counts(&self) -> Vec<(Arc<str>, u64)> {
        self.domains.snapshot(|count| count.load(Ordering::Relaxed))
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.family(DOMAIN_NOT_FOUND);
        for (domain, count) in self.counts() {
            sink.sample(&[("domain", &domain)], SampleValue::Counter(count));
        }
        let other = self.limit.other.load(Ordering::Relaxed);
        if other > 0 {
            sink.sample(&[("domain", OTHER)], SampleValue::Counter(other));
        }
    }
}

metric_families! {
    REQUESTS: counter("requests", &["outcome"]) = "Requests for a decision, by outcome";
    DOMAIN_NOT_FOUND: counter("domain_not_found", &["domain"]) = "Descriptors whose domain has no rules";
    GLOBAL_SHADOW_MODE: counter("global_shadow_mode", &[])
        = "Requests over their limit passed by the global shadow mode";
    IGNORED_REFUNDS: counter("ignored_refunds", &[])
        = "Descriptors with negative hits for a rule with `reserve`, where they do nothing";
    CONTROLLED: counter("controlled_descriptors", &["action"])
        = "Descriptors that a control decided, or whose limit it changed, by action";
    SPARED: counter("spared_descriptors", &[]) = "Descriptors that a block matches, of requests that it spares";
}

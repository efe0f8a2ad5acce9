//! The metrics of quotas.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_common::metric_families;
use weir_common::metrics::MetricSink;

metric_families! {
    STREAMS: gauge("rlqs_streams", &[]) = "Open streams of Envoys that are granted hits ahead of time";
    BUCKETS: gauge("rlqs_buckets", &[]) = "Buckets of these streams";
    GRANTED: counter("rlqs_granted_hits", &[]) = "Hits granted to Envoys ahead of time";
    REPORTED: counter("rlqs_reported_hits", &["result"]) = "Requests that Envoys have reported, by result";
    RETURNED: counter("rlqs_returned_hits", &[]) = "Granted hits that Envoys will not use, returned to the store";
    EXCESS: counter("rlqs_excess_hits", &[]) = "Hits that Envoys have admitted beyond what they were granted";
    UNSUPPORTED: counter("rlqs_unsupported_reports", &[])
        = "Reports of buckets whose rules cannot be divided among Envoys";
}

/// Counts since the start, and the buckets now.
#[derive(Debug, Default)]
pub(crate) struct QuotaCounts {
    pub buckets: AtomicU64,
    pub granted: AtomicU64,
    pub admitted: AtomicU64,
    pub denied: AtomicU64,
    pub returned: AtomicU64,
    pub excess: AtomicU64,
    pub unsupported: AtomicU64,
}

/// Adds to a count, of which the sum stays far from its end.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl QuotaCounts {
    pub fn collect(&self, streams: usize, sink: &mut dyn MetricSink) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        sink.gauge(STREAMS, streams as f64);
        sink.gauge(BUCKETS, get(&self.buckets) as f64);
        sink.counter(GRANTED, get(&self.granted));
        let results = [("admitted", get(&self.admitted)), ("denied", get(&self.denied))];
        sink.counters(REPORTED, results);
        sink.counter(RETURNED, get(&self.returned));
        sink.counter(EXCESS, get(&self.excess));
        sink.counter(UNSUPPORTED, get(&self.unsupported));
    }
}

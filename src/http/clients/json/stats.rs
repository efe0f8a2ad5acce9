//! The latencies of `/json`.

use std::time::Duration;

use weir_common::metrics::{Histogram, MetricFamily, MetricSink, MetricSource};
use weir_common::spans::TraceIds;

/// The latencies of requests.
#[derive(Debug)]
pub struct JsonStats {
    durations: Histogram,
}

/// The bounds of latencies, in microseconds.
const LATENCY_BOUNDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 10_000_000,
];

const REQUESTS: MetricFamily =
    MetricFamily::counter("json_requests", "Requests to /json that were answered", &[]);
const DURATION: MetricFamily = MetricFamily::histogram(
    "json_request_duration_seconds",
    "Time from receiving the head of a request to /json to its response",
    &[],
);

impl Default for JsonStats {
    fn default() -> JsonStats {
        JsonStats { durations: Histogram::new(LATENCY_BOUNDS, 1e6).with_exemplars() }
    }
}

impl JsonStats {
    /// Records the duration of one request, with the ids of its span if it is recorded.
    pub fn record(&self, duration: Duration, ids: Option<TraceIds>) {
        let micros = duration.as_micros() as u64;
        self.durations.record(micros);
        if let Some(ids) = ids {
            self.durations.set_exemplar(micros, ids);
        }
    }
}

impl MetricSource for JsonStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let durations = self.durations.snapshot();
        sink.counter(REQUESTS, durations.count());
        sink.histogram(DURATION, &durations);
    }
}

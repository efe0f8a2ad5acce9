//! The latencies of `/json` and `/v1/budget`.

use std::time::Duration;

use super::Method;
use weir_common::metrics::{Histogram, MetricFamily, MetricSink, MetricSource, SampleValue};
use weir_common::spans::TraceIds;

/// The latencies of requests.
#[derive(Debug)]
pub struct JsonStats {
    durations: Histogram,
    /// The latencies of each of [`Method::BUDGET`], in its order.
    budget: [Histogram; Method::BUDGET.len()],
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
const BUDGET_DURATION: MetricFamily = MetricFamily::histogram(
    "budget_request_duration_seconds",
    "Time from receiving the head of a request to /v1/budget to its response, by path",
    &["path"],
);

impl Default for JsonStats {
    fn default() -> JsonStats {
        let latencies = || Histogram::new(LATENCY_BOUNDS, 1e6).with_exemplars();
        JsonStats { durations: latencies(), budget: Method::BUDGET.map(|_| latencies()) }
    }
}

impl JsonStats {
    /// Records the duration of one request, with the ids of its span if it is recorded.
    pub(super) fn record(&self, method: Method, duration: Duration, ids: Option<TraceIds>) {
        let budget = Method::BUDGET.iter().position(|counted| *counted == method);
        let durations = budget.and_then(|at| self.budget.get(at)).unwrap_or(&self.durations);
        let micros = duration.as_micros() as u64;
        durations.record(micros);
        if let Some(ids) = ids {
            durations.set_exemplar(micros, ids);
        }
    }
}

impl MetricSource for JsonStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let durations = self.durations.snapshot();
        sink.counter(REQUESTS, durations.count());
        sink.histogram(DURATION, &durations);
        sink.family(BUDGET_DURATION);
        for (method, durations) in Method::BUDGET.iter().zip(&self.budget) {
            let labels = [("path", method.path())];
            sink.sample(&labels, SampleValue::Histogram(&durations.snapshot()));
        }
    }
}

//! Counts and latencies of calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::refused::RefusedCounts;
use weir_common::metrics::{
    Histogram, HistogramSnapshot, MetricFamily, MetricSink, MetricSource, SampleValue,
    UNKNOWN_METHOD,
};

/// The bounds of latencies, in microseconds.
const LATENCY_BOUNDS: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

const REQUESTS: MetricFamily =
    MetricFamily::counter("grpc_requests", "gRPC requests answered, by method", &["method"]);
const DURATION: MetricFamily = MetricFamily::histogram(
    "request_duration_seconds",
    "Time from receiving a gRPC request to its response, by method",
    &["method"],
);

/// The methods that are served besides ShouldRateLimit, by their paths; all further ones count together.
const METHODS: [(&str, &str); 8] = [
    ("/grpc.health.v1.Health/Check", "Check"),
    ("/grpc.health.v1.Health/List", "List"),
    ("/weir.budget.v1.BudgetService/Reserve", "Reserve"),
    ("/weir.budget.v1.BudgetService/Settle", "Settle"),
    ("/weir.budget.v1.BudgetService/Cancel", "Cancel"),
    ("/grpc.health.v1.Health/Watch", "Watch"),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "ServerReflectionInfo"),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "ServerReflectionInfo"),
];

/// How many of [`METHODS`] have one response, whose time says something.
const UNARY: usize = 5;

#[derive(Debug)]
pub struct GrpcStats {
    pub(super) should_rate_limit: Histogram,
    unary: [Histogram; UNARY],
    streams: [AtomicU64; METHODS.len() - UNARY],
    unknown: AtomicU64,
    pub(super) refused: RefusedCounts,
}

/// A method other than `ShouldRateLimit`, as an index into [`METHODS`] if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherMethod(Option<usize>);

impl OtherMethod {
    pub fn of(path: &str) -> OtherMethod {
        OtherMethod(METHODS.iter().position(|(known, _)| *known == path))
    }

    /// Returns the full name, if it is known.
    pub fn full_name(self) -> Option<&'static str> {
        METHODS.get(self.0?)?.0.strip_prefix('/')
    }
}

impl Default for GrpcStats {
    fn default() -> GrpcStats {
        let latencies = || Histogram::new(LATENCY_BOUNDS, 1e6);
        GrpcStats {
            should_rate_limit: latencies().with_exemplars(),
            unary: std::array::from_fn(|_| latencies()),
            streams: std::array::from_fn(|_| AtomicU64::new(0)),
            unknown: AtomicU64::new(0),
            refused: RefusedCounts::default(),
        }
    }
}

impl GrpcStats {
    /// Returns how long calls of `ShouldRateLimit` took, in seconds.
    pub fn should_rate_limit(&self) -> HistogramSnapshot {
        self.should_rate_limit.snapshot()
    }

    /// Counts a call that tonic began to answer after `elapsed`.
    pub(super) fn count_other(&self, method: OtherMethod, elapsed: Duration) {
        let unary = method.0.and_then(|index| self.unary.get(index));
        let stream = method.0.and_then(|index| self.streams.get(index.checked_sub(UNARY)?));
        if let Some(latencies) = unary {
            latencies.record(elapsed.as_micros() as u64);
        } else {
            stream.unwrap_or(&self.unknown).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl MetricSource for GrpcStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let names = METHODS.iter().map(|(_, name)| *name);
        let unary = names.clone().zip(&self.unary).map(|(name, times)| (name, times.snapshot()));
        let durations: Vec<_> = [("ShouldRateLimit", self.should_rate_limit.snapshot())]
            .into_iter()
            .chain(unary)
            .collect();
        let reflection: u64 =
            self.streams.iter().skip(1).map(|count| count.load(Ordering::Relaxed)).sum();
        let watch = self.streams.first().map_or(0, |count| count.load(Ordering::Relaxed));
        sink.family(REQUESTS);
        let durations_counts = durations.iter().map(|(method, times)| (*method, times.count()));
        let others = [
            ("Watch", watch),
            ("ServerReflectionInfo", reflection),
            (UNKNOWN_METHOD, self.unknown.load(Ordering::Relaxed)),
        ];
        for (method, count) in durations_counts.chain(others) {
            sink.sample(&[("method", method)], SampleValue::Counter(count));
        }
        self.refused.collect(sink);
        sink.family(DURATION);
        for (method, times) in &durations {
            sink.sample(&[("method", method)], SampleValue::Histogram(times));
        }
    }
}

//! Metrics of the gRPC port: counts and latencies of calls by method, and what was refused, which is also logged.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_common::metric_families;
use weir_common::metrics::{
    Counter, Histogram, MetricSink, MetricSource, SampleValue, UNKNOWN_METHOD,
};
use weir_common::named_enum;
use weir_common::throttle::Throttles;

metric_families! {
    REQUESTS: counter("grpc_requests", &["method"]) = "gRPC requests answered, by method";
    DURATION: histogram("request_duration_seconds", &["method"])
        = "Time from receiving a gRPC request to its response, by method";
    REFUSED: counter("grpc_refused", &["reason"])
        = "Connections and calls that are not gRPC calls of a served method, by reason";
}

/// The interval of log lines about what one client address sends and is refused.
const REFUSED_LOG_INTERVAL: Duration = Duration::from_secs(3_600);

/// The methods that are served besides ShouldRateLimit, by their paths; all further ones count together.
const METHODS: [(&str, &str); 9] = [
    ("/grpc.health.v1.Health/Check", "Check"),
    ("/grpc.health.v1.Health/List", "List"),
    ("/weir.budget.v1.BudgetService/Reserve", "Reserve"),
    ("/weir.budget.v1.BudgetService/Settle", "Settle"),
    ("/weir.budget.v1.BudgetService/Cancel", "Cancel"),
    ("/grpc.health.v1.Health/Watch", "Watch"),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "ServerReflectionInfo"),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "ServerReflectionInfo"),
    (STREAM_QUOTAS, "StreamRateLimitQuotas"),
];

/// The path of the method by which Envoys are granted quotas.
pub(super) const STREAM_QUOTAS: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// How many of [`METHODS`], from the first, are unary: their latency is recorded. Of streams it means nothing.
const UNARY: usize = 5;

#[derive(Debug)]
pub struct GrpcStats {
    pub(super) should_rate_limit: Histogram,
    unary: [Histogram; UNARY],
    streams: [AtomicU64; METHODS.len() - UNARY],
    unknown: AtomicU64,
    refused: [Counter; Refused::ALL.len()],
    refused_log: Throttles<(Refused, Option<IpAddr>)>,
}

named_enum! {
    /// Why a connection or a call is refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(super) enum Refused, reason {
        Http1 = "http1",
        ContentType = "content_type",
        Method = "unknown_method",
    }
}

/// A method other than `ShouldRateLimit`, as an index into [`METHODS`] if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherMethod(Option<usize>);

impl OtherMethod {
    pub fn of(path: &str) -> OtherMethod {
        OtherMethod(METHODS.iter().position(|(known, _)| *known == path))
    }

    pub fn full_name(self) -> Option<&'static str> {
        METHODS.get(self.0?)?.0.strip_prefix('/')
    }
}

impl Default for GrpcStats {
    fn default() -> GrpcStats {
        GrpcStats {
            should_rate_limit: Histogram::default(),
            unary: Default::default(),
            streams: std::array::from_fn(|_| AtomicU64::new(0)),
            unknown: AtomicU64::new(0),
            refused: Default::default(),
            refused_log: Throttles::new(REFUSED_LOG_INTERVAL),
        }
    }
}

impl GrpcStats {
    /// The latencies of the methods that decide: `ShouldRateLimit` and `Reserve`.
    pub fn decisions(&self) -> [&Histogram; 2] {
        let [_, _, reserve, ..] = &self.unary;
        [&self.should_rate_limit, reserve]
    }

    /// Counts what is refused, and logs what the client sent.
    pub(super) fn count_refused(&self, refused: Refused, peer: Option<SocketAddr>, received: &str) {
        self.refused[refused as usize].inc();
        let key = (refused, peer.map(|peer| peer.ip()));
        let Some(suppressed) = self.refused_log.pass(key) else { return };
        let peer = peer.map(tracing::field::display);
        match refused {
            Refused::Http1 => tracing::warn!(
                peer,
                received,
                suppressed,
                "an HTTP/1 client on the gRPC port: it needs HTTP/2, in Envoy http2_protocol_options"
            ),
            Refused::ContentType => {
                tracing::warn!(peer, received, suppressed, "a call on the gRPC port is not gRPC");
            }
            Refused::Method => {
                tracing::warn!(peer, received, suppressed, "a call of an unknown gRPC method");
            }
        }
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
        let [watch, v1, v1alpha, quotas] =
            self.streams.each_ref().map(|count| count.load(Ordering::Relaxed));
        let durations_counts = durations.iter().map(|(method, times)| (*method, times.count()));
        let others = [
            ("Watch", watch),
            ("ServerReflectionInfo", v1 + v1alpha),
            ("StreamRateLimitQuotas", quotas),
            (UNKNOWN_METHOD, self.unknown.load(Ordering::Relaxed)),
        ];
        sink.counters(REQUESTS, durations_counts.chain(others));
        let refused = Refused::ALL.iter().zip(&self.refused);
        sink.counters(REFUSED, refused.map(|(refused, count)| (refused.reason(), count.get())));
        sink.family(DURATION);
        for (method, times) in &durations {
            sink.sample(&[("method", method)], SampleValue::Histogram(times));
        }
    }
}

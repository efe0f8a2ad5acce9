//! `metrics`: what is counted, and where it is sent.

use std::path::PathBuf;
use std::time::Duration;

use super::group;
use crate::settings::format::{Address, Choice, Int, OptionalAddress, Ratio};

group! {
    /// Metrics.
    MetricsSettings {
        /// The fraction of a limit above which hits count as near the limit.
        near_limit_ratio: Ratio = "0.8";
        /// Series of each metric. All others are one, with the labels `other`.
        max_series: Int<usize, 1, 1_000_000> = "10_000";
        /// Whether nothing is sent to StatsD and DogStatsD, whatever enables them. DISABLE_STATS makes
        /// USE_PROMETHEUS false too; /metrics of the HTTP and the debug listener stays.
        disable_push: bool = "false";
        /// The time between two reports to StatsD or DogStatsD.
        flush_interval: Duration = "10s";
        /// Tags of all metrics that have the names of envoyproxy/ratelimit, each as name:value.
        tags: Vec<String> = "";
        // The reference's local cache is off by default, so that its users do not expect them; and one of its
        // mappings counts them twice.
        /// Whether hits that are denied without the store are a metric of their own under the names of
        /// envoyproxy/ratelimit: over_limit_with_local_cache.
        local_cache: bool = "false";
        group prometheus: PrometheusSettings;
        group statsd: StatsdSettings;
        group dogstatsd: DogStatsdSettings;
    }
}

group! {
    /// The listener for Prometheus.
    PrometheusSettings {
        /// Address of a listener that serves nothing but the metrics; empty: none. The metrics are also
        /// at /metrics of the HTTP and the debug listener. USE_PROMETHEUS alone sets :9090.
        address: OptionalAddress = "";
        /// The path of the metrics on that listener.
        path: String = "/metrics";
        /// Whether all pages have the metrics by the names of envoyproxy/ratelimit too. USE_PROMETHEUS sets
        /// it. The pages are then in OpenMetrics only for clients that accept nothing else, and without
        /// these names.
        reference_names: bool = "false";
        /// A file that maps the statistics of envoyproxy/ratelimit to metrics and labels, in the language of
        /// statsd_exporter; none: the names that envoyproxy/ratelimit has by default.
        mapper: Option<PathBuf> = "";
        /// Whether ratelimit_service_response_time_seconds is in milliseconds, without a mapper.
        response_time_as_milliseconds: bool = "false";
    }
}

/// The protocol that StatsD is sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdProtocol {
    Tcp,
    Udp,
}

impl Choice for StatsdProtocol {
    const CHOICES: &'static [(&'static str, StatsdProtocol)] =
        &[("tcp", StatsdProtocol::Tcp), ("udp", StatsdProtocol::Udp)];
}

group! {
    /// StatsD.
    StatsdSettings {
        /// Whether metrics are sent to StatsD, by the names of envoyproxy/ratelimit. STATSD_HOST or
        /// STATSD_PORT enables it too, unless USE_DOG_STATSD is true.
        enabled: bool = "false";
        /// Address of the server.
        address: Address = "localhost:8125";
        /// The protocol of the connection.
        protocol: StatsdProtocol = "tcp";
    }
}

group! {
    /// DogStatsD.
    DogStatsdSettings {
        /// Whether metrics are sent to DogStatsD at metrics.statsd.address, over UDP.
        enabled: bool = "false";
        /// Names of rules that replace names of metrics. The variables DOG_STATSD_MOGRIFIER_…_PATTERN,
        /// _NAME and _TAGS define each; the first one whose pattern matches applies.
        mogrifiers: Vec<String> = "";
    }
}

//! `metrics`: what is counted, and where it is sent.

mod prometheus;
mod statsd;

use std::time::Duration;

use super::group;
use crate::settings::format::{Int, Ratio};
pub use prometheus::PrometheusSettings;
pub use statsd::{DogStatsdSettings, StatsdProtocol, StatsdSettings};

group! {
    /// Metrics.
    MetricsSettings "metrics" {
        /// The fraction of a limit above which hits count as near the limit.
        near_limit_ratio: Ratio = "0.8", reference ["NEAR_LIMIT_RATIO"];
        /// Series of each metric. All others are one, with the labels `other`.
        max_series: Int<usize, 1, 1_000_000> = "10_000";
        /// Whether nothing is sent to StatsD and DogStatsD, whatever enables them. DISABLE_STATS makes
        /// USE_PROMETHEUS false too; /metrics of the HTTP and the debug listener stays.
        disable_push: bool = "false", reference ["DISABLE_STATS"];
        /// The time between two reports to StatsD or DogStatsD.
        flush_interval: Duration = "10s", reference ["STATS_FLUSH_INTERVAL"];
        /// Tags of all metrics that have the names of envoyproxy/ratelimit, each as name:value.
        tags: Vec<String> = "", reference ["EXTRA_TAGS"];
        // The reference's local cache is off by default, so that its users do not expect them; and one of its
        // mappings counts them twice.
        /// Whether hits that are denied without the store are a metric of their own under the names of
        /// envoyproxy/ratelimit: over_limit_with_local_cache.
        local_cache: bool = "false", reference ["LOCAL_CACHE_SIZE_IN_BYTES"];
    }
    groups {
        prometheus: PrometheusSettings;
        statsd: StatsdSettings;
        dogstatsd: DogStatsdSettings;
    }
}

//! `metrics`: what is counted, and where it is sent.

mod prometheus;

use super::group;
use crate::settings::format::{Int, Ratio};
pub use prometheus::PrometheusSettings;

group! {
    /// Metrics.
    MetricsSettings "metrics" {
        /// The fraction of a limit above which hits count as near the limit.
        near_limit_ratio: Ratio = "0.8", reference ["NEAR_LIMIT_RATIO"];
        /// Series of each metric. All others are one, with the labels `other`.
        max_series: Int<usize, 1, 1_000_000> = "10_000";
    }
    groups { prometheus: PrometheusSettings; }
}

//! `metrics`: what is counted, and where it is sent.

mod otlp;

use super::group;
use crate::settings::format::Ratio;
pub use otlp::MetricsOtlpSettings;

group! {
    /// Metrics.
    MetricsSettings "metrics" {
        /// The fraction of a limit above which hits count as near the limit.
        near_limit_ratio: Ratio = "0.8", reference ["NEAR_LIMIT_RATIO"];
    }
    groups { otlp: MetricsOtlpSettings; }
}

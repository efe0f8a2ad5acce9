//! `metrics.otlp`: metrics sent by OTLP.

use std::time::Duration;

use crate::settings::table::{OtlpProtocol, group};

group! {
    /// Metrics sent by OTLP.
    MetricsOtlpSettings "metrics.otlp" {
        /// Whether metrics are sent to an OpenTelemetry collector by OTLP.
        enabled: bool = "false";
        /// The protocol of OTLP.
        protocol: OtlpProtocol = "http";
        /// URL for metrics, used as it is; empty: that of otlp.endpoint.
        endpoint: Option<String> = "", reference ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"];
        /// Interval between two exports.
        interval: Duration = "60s", reference ["OTEL_METRIC_EXPORT_INTERVAL"];
    }
}

//! `metrics.prometheus`: the listener that Prometheus scrapes, and the names of metrics.

use std::path::PathBuf;

use crate::settings::format::OptionalAddress;
use crate::settings::table::group;

group! {
    /// The listener for Prometheus.
    PrometheusSettings "metrics.prometheus" {
        /// Address of a listener that serves nothing but the metrics; empty: none. The metrics are also
        /// at /metrics of the HTTP and the debug listener. USE_PROMETHEUS alone sets :9090.
        address: OptionalAddress = "", reference ["USE_PROMETHEUS", "PROMETHEUS_ADDR"];
        /// The path of the metrics on that listener.
        path: String = "/metrics", reference ["PROMETHEUS_PATH"];
        /// Whether all pages have the metrics by the names of envoyproxy/ratelimit too. USE_PROMETHEUS sets
        /// it. The pages are then in OpenMetrics only for clients that accept nothing else, and without
        /// these names.
        reference_names: bool = "false";
        /// A file that maps the statistics of envoyproxy/ratelimit to metrics and labels, in the language of
        /// statsd_exporter; none: the names that envoyproxy/ratelimit has by default.
        mapper: Option<PathBuf> = "", reference ["PROMETHEUS_MAPPER_YAML"];
        /// Whether ratelimit_service_response_time_seconds is in milliseconds, without a mapper.
        response_time_as_milliseconds: bool = "false", reference ["PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"];
    }
}

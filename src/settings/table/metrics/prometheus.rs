//! `metrics.prometheus`: the listener that Prometheus scrapes.

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
    }
}

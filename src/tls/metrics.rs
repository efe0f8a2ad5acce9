//! The metrics of a listener's TLS.

use crate::metrics::{Counter, Gauge, MetricFamily, MetricSink, SampleValue};

/// What the TLS of one listener counts.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    pub handshakes: Counter,
    pub handshake_failures: Counter,
    /// Handshakes that were refused because too many others waited.
    pub handshakes_refused: Counter,
    pub reloads: Counter,
    pub reload_failures: Counter,
    /// When the active certificate expires, in seconds since 1970; 0 if it is unknown.
    pub certificate_expiry: Gauge,
}

type Pick = fn(&TlsMetrics) -> &Counter;

const COUNTERS: [(&str, &str, Pick); 5] = [
    ("tls_handshakes", "Completed TLS handshakes", |it| &it.handshakes),
    ("tls_handshake_failures", "TLS handshakes that failed", |it| &it.handshake_failures),
    ("tls_handshakes_refused", "Connections closed because too many TLS handshakes waited", |it| {
        &it.handshakes_refused
    }),
    ("tls_reloads", "Changed certificates loaded", |it| &it.reloads),
    ("tls_reload_failures", "Changed certificates rejected", |it| &it.reload_failures),
];

impl TlsMetrics {
    /// Adds the metrics of several listeners, by their names. Nothing is added for none.
    pub fn collect(listeners: &[(&str, TlsMetrics)], sink: &mut dyn MetricSink) {
        if listeners.is_empty() {
            return;
        }
        for (name, help, pick) in COUNTERS {
            sink.family(MetricFamily::counter(name, help, &["listener"]));
            for (listener, metrics) in listeners {
                let value = SampleValue::Counter(pick(metrics).get());
                sink.sample(&[("listener", *listener)], value);
            }
        }
        sink.family(MetricFamily::gauge(
            "tls_certificate_expiry_timestamp_seconds",
            "Time at which the active certificate expires, in seconds since 1970",
            &["listener"],
        ));
        for (listener, metrics) in listeners {
            let value = SampleValue::Gauge(metrics.certificate_expiry.get() as f64);
            sink.sample(&[("listener", *listener)], value);
        }
    }
}

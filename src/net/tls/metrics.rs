//! The metrics of TLS on listeners.

use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};

/// What the TLS of one listener counts.
#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    pub handshakes: Counter,
    pub handshake_failures: Counter,
    /// Handshakes that were refused because too many others waited.
    pub handshakes_refused: Counter,
    pub reloads: Counter,
    pub reload_failures: Counter,
}

type Pick = fn(&TlsMetrics) -> &Counter;

const LABELS: &[&str] = &["listener"];

const fn counter(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::counter(name, help, LABELS)
}

const COUNTERS: [(MetricFamily, Pick); 5] = [
    (counter("tls_handshakes", "TLS handshakes completed, by listener"), |it| &it.handshakes),
    (counter("tls_handshake_failures", "TLS handshakes that failed, by listener"), |it| {
        &it.handshake_failures
    }),
    (
        counter(
            "tls_handshakes_refused",
            "Connections closed because too many TLS handshakes waited, by listener",
        ),
        |it| &it.handshakes_refused,
    ),
    (counter("tls_reloads", "Changed certificates loaded, by listener"), |it| &it.reloads),
    (counter("tls_reload_failures", "Changed certificates rejected, by listener"), |it| {
        &it.reload_failures
    }),
];

/// The metrics of the listeners that have TLS, by their names.
#[derive(Clone, Debug)]
pub struct TlsListeners(pub Vec<(&'static str, TlsMetrics)>);

impl MetricSource for TlsListeners {
    fn collect(&self, sink: &mut dyn MetricSink) {
        for (family, pick) in COUNTERS {
            sink.family(family);
            for (listener, metrics) in &self.0 {
                let value = SampleValue::Counter(pick(metrics).get());
                sink.sample(&[("listener", listener)], value);
            }
        }
    }
}

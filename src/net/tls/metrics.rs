//! Handshakes and reloads of certificates, counted by listener.

use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};

#[derive(Clone, Debug, Default)]
pub struct TlsMetrics {
    pub handshakes: Counter,
    pub handshake_failures: Counter,
    /// Handshakes that were refused because too many others waited.
    pub handshakes_refused: Counter,
    pub reloads: Counter,
    pub reload_failures: Counter,
}

#[derive(Clone, Debug)]
pub struct TlsListeners(pub Vec<(&'static str, TlsMetrics)>);

impl MetricSource for TlsListeners {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut add = |name, help, counter: fn(&TlsMetrics) -> &Counter| {
            sink.family(MetricFamily::counter(name, help, &["listener"]));
            for (listener, metrics) in &self.0 {
                let value = SampleValue::Counter(counter(metrics).get());
                sink.sample(&[("listener", listener)], value);
            }
        };
        add("tls_handshakes", "TLS handshakes completed, by listener", |all| &all.handshakes);
        add("tls_handshake_failures", "TLS handshakes that failed, by listener", |all| {
            &all.handshake_failures
        });
        add(
            "tls_handshakes_refused",
            "Connections closed because too many TLS handshakes waited, by listener",
            |all| &all.handshakes_refused,
        );
        add("tls_reloads", "Changed certificates loaded, by listener", |all| &all.reloads);
        add("tls_reload_failures", "Changed certificates rejected, by listener", |all| {
            &all.reload_failures
        });
    }
}

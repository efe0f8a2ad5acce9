//! TLS on the listeners: certificates that are read again when they change, and handshakes that
//! cannot delay requests.
//!
//! | file | task |
//! | --- | --- |
//! | `config` | reads the files of a listener and checks them |
//! | `certificates` | the active set of a listener, and its replacement |
//! | `client_verifier` | which client certificates are accepted |
//! | `handshake` | threads that do handshakes |
//! | `queue` | connections that wait for such a thread |
//! | `certificate` | what a certificate says about itself |
//! | `identities` | all certificates that weir serves or presents |
//! | `expiry` | when to log that one of them expires |

mod certificate;
mod certificates;
mod client_verifier;
mod config;
mod expiry;
mod handshake;
mod identities;
mod queue;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use certificate::Certificate;
pub use certificates::Certificates;
pub use handshake::Handshakes;
pub use identities::{CertificateProblem, Identities};

use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource, SampleValue};

/// The TLS of one listener. Files are in PEM format.
#[derive(Clone, Debug)]
pub struct Options {
    /// The group of the settings, for messages: `grpc.tls`.
    pub group: &'static str,
    pub listener: &'static str,
    /// The protocol that is negotiated, as in ALPN.
    pub protocol: &'static str,
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Where client certificates must come from; none if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The allowed names: a client must have one of them. If there are none, it may have any.
    pub client_sans: Vec<String>,
}

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

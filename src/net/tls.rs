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
mod metrics;
mod queue;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use certificate::Certificate;
pub use certificates::Certificates;
pub use handshake::Handshakes;
pub use identities::{CertificateProblem, CertificateTime, Identities};
pub use metrics::{TlsListeners, TlsMetrics};

/// The TLS of one listener. Files are in PEM format.
#[derive(Clone, Debug)]
pub struct Options {
    /// The group of the settings, for messages: `grpc.tls`.
    pub group: &'static str,
    /// The name of the listener, for the log.
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

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
//! | `stream` | an established connection |
//! | `certificate` | what a certificate says about itself |
//! | `identities` | all certificates that weir serves or presents |
//! | `expiry` | when to log that one of them expires |
//! | `absent` | what remains in builds without the feature `tls` |

#[cfg(not(feature = "tls"))]
mod absent;
mod certificate;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod client_verifier;
#[cfg(feature = "tls")]
mod config;
mod expiry;
#[cfg(feature = "tls")]
mod handshake;
mod identities;
mod metrics;
mod open;
#[cfg(feature = "tls")]
mod queue;
#[cfg(feature = "tls")]
mod stream;
#[cfg(all(test, feature = "tls"))]
mod tests;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub use absent::{Certificates, Handshakes, TlsStream};
pub use certificate::Certificate;
#[cfg(feature = "tls")]
pub use certificates::Certificates;
#[cfg(feature = "tls")]
pub use handshake::Handshakes;
pub use identities::{CertificateProblem, CertificateTime, Identities};
pub use metrics::{TlsListeners, TlsMetrics};
pub use open::Opener;
#[cfg(feature = "tls")]
pub use stream::TlsStream;

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
    /// The allowed names: a client must have one of them. If both lists are empty, it may have any.
    pub client_dns_sans: Vec<String>,
    pub client_uri_sans: Vec<String>,
}

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
//! | `metrics` | handshakes and replacements, counted by listener |

mod certificate;
mod certificates;
mod client_verifier;
mod config;
mod expiry;
mod handshake;
mod identities;
pub mod metrics;
mod queue;
#[cfg(test)]
mod tests;

pub use certificates::Certificates;
pub use config::TlsOptions;
pub use handshake::Handshakes;
pub use identities::{CertificateProblem, Identities};
pub use metrics::TlsListeners;

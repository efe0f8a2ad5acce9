//! TLS on the listeners: certificates that are read again when they change, and handshakes that
//! cannot delay requests.
//!
//! | file | task |
//! | --- | --- |
//! | `config` | reads the files of a listener and checks them |
//! | `certificates` | the active set of a listener, its replacement, and metrics |
//! | `client_verifier` | which client certificates are accepted |
//! | `handshake` | threads that do handshakes |
//! | `queue` | connections that wait for such a thread |
//! | `certificate` | reads the subject and the dates of a certificate |
//! | `identities` | all certificates of listeners and of connections to servers, and when to log that one expires |

mod certificate;
mod certificates;
mod client_verifier;
mod config;
mod handshake;
mod identities;
mod queue;
#[cfg(test)]
mod tests;

pub use certificates::{Certificates, TlsListeners};
pub use config::TlsOptions;
pub use handshake::Handshakes;
pub use identities::{CertificateProblem, Identities};

//! Declares the settings for TLS of the listeners, and the files of connections to servers.

use std::path::PathBuf;
use std::sync::Arc;

use crate::settings::group::group;
use crate::settings::setting::{Resolved, SettingError};
use weir_client::tls::{ClientCertificates, ClientFiles, PemFile};

group! {
    /// TLS on a listener.
    TlsSettings {
        /// Whether the listener speaks TLS only. The other settings of the group need it.
        enabled: bool = "false";
        /// PEM file with weir's certificate, followed by those of intermediate authorities. This and
        /// the other files are read again when they change.
        cert: Option<PathBuf> = "";
        /// PEM file with the key of the certificate.
        key: Option<PathBuf> = "";
        /// PEM file with the CA certificates that a client's certificate must come from; clients then
        /// need one. Empty: clients need no certificate.
        client_ca: Option<PathBuf> = "";
        /// Names of clients, one of which a client's certificate must have: DNS names, IP addresses, and
        /// URIs, such as SPIFFE IDs. A URI that ends in /* means all that start so. Empty: every
        /// certificate of client_ca is accepted.
        client_sans: Vec<String> = "";
    }
}

group! {
    /// The files of TLS to a server.
    ClientFileSettings {
        /// PEM file with the CA certificates to trust; empty: the system's.
        ca: Option<PathBuf> = "";
        /// PEM file with the client certificate, if the server requires one.
        cert: Option<PathBuf> = "";
        /// PEM file with the key of the client certificate.
        key: Option<PathBuf> = "";
    }
}

impl ClientFileSettings {
    pub fn certificates(&self) -> Arc<ClientCertificates> {
        let file = |setting: &Resolved<Option<PathBuf>>| {
            let path = setting.value.clone()?;
            Some(PemFile { setting: setting.setting.name, path })
        };
        let (ca, cert, key) = (file(&self.ca), file(&self.cert), file(&self.key));
        Arc::new(ClientCertificates::new(ClientFiles { ca, cert, key }))
    }

    /// Returns an error if there is a certificate without its key, or a key alone.
    pub fn check(&self) -> Result<(), SettingError> {
        let (half, other) = match (self.cert.is_some(), self.key.is_some()) {
            (true, false) => (&self.cert, &self.key),
            (false, true) => (&self.key, &self.cert),
            _ => return Ok(()),
        };
        let message = format!("is set without {}", other.setting.name);
        Err(half.error(&message, "set both, or neither"))
    }
}

//! TLS to a server.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Target, TlsFiles};
use weir_common::client_tls::{self, ClientCertificates, ClientFiles, PemFile};

/// Returns the configuration with these certificates, or the system's.
///
/// # Errors
///
/// A file cannot be used.
pub(super) fn config(files: &TlsFiles) -> Result<ClientConfig, String> {
    let file = |setting, path: &Option<_>| path.clone().map(|path| PemFile { setting, path });
    let named = ClientFiles {
        ca: file("--ca", &files.ca),
        cert: file("--cert", &files.cert),
        key: file("--key", &files.key),
    };
    let pem = ClientCertificates::new(named).read()?;
    client_tls::config(&pem, false)
}

/// Verifies the server. Its certificate must have the host of the URL.
pub(super) async fn handshake(
    target: &Target,
    config: ClientConfig,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(target.host.clone()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

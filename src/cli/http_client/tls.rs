//! TLS to a server.

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Target, TlsFiles};
use crate::client_tls::{ClientCertificates, ClientFiles, PemFile};

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
    let mut roots = RootCertStore::empty();
    match &pem.ca {
        Some(ca) => _ = roots.add_parsable_certificates(certificates(ca)?),
        // There are some, as reading the files has checked.
        None => {
            _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((cert, key)) = &pem.identity else { return Ok(config.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| error.to_string())?;
    config.with_client_auth_cert(certificates(cert)?, key).map_err(|error| error.to_string())
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

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

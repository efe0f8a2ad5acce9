//! TLS to the collector.

use std::path::Path;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::{Destination, Protocol};
use weir_common::setup_error::SetupError;

/// Returns the configuration for a destination; without TLS, one that accepts no certificate.
///
/// # Errors
///
/// A file cannot be used.
pub(super) fn config(to: &Destination) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let url = to.uri().map_err(|error| error.to_string())?;
    if url.scheme_str() != Some("https") {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let builder = match &to.tls.ca {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| invalid(path, &error))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_native_roots().map_err(|error| {
            SetupError::Unavailable(format!("the system's CA certificates: {error}"))
        })?,
    };
    let mut config = match (&to.tls.cert, &to.tls.key) {
        (Some(cert), Some(key)) => {
            let read = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
            let chain = certificates(cert)?;
            builder.with_client_auth_cert(chain, read).map_err(|error| invalid(key, &error))?
        }
        _ => builder.with_no_client_auth(),
    };
    if to.protocol == Protocol::Grpc {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let read: Result<Vec<_>, pem::Error> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let read = read.map_err(|error| unusable(path, &error))?;
    if read.is_empty() { Err(invalid(path, &"it has no certificate").into()) } else { Ok(read) }
}

fn unusable(path: &Path, error: &pem::Error) -> SetupError {
    let text = invalid(path, error);
    match error {
        pem::Error::Io(_) => SetupError::Unavailable(text),
        _ => SetupError::Invalid(text),
    }
}

fn invalid(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("cannot use {}: {error}", path.display())
}

//! TLS of an endpoint of gRPC.

use rustls_pki_types::ServerName;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Error, Identity};

use super::ClientPem;

/// Why an endpoint cannot have TLS.
#[derive(Debug)]
pub enum ConfigureError {
    /// The name is no DNS name.
    ServerName,
    Transport(Error),
}

/// Adds TLS to an endpoint. If `server_name` is not empty, it is the name in the server's certificate.
///
/// # Errors
///
/// The name is invalid, or the endpoint refuses the certificates.
pub fn configure(
    endpoint: Endpoint,
    pem: &ClientPem,
    server_name: &str,
) -> Result<Endpoint, ConfigureError> {
    let mut config = ClientTlsConfig::new();
    config = match &pem.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    if !server_name.is_empty() {
        if ServerName::try_from(server_name).is_err() {
            return Err(ConfigureError::ServerName);
        }
        config = config.domain_name(server_name);
    }
    if let Some((cert, key)) = &pem.identity {
        config = config.identity(Identity::from_pem(cert, key));
    }
    endpoint.tls_config(config).map_err(ConfigureError::Transport)
}

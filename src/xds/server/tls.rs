//! TLS of the endpoint.

#[cfg(feature = "tls")]
use rustls_pki_types::ServerName;
use tonic::transport::Endpoint;
#[cfg(feature = "tls")]
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::xds::Tls;

/// Adds TLS to an endpoint.
///
/// # Errors
///
/// A setting is invalid, or a file is unusable. The message names the setting and the fix.
#[cfg(feature = "tls")]
pub(super) fn configure(endpoint: Endpoint, tls: &Tls) -> Result<Endpoint, String> {
    let pem = tls.certificates.read().map_err(|error| match error.starts_with("rules.xds.") {
        true => error,
        false => format!("rules.xds.tls: {error}"),
    })?;
    let mut config = ClientTlsConfig::new();
    config = match &pem.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
        None => config.with_native_roots(),
    };
    if !tls.server_name.is_empty() {
        if ServerName::try_from(tls.server_name.as_str()).is_err() {
            return Err(format!(
                "rules.xds.tls.server_name is {:?}; write a DNS name of the server's certificate",
                tls.server_name
            ));
        }
        config = config.domain_name(&tls.server_name);
    }
    if let Some((cert, key)) = &pem.identity {
        config = config.identity(Identity::from_pem(cert, key));
    }
    endpoint.tls_config(config).map_err(|error| {
        format!("rules.xds.tls: {}; see rules.xds.url", crate::xds::with_causes(&error))
    })
}

#[cfg(not(feature = "tls"))]
pub(super) fn configure(_: Endpoint, _: &Tls) -> Result<Endpoint, String> {
    Err(format!("rules.xds asks for TLS, but {}", crate::client_tls::NO_TLS))
}

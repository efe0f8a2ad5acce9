//! TLS of the endpoint.

use tonic::transport::Endpoint;

#[cfg(feature = "tls")]
use crate::client_tls::{self, ConfigureError};
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
    let name = &tls.server_name;
    client_tls::configure(endpoint, &pem, name).map_err(|error| match error {
        ConfigureError::ServerName => {
            format!(
                "rules.xds.tls.server_name is {name:?}; write a DNS name of the server's certificate"
            )
        }
        ConfigureError::Transport(error) => {
            format!("rules.xds.tls: {}; see rules.xds.url", crate::xds::with_causes(&error))
        }
    })
}

#[cfg(not(feature = "tls"))]
pub(super) fn configure(_: Endpoint, _: &Tls) -> Result<Endpoint, String> {
    Err(format!("rules.xds asks for TLS, but {}", crate::client_tls::NO_TLS))
}

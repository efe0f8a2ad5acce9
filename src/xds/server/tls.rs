//! TLS to the management server.

use crate::grpc_client::GrpcTls;
#[cfg(feature = "tls")]
use crate::grpc_client::GrpcTlsError;
use crate::xds::Tls;
use weir_common::setup_error::SetupError;

/// Reads the certificates for a connection to a host.
///
/// # Errors
///
/// A setting is invalid, or a file is unusable. The message names the setting and the fix.
#[cfg(feature = "tls")]
pub(super) fn configure(host: &str, tls: &Tls) -> Result<GrpcTls, SetupError> {
    let pem = tls.certificates.read().map_err(|error| {
        error.map(|error| match error.starts_with("rules.xds.") {
            true => error,
            false => format!("rules.xds.tls: {error}"),
        })
    })?;
    let name = &tls.server_name;
    GrpcTls::new(&pem, host, name).map_err(|error| {
        SetupError::Invalid(match error {
            GrpcTlsError::ServerName => format!(
                "rules.xds.tls.server_name is {name:?}; write a DNS name of the server's certificate"
            ),
            GrpcTlsError::Other(error) => format!("rules.xds.tls: {error}; see rules.xds.url"),
        })
    })
}

#[cfg(not(feature = "tls"))]
pub(super) fn configure(_: &str, _: &Tls) -> Result<GrpcTls, SetupError> {
    let no_tls = weir_common::client_tls::NO_TLS;
    Err(SetupError::Invalid(format!("rules.xds asks for TLS, but {no_tls}")))
}

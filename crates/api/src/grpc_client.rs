//! Connects to gRPC servers: to a management server (xDS) for rules, and to a rate-limit service for `weir hit`.

use std::sync::Arc;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use rustls_pki_types::ServerName;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Error, Identity};
use tower::service_fn;

use weir_client::http::resolve;
use weir_client::tls::{ClientPem, ClientTlsError, ServerVerifier};
use weir_common::error::with_causes;

/// Creates the endpoint of `host:port`.
pub fn endpoint(authority: &str, is_tls: bool) -> Result<Endpoint, Error> {
    let scheme = if is_tls { "https" } else { "http" };
    Endpoint::from_shared(format!("{scheme}://{authority}"))
}

/// Adds TLS to the endpoint of `https`. If `server_name` is not empty, it is the name in the server's certificate.
pub fn with_tls(
    endpoint: Endpoint,
    pem: &ClientPem,
    server_name: &str,
) -> Result<Endpoint, ClientTlsError> {
    let verifier = ServerVerifier::new(pem, false).map_err(ClientTlsError::Certificates)?;
    let mut config = ClientTlsConfig::new();
    if let Some((cert, key)) = &pem.identity {
        config = config.identity(Identity::from_pem(cert, key));
    }
    if !server_name.is_empty() {
        if ServerName::try_from(server_name).is_err() {
            return Err(ClientTlsError::Name(server_name.to_owned()));
        }
        config = config.domain_name(server_name);
    }
    let with_tls = endpoint.tls_config_with_verifier(config, Arc::new(verifier));
    with_tls.map_err(|error| ClientTlsError::Certificates(with_causes(&error)))
}

/// Connects, within the endpoint's timeout. Unlike tonic's own, it finds localhost in both families.
pub async fn connect(endpoint: &Endpoint) -> Result<Channel, Error> {
    // The connector sets the port.
    let resolver =
        service_fn(|name: Name| async move { resolve(name.as_str(), 0).await.map(Vec::into_iter) });
    let mut http = HttpConnector::new_with_resolver(resolver);
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(endpoint.get_connect_timeout());
    http.set_keepalive(endpoint.get_tcp_keepalive());
    endpoint.connect_with_connector(http).await
}

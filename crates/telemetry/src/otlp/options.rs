//! Where spans are sent to, and what they say about the process.

use std::sync::Arc;

use http::HeaderMap;

use weir_client::tls::ClientCertificates;
use weir_common::named_enum;
use weir_common::secret::SecretUrl;

/// Where spans are sent to.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    pub resource: OtlpResource,
    pub protocol: OtlpProtocol,
    /// The URL, for HTTP with its path; gRPC adds that of its method.
    pub url: SecretUrl,
    pub headers: HeaderMap,
    /// The certificates for a URL of https.
    pub certificates: Arc<ClientCertificates>,
}

/// The attributes of this process, by their names. Without an instance, it is random.
#[derive(Clone, Debug, Default)]
pub struct OtlpResource {
    /// Attributes that nothing sets: `OTEL_RESOURCE_ATTRIBUTES` wins over them.
    pub defaults: Vec<(&'static str, String)>,
    /// Attributes that settings name; they win over `OTEL_RESOURCE_ATTRIBUTES`.
    pub set: Vec<(&'static str, String)>,
}

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OtlpProtocol, name {
        Http = "http",
        Grpc = "grpc",
    }
}

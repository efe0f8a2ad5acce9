//! The API's client, and requests in few words.

use std::net::SocketAddr;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use super::PATIENCE;

/// A connection for any gRPC client.
pub async fn channel(to: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
    endpoint.timeout(PATIENCE).connect().await.expect("a connection")
}

/// Asks once, on a connection of its own.
pub async fn ask(to: SocketAddr, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut client = RateLimitServiceClient::new(channel(to).await);
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

/// Asks once; the overall code.
pub async fn code(to: SocketAddr, request: RateLimitRequest) -> Code {
    ask(to, request).await.expect("an answer").overall_code()
}

/// A request of one descriptor.
pub fn request(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: vec![descriptor(entries)],
        hits_addend: 0,
    }
}

pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries =
        entries.iter().map(|&(key, value)| Entry { key: key.into(), value: value.into() });
    RateLimitDescriptor { entries: entries.collect(), ..Default::default() }
}

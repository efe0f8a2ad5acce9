//! A gRPC client of the API, and short constructors for requests.

use std::net::SocketAddr;

use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use super::{PATIENCE, wait_until};

/// A rule for [`user_request`] with a limit that no test reaches: an answer over the limit comes from
/// the failure policy `deny`.
pub const HIGH_LIMIT: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

/// Opens a connection for any gRPC client.
pub async fn channel(to: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
    endpoint.timeout(PATIENCE).connect().await.expect("a connection")
}

/// Sends a request on a connection of its own.
pub async fn ask(to: SocketAddr, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
    let mut client = RateLimitServiceClient::new(channel(to).await);
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

/// Sends a request on a connection of its own. Returns the overall code.
pub async fn code(to: SocketAddr, request: RateLimitRequest) -> Code {
    ask(to, request).await.expect("an answer").overall_code()
}

/// Sends a request until the overall code is `wanted`.
pub async fn wait_for_code(to: SocketAddr, request: RateLimitRequest, wanted: Code) {
    let has_code = async || code(to, request.clone()).await == wanted;
    wait_until(&format!("{wanted:?} is answered"), has_code).await;
}

/// A request of the user `ann` in the domain `shop`.
pub fn user_request() -> RateLimitRequest {
    request("shop", &[("user", "ann")])
}

/// A request with one descriptor.
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

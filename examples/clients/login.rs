//! Asks weir whether one more login may pass: `cargo run --example login -- http://localhost:8081`

use std::{error::Error, time::Duration};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Endpoint;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: login http://HOST:PORT")?;
    // No call waits longer for weir.
    let channel = Endpoint::new(address)?.timeout(Duration::from_secs(1)).connect().await?;
    let entry = Entry { key: "path".into(), value: "/login".into() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let request = RateLimitRequest {
        domain: "example".into(),
        descriptors: vec![descriptor],
        hits_addend: 1,
    };
    let response = RateLimitServiceClient::new(channel).should_rate_limit(request).await?;
    let response = response.into_inner();
    let status = response.statuses.first().ok_or("no status")?;
    if response.overall_code() == Code::Ok {
        println!("welcome, {} more attempts", status.limit_remaining);
    } else {
        let wait = status.duration_until_reset.unwrap_or_default();
        println!("try again in {} s", wait.seconds);
    }
    Ok(())
}

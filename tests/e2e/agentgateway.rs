//! The calls of agentgateway's `remoteRateLimit` with examples/agentgateway, as its source (75b4e6c) makes them.

use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{ask, descriptor};
use crate::support::files::read;
use crate::support::weir::{Weir, serving};
use crate::support::{http, yaml};

/// `envoy.type.v3.RateLimitUnit.HOUR`.
const HOUR: i32 = 3;

/// Sends the descriptors of one type. Returns the overall code and what is left of each.
async fn call(weir: &Weir, descriptors: Vec<RateLimitDescriptor>) -> (Code, Vec<u32>) {
    let domain = "agentgateway".to_owned();
    // The request's own hits are never set.
    let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
    let answer = ask(weir.grpc, request).await.expect("an answer");
    let left = answer.statuses.iter().map(|status| status.limit_remaining).collect();
    (answer.overall_code(), left)
}

fn of(key: &str, hits: Option<u64>) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: hits, ..descriptor(&[(key, "ann")]) }
}

#[test]
fn the_policy_sends_what_the_rules_match() {
    let config = &yaml::documents(&read("examples/agentgateway/config.yaml"))[0];
    let policy = &config["binds"][0]["listeners"][0]["routes"][0]["policies"]["remoteRateLimit"];
    assert_eq!(policy["domain"], "agentgateway");
    let descriptors = policy["descriptors"].as_array().expect("descriptors");
    let keys: Vec<&str> =
        descriptors.iter().filter_map(|it| it["entries"][0]["key"].as_str()).collect();
    assert_eq!(keys, ["user", "tokens_of", "plan_of"]);
    let rules = read("examples/agentgateway/rules.yaml");
    let has_rule = |key: &&str| rules.contains(&format!("- key: {key}\n"));
    assert_eq!(keys.iter().filter(|key| has_rule(key)).count(), 2, "the other brings its limit");
}

#[tokio::test]
async fn requests_and_tokens_are_limited() {
    let weir = serving(&read("examples/agentgateway/rules.yaml")).start();
    // Before the request: one call for each type. Without a cost a request is one hit, and tokens are a look.
    assert_eq!(call(&weir, vec![of("user", None)]).await, (Code::Ok, vec![19]));
    assert_eq!(call(&weir, vec![of("tokens_of", Some(0))]).await, (Code::Ok, vec![100_000]));
    // After the answer.
    assert_eq!(call(&weir, vec![of("tokens_of", Some(99_999))]).await, (Code::Ok, vec![1]));
    assert_eq!(call(&weir, vec![of("tokens_of", Some(500))]).await.0, Code::OverLimit);
    assert_eq!(call(&weir, vec![of("tokens_of", Some(0))]).await, (Code::OverLimit, vec![0]));
    // With a cost.
    assert_eq!(call(&weir, vec![of("user", Some(5))]).await, (Code::Ok, vec![14]));
    // With a limit of the gateway.
    let limit = RateLimitOverride { requests_per_unit: 100, unit: HOUR, ..Default::default() };
    let plan = RateLimitDescriptor { limit: Some(limit), ..of("plan_of", None) };
    assert_eq!(call(&weir, vec![plan]).await, (Code::Ok, vec![99]));
    // The second call is sent even if it has no descriptors left; its answer is not read.
    let empty = RateLimitRequest { domain: "agentgateway".to_owned(), ..Default::default() };
    assert!(ask(weir.grpc, empty).await.is_err());
    assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
}

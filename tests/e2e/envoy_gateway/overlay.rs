//! The overlay of examples/envoy-gateway patches what Envoy Gateway generates from the policy beside it.

use serde_json::{Value, json};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::example::{example, example_pod};
use super::gateway::{DOMAIN, Gateway};
use super::pod::in_pod;
use super::{block_on, channel};
use crate::support::api::request;
use crate::support::certificates::Authority;
use crate::support::management::{any, config};
use crate::support::redis::Server;
use crate::support::wait_until;

/// The route of the quickstart that the policy limits.
const ROUTE: &str = "httproute/default/backend/rule/0/match/0/www_example_com";

/// Returns the rules that Envoy Gateway generates from the policy, as a rule file has them.
fn generated() -> Value {
    let policy = example("backend-traffic-policy.yaml").remove(0);
    assert_eq!(policy["spec"]["targetRefs"][0]["name"], "backend");
    let rules = policy["spec"]["rateLimit"]["global"]["rules"].as_array().expect("rules").iter();
    let descriptors = rules.enumerate().map(|(i, rule)| {
        let limit = &rule["limit"];
        let unit = limit["unit"].as_str().expect("a unit").to_lowercase();
        let limit = json!({ "unit": unit, "requests_per_unit": limit["requests"] });
        // One header at most, whose values are counted separately.
        let key = match &rule["clientSelectors"] {
            Value::Null => format!("rule-{i}-match--1"),
            selectors => {
                assert_eq!(selectors[0]["headers"][0]["type"], "Distinct");
                return json!({ "key": format!("rule-{i}-match-0"), "rate_limit": limit });
            }
        };
        json!({ "key": key, "value": key, "rate_limit": limit })
    });
    let descriptors: Vec<Value> = descriptors.collect();
    let route = json!({ "key": ROUTE, "value": ROUTE, "descriptors": descriptors });
    json!({ "domain": DOMAIN, "descriptors": [route] })
}

#[test]
fn the_generated_rules_are_those_of_the_policy() {
    assert_eq!(example("generated.yaml"), [generated()]);
}

#[test]
fn the_overlay_patches_the_rules_of_the_policy() {
    let name = "envoy_gateway::overlay::the_overlay_patches_the_rules_of_the_policy";
    in_pod(name, |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let (mut pod, _) = example_pod(place, &authority, &redis);
        pod.start();
        gateway.await_subscription();
        gateway.publish(vec![any(&config(&generated()))]);
        block_on(async {
            let mut client = RateLimitServiceClient::new(channel(&pod, &authority).await);
            let mut decide = async |hits: u32| {
                let user = request(DOMAIN, &[(ROUTE, ROUTE), ("rule-0-match-0", "ann")]);
                let user = RateLimitRequest { hits_addend: hits, ..user };
                let answer = client.should_rate_limit(user).await.ok()?.into_inner();
                // Without rules, requests are allowed without a limit.
                answer.statuses[0].current_limit.as_ref()?;
                Some(answer.overall_code())
            };
            // The policy alone would allow 4. A denied request takes nothing of the burst.
            wait_until("the rules limit the route", async || decide(4).await.is_some()).await;
            assert_eq!(decide(4).await, Some(Code::OverLimit));
            assert_eq!(decide(3).await, Some(Code::Ok));
            assert_eq!(decide(3).await, Some(Code::OverLimit));
        });
        pod.stop();
    });
}

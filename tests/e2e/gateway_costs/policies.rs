//! The policies of `tests/gateway_policies`, and the rules that a QuotaPolicy becomes.

use std::fs;

use serde_json::{Value, json};

use crate::support::files::{read, root};
use crate::support::{schemas, yaml};

/// A policy and what its gateway generates from it.
pub struct Policy {
    pub resource: Value,
    /// As a rule file has them.
    pub rules: Value,
    /// The settings of the filter on the route.
    pub route: Value,
}

const DIRECTORY: &str = "tests/gateway_policies";

impl Policy {
    pub fn read(name: &str) -> Policy {
        let documents = yaml::documents(&read(format!("{DIRECTORY}/{name}.yaml")));
        let [resource, rules, route] = documents.try_into().expect("a policy, rules and a route");
        Policy { resource, rules, route }
    }

    fn is_quota(&self) -> bool {
        self.resource["kind"] == "QuotaPolicy"
    }

    /// The node ID whose snapshot the gateway sets.
    pub fn node_id(&self) -> &'static str {
        if self.is_quota() { "envoy-ai-gateway-ratelimit" } else { "envoy-ratelimit" }
    }

    /// The name of the filter.
    pub fn filter(&self) -> &'static str {
        match self.is_quota() {
            true => "envoy.filters.http.ratelimit/ai-gateway-quota",
            false => "envoy.filters.http.ratelimit",
        }
    }
}

/// Returns the rules of a QuotaPolicy: for each backend and model the default bucket or, with rules for
/// clients, a bucket for each of them; and a bucket for each other model.
fn quota_rules(policy: &Value) -> Value {
    let spec = &policy["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut models: Vec<Value> = list(&spec["perModelQuotas"]).iter().map(model).collect();
    let service = &spec["serviceQuota"]["quota"];
    if !service.is_null() {
        models.push(limited(json!({ "key": "model_name_override" }), service));
    }
    let namespace = policy["metadata"]["namespace"].as_str().expect("a namespace");
    let backend = |target: &Value| {
        let name = target["name"].as_str().expect("a name");
        json!({ "key": "backend_name", "value": format!("{namespace}/{name}"), "descriptors": models })
    };
    let backends: Vec<Value> = list(&spec["targetRefs"]).iter().map(backend).collect();
    json!({ "domain": "ai-gateway-quota", "descriptors": backends })
}

fn model(quota: &Value) -> Value {
    let (name, quota) = (&quota["modelName"], &quota["quota"]);
    let default = &quota["defaultBucket"];
    let Some(rules) = quota["bucketRules"].as_array() else {
        return limited(json!({ "key": "model_name_override", "value": name }), default);
    };
    let mut buckets: Vec<Value> =
        rules.iter().enumerate().map(|(index, rule)| bucket(index, rule)).collect();
    if !default.is_null() {
        buckets.push(limited(constant(&format!("rule-{}-match--1", rules.len())), default));
    }
    json!({ "key": "model_name_override", "value": name, "descriptors": buckets })
}

/// Returns a descriptor for each header, the last of which has the limit.
fn bucket(index: usize, rule: &Value) -> Value {
    let selectors = rule["clientSelectors"].as_array().into_iter().flatten();
    let headers = selectors.flat_map(|selector| selector["headers"].as_array()).flatten();
    let mut headers: Vec<&Value> = headers.collect();
    headers.sort_by_key(|header| header["name"].as_str());
    let text = |header: &Value, field: &str| header[field].as_str().unwrap_or_default().to_owned();
    let descriptor = |(place, header): (usize, &&Value)| {
        let name = text(header, "name");
        match header["type"] == "Distinct" {
            true => json!({ "key": format!("rule-{index}-{name}-match-{place}") }),
            false => {
                let value = text(header, "value");
                constant(&format!("rule-{index}-{name}|{value}-match-{place}"))
            }
        }
    };
    let mut chain: Vec<Value> = headers.iter().enumerate().map(descriptor).collect();
    let last = chain.pop().unwrap_or_else(|| constant(&format!("rule-{index}-match-0")));
    let mut last = limited(last, &rule["quota"]);
    if rule["shadowMode"] == true {
        last["shadow_mode"] = true.into();
    }
    chain.into_iter().rfold(last, |below, mut above| {
        above["descriptors"] = vec![below].into();
        above
    })
}

fn constant(key: &str) -> Value {
    json!({ "key": key, "value": key })
}

fn limited(mut descriptor: Value, bucket: &Value) -> Value {
    let unit = match bucket["duration"].as_str() {
        Some("1h") => "hour",
        Some("1d") => "day",
        other => panic!("{other:?}"),
    };
    descriptor["quota_mode"] = true.into();
    descriptor["rate_limit"] = json!({ "unit": unit, "requests_per_unit": bucket["limit"] });
    descriptor
}

#[test]
fn the_generated_rules_are_those_of_the_policies() {
    let mut quotas = 0;
    for entry in fs::read_dir(root().join(DIRECTORY)).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_stem().expect("a name").to_str().expect("text");
            let policy = Policy::read(name);
            let kind = policy.resource["kind"].as_str().expect("a kind");
            schemas::check(kind, &policy.resource)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            if policy.is_quota() {
                assert_eq!(policy.rules, quota_rules(&policy.resource), "{name}");
                quotas += 1;
            }
        }
    }
    assert_eq!(quotas, 9);
    let example = |name| yaml::document(&read(format!("examples/envoy-ai-gateway/{name}.yaml")));
    assert_eq!(example("generated"), quota_rules(&example("quota-policy")));
}

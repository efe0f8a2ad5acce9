//! examples/envoy-gateway: the deployment that Envoy Gateway makes of it, and weir started by that.

use std::fs;
use std::path::Path;

use prost_types::Any;
use serde_json::{Map, Value, json};

use super::gateway::{DESCRIPTOR, DOMAIN, Gateway, RULE};
use super::pod::{Place, Pod, in_pod};
use super::{block_on, channel, limited_request};
use crate::support::api::request;
use crate::support::certificates::Authority;
use crate::support::management::{any, config};
use crate::support::redis::Server;
use crate::support::tools::kubernetes_validate;
use crate::support::{schemas, wait_for, wait_until, yaml};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

/// Returns the text of a file of the example.
fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/envoy-gateway").join(name);
    fs::read_to_string(path).expect("a file")
}

/// Returns the documents of a file of the example.
pub fn example(name: &str) -> Vec<Value> {
    yaml::documents(&text(name))
}

/// Returns Envoy Gateway's configuration, which its chart takes from this value.
fn configuration() -> Value {
    example("envoy-gateway-values.yaml").remove(0)["config"]["envoyGateway"].take()
}

/// Returns the deployment that Envoy Gateway makes of its configuration, with these variables.
fn deployment(configuration: &Value, env: &[(&'static str, String)]) -> Value {
    let spec = &configuration["provider"]["kubernetes"]["rateLimitDeployment"];
    let mut deployment = yaml::document(include_str!("deployment.yaml"));
    deployment["spec"]["replicas"] = spec["replicas"].clone();
    let pod = &mut deployment["spec"]["template"]["spec"];
    append(&mut pod["volumes"], &spec["pod"]["volumes"]);
    let container = &mut pod["containers"][0];
    for field in ["image", "resources"] {
        container[field] = spec["container"][field].clone();
    }
    append(&mut container["volumeMounts"], &spec["container"]["volumeMounts"]);
    container["env"] =
        env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    assert_eq!(spec["patch"]["type"], "StrategicMerge");
    strategic_merge(&mut deployment, &spec["patch"]["value"]);
    deployment
}

/// Returns the pod of the deployment with its files and arguments, and the container's specification.
pub fn example_pod(place: Place, authority: &Authority, redis: &Server) -> (Pod, Value) {
    let mut pod = Pod::new(place, authority, redis);
    let mut deployment = deployment(&configuration(), pod.env());
    let mut template = deployment["spec"]["template"]["spec"].take();
    let container = template["containers"][0].take();
    assert_eq!(container["command"], json!(["/bin/ratelimit"]));
    let settings = example("weir-settings.yaml").remove(0);
    let mut mounted = 0;
    for volume in template["volumes"].as_array().unwrap() {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).unwrap();
        let at = mount["mountPath"].as_str().unwrap();
        let map = &volume["configMap"]["name"];
        if *map == settings["metadata"]["name"] {
            let overlay = pod.seen_as("/etc/weir/overlay");
            let settings = settings["data"]["weir.toml"].as_str().unwrap();
            assert!(settings.contains("[\"/etc/weir/overlay\"]"), "{settings}");
            pod.mount(at, &[("weir.toml", &settings.replace("/etc/weir/overlay", &overlay))]);
            mounted += 1;
        } else if map == "weir-overlay" {
            pod.mount(at, &[("limits.overlay.yaml", &text("limits.overlay.yaml"))]);
            mounted += 1;
        }
    }
    assert_eq!(mounted, 2, "{template}");
    for argument in container["args"].as_array().unwrap() {
        pod.arg(argument.as_str().unwrap());
    }
    (pod, container)
}

fn append(list: &mut Value, more: &Value) {
    let more = more.as_array().cloned().unwrap_or_default();
    list.as_array_mut().expect("a list").extend(more);
}

/// Merges a patch as Kubernetes does: containers by their names, other lists replaced, null deletes.
fn strategic_merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Map::new().into();
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().expect("an object").remove(key);
        } else if key == "containers" {
            for container in value.as_array().expect("containers") {
                let old = into[key].as_array_mut().expect("containers");
                let old = old.iter_mut().find(|old| old["name"] == container["name"]);
                strategic_merge(old.expect("a container of this name"), container);
            }
        } else {
            strategic_merge(&mut into[key], value);
        }
    }
}

#[test]
fn the_resources_fit_their_schemas() {
    let check = |name: &str, value: &Value| {
        schemas::check(name, value).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    let configuration = configuration();
    let spec = &configuration["provider"]["kubernetes"]["rateLimitDeployment"];
    check("KubernetesDeploymentSpec", spec);
    check("BackendTrafficPolicy", &example("backend-traffic-policy.yaml")[0]);
    let resources = ["weir-settings.yaml", "redis.yaml"].map(example);
    let deployment = deployment(&configuration, &[("LOG_LEVEL", "info".to_owned())]);
    for resource in resources.concat().iter().chain([&deployment]) {
        schemas::check_kubernetes(resource).unwrap_or_else(|error| panic!("{error}\n{resource}"));
    }
    let mut broken = spec.clone();
    broken["container"]["mounts"] = json!([]);
    if kubernetes_validate().is_some() {
        schemas::check("KubernetesDeploymentSpec", &broken).unwrap_err();
    }
}

#[test]
fn the_redis_is_the_one_of_the_configuration() {
    let redis = example("redis.yaml").pop().expect("a Service");
    let (name, namespace) = (&redis["metadata"]["name"], &redis["metadata"]["namespace"]);
    let name = format!("{}.{}", name.as_str().unwrap(), namespace.as_str().unwrap());
    let url = format!("{name}.svc.cluster.local:{}", redis["spec"]["ports"][0]["port"]);
    assert_eq!(configuration()["rateLimit"]["backend"]["redis"]["url"], url);
}

/// Waits until a probe of the container has this status.
fn await_probe(pod: &Pod, container: &Value, kind: &str, status: u16) {
    let path = container[kind]["httpGet"]["path"].as_str().expect("a path");
    assert_eq!(container[kind]["httpGet"]["port"], 8080);
    wait_for(kind, || (pod.probe_at(path) == Some(status)).then_some(()));
}

/// What Envoy Gateway generates from two rules of a policy on one CIDR: one counts all of its addresses together, the
/// other each.
fn rules_on_one_cidr(all: u32, each: u32) -> Vec<Any> {
    let masked = json!({ "key": "masked_remote_address", "value": "10.0.0.0/8" });
    let limit = |n: u32| json!({ "unit": "year", "requests_per_unit": n });
    let (mut shared, mut distinct) = (masked.clone(), masked);
    shared["rate_limit"] = limit(all);
    distinct["descriptors"] = json!([{ "key": "remote_address", "rate_limit": limit(each) }]);
    let route =
        json!({ "key": DESCRIPTOR, "value": DESCRIPTOR, "descriptors": [shared, distinct] });
    vec![any(&config(&json!({ "domain": DOMAIN, "descriptors": [route] })))]
}

#[test]
fn a_rejected_set_at_the_start_keeps_the_pod_from_being_ready() {
    let name = "envoy_gateway::example::a_rejected_set_at_the_start_keeps_the_pod_from_being_ready";
    in_pod(name, |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let (mut pod, container) = example_pod(place, &authority, &redis);
        pod.start();
        gateway.await_subscription();
        // Two limits of one descriptor.
        let twice = json!({ "key": RULE, "rate_limit": { "unit": "day", "requests_per_unit": 1 } });
        let mut other = twice.clone();
        other["rate_limit"]["requests_per_unit"] = json!(2);
        let conflict = json!({ "domain": DOMAIN, "descriptors": [twice, other] });
        let error = gateway.publish_rejected(vec![any(&config(&conflict))]);
        assert!(error.contains("duplicate descriptor composite key"), "{error}");
        // Kubernetes neither sends requests to the pod nor restarts it.
        let probe = |kind: &str, status| await_probe(&pod, &container, kind, status);
        probe("startupProbe", 200);
        probe("livenessProbe", 200);
        probe("readinessProbe", 500);
        gateway.publish(rules_on_one_cidr(4, 2));
        probe("readinessProbe", 200);

        let answers = block_on(async {
            let mut client = RateLimitServiceClient::new(channel(&pod, &authority).await);
            let masked = ("masked_remote_address", "10.0.0.0/8");
            let mut codes: Vec<Vec<bool>> = Vec::new();
            // Envoy sends a descriptor for each rule.
            for address in ["10.1.2.3", "10.1.2.3", "10.1.2.3", "10.4.5.6", "10.7.8.9"] {
                let entries = [(DESCRIPTOR, DESCRIPTOR), masked, ("remote_address", address)];
                let mut both = request(DOMAIN, &entries[..2]);
                both.descriptors.extend(request(DOMAIN, &entries).descriptors);
                let answer = client.should_rate_limit(both).await.unwrap().into_inner();
                codes
                    .push(answer.statuses.iter().map(|status| status.code() == Code::Ok).collect());
            }
            codes
        });
        let wanted: [Vec<bool>; 5] = [
            vec![true, true],
            vec![true, true],
            vec![true, false],
            vec![true, true],
            vec![false, true],
        ];
        assert_eq!(answers, wanted);
        pod.stop();
    });
}

#[test]
fn without_any_policy_the_pod_is_ready_once_the_empty_set_is_there() {
    let name =
        "envoy_gateway::example::without_any_policy_the_pod_is_ready_once_the_empty_set_is_there";
    in_pod(name, |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let (mut pod, container) = example_pod(place, &authority, &redis);
        pod.start();
        gateway.await_subscription();
        let probe = |kind: &str, status| await_probe(&pod, &container, kind, status);
        probe("startupProbe", 200);
        probe("readinessProbe", 500);
        gateway.publish(Vec::new());
        probe("readinessProbe", 200);
        pod.stop();
    });
}

#[test]
fn the_deployment_serves_and_survives_redis() {
    let name = "envoy_gateway::example::the_deployment_serves_and_survives_redis";
    in_pod(name, |place| {
        let (authority, mut redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let (mut pod, container) = example_pod(place, &authority, &redis);
        pod.start();
        let probe = |kind: &str| await_probe(&pod, &container, kind, 200);
        ["startupProbe", "livenessProbe"].into_iter().for_each(probe);
        gateway.await_subscription();
        gateway.set_snapshot(1_000_000);
        probe("readinessProbe");

        block_on(async {
            let mut client = RateLimitServiceClient::new(channel(&pod, &authority).await);
            let mut remaining = async || {
                let answer = client.should_rate_limit(limited_request()).await.ok()?.into_inner();
                assert_eq!(answer.overall_code(), Code::Ok);
                answer.statuses[0].current_limit.as_ref()?;
                Some(answer.statuses[0].limit_remaining)
            };
            wait_until("Redis decides", async || remaining().await > Some(900_000)).await;
            redis.kill();
            // Half of the limit, in memory.
            let local = 400_000..=500_000;
            wait_until("the local policy decides", async || {
                remaining().await.is_some_and(|remaining| local.contains(&remaining))
            })
            .await;
        });
        ["livenessProbe", "readinessProbe"].into_iter().for_each(probe);
        pod.stop();
    });
}

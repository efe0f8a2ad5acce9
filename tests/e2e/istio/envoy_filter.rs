//! Applies EnvoyFilter resources as Istio does, as far as the examples use them. Whatever else a resource
//! has fails the test.

use serde_json::{Value, json};

const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Applies all patches of a resource. Each must change something.
pub fn apply(filter: &Value, config: &mut Value, is_gateway: bool) {
    assert_keys(&filter["spec"], &["workloadSelector", "configPatches"]);
    for patch in list(&filter["spec"]["configPatches"]) {
        assert_keys(patch, &["applyTo", "match", "patch"]);
        assert_keys(&patch["patch"], &["operation", "value"]);
        let operation = (text(&patch["applyTo"]), text(&patch["patch"]["operation"]));
        let changes = patch_listeners(config, patch, is_gateway, operation);
        assert!(changes > 0, "a patch of {} matches nothing: {patch}", filter["metadata"]["name"]);
    }
}

/// Applies a patch to the HTTP connection managers that it matches. Returns the number of changes.
fn patch_listeners(
    config: &mut Value,
    patch: &Value,
    is_gateway: bool,
    operation: (&str, &str),
) -> usize {
    let mut changes = 0;
    for listener in list_mut(&mut config["static_resources"]["listeners"]) {
        let context = match (is_gateway, text(&listener["traffic_direction"])) {
            (true, _) => "GATEWAY",
            (false, "INBOUND") => "SIDECAR_INBOUND",
            (false, _) => "SIDECAR_OUTBOUND",
        };
        if text(&patch["match"]["context"]) != context {
            continue;
        }
        let name = text(&listener["name"]).to_owned();
        let address = listener["address"]["socket_address"]["port_value"].clone();
        for chain in list_mut(&mut listener["filter_chains"]) {
            // Redirected traffic: the port is that of the filter chain.
            let port = match name.starts_with("virtual") {
                true => chain["filter_chain_match"]["destination_port"].clone(),
                false => address.clone(),
            };
            for filter in list_mut(&mut chain["filters"]) {
                if text(&filter["name"]) == CONNECTION_MANAGER {
                    let manager = &mut filter["typed_config"];
                    changes += match operation {
                        ("HTTP_FILTER", "INSERT_BEFORE") => insert_filter(manager, patch, &port),
                        ("VIRTUAL_HOST" | "HTTP_ROUTE", "MERGE") => merge_routes(manager, patch),
                        other => panic!("{other:?} is not supported"),
                    };
                }
            }
        }
    }
    changes
}

fn insert_filter(manager: &mut Value, patch: &Value, port: &Value) -> usize {
    assert_keys(&patch["match"], &["context", "listener"]);
    let listener = &patch["match"]["listener"];
    assert_keys(listener, &["portNumber", "filterChain"]);
    let filter = &listener["filterChain"]["filter"];
    assert_keys(&listener["filterChain"], &["filter"]);
    assert_keys(filter, &["name", "subFilter"]);
    assert_keys(&filter["subFilter"], &["name"]);
    if !matches(&listener["portNumber"], port) || text(&filter["name"]) != CONNECTION_MANAGER {
        return 0;
    }
    let filters = manager["http_filters"].as_array_mut().expect("filters");
    let Some(at) = filters.iter().position(|it| it["name"] == filter["subFilter"]["name"]) else {
        return 0;
    };
    filters.insert(at, patch["patch"]["value"].clone());
    1
}

/// Merges a patch into the virtual hosts that it matches, or into their routes.
fn merge_routes(manager: &mut Value, patch: &Value) -> usize {
    assert_keys(&patch["match"], &["context", "routeConfiguration"]);
    let wanted = &patch["match"]["routeConfiguration"];
    assert_keys(wanted, &["name", "vhost"]);
    assert_keys(&wanted["vhost"], &["name", "route"]);
    assert_keys(&wanted["vhost"]["route"], &["name"]);
    let config = &mut manager["route_config"];
    if !matches(&wanted["name"], &config["name"]) {
        return 0;
    }
    let mut changes = 0;
    for host in list_mut(&mut config["virtual_hosts"]) {
        if !matches(&wanted["vhost"]["name"], &host["name"]) {
            continue;
        }
        if patch["applyTo"] == "VIRTUAL_HOST" {
            merge(host, &patch["patch"]["value"]);
            changes += 1;
            continue;
        }
        for route in list_mut(&mut host["routes"]) {
            if matches(&wanted["vhost"]["route"]["name"], &route["name"]) {
                merge(route, &patch["patch"]["value"]);
                changes += 1;
            }
        }
    }
    changes
}

/// Merges as protocol buffers do: messages field by field, lists appended, values of maps replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                let old = into.entry(key).or_insert(Value::Null);
                match key.as_str() {
                    "typed_per_filter_config" => {
                        let mut entries = old.as_object().cloned().unwrap_or_default();
                        entries.extend(value.as_object().expect("a map").clone());
                        *old = entries.into();
                    }
                    _ => merge(old, value),
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

/// Whether a field of a match fits. One that is not set fits everything.
fn matches(wanted: &Value, actual: &Value) -> bool {
    wanted.is_null() || wanted == actual
}

/// Fails if an object has other fields than these.
pub fn assert_keys(value: &Value, known: &[&str]) {
    for key in value.as_object().into_iter().flat_map(|fields| fields.keys()) {
        assert!(known.contains(&key.as_str()), "{key} is not supported: {value}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn list_mut(value: &mut Value) -> &mut [Value] {
    value.as_array_mut().expect("a list")
}

#[test]
fn patches_merge_as_protocol_buffers_do() {
    let mut host = json!({ "name": "a", "rate_limits": [1], "route": { "timeout": "0s" } });
    merge(&mut host, &json!({ "rate_limits": [2], "route": { "cluster": "c" } }));
    let merged = json!({ "name": "a", "rate_limits": [1, 2],
                         "route": { "timeout": "0s", "cluster": "c" } });
    assert_eq!(host, merged);
    let mut route = json!({ "typed_per_filter_config": { "a": { "x": 1 }, "b": 1 } });
    merge(&mut route, &json!({ "typed_per_filter_config": { "a": { "y": 2 } } }));
    assert_eq!(route, json!({ "typed_per_filter_config": { "a": { "y": 2 }, "b": 1 } }));
}

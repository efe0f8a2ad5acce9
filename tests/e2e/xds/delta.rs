//! Rules from a management server that sends only changes.

use weir::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use weir_rules::proto::RateLimitConfig;

use super::{any, asking, bad, rules, source};
use crate::reload::until;
use crate::support::management::{Management, TYPE_URL};

fn resource(name: &str, version: &str, config: &RateLimitConfig) -> Resource {
    Resource { name: name.into(), version: version.into(), resource: Some(any(config)) }
}

/// Sends changes, and returns the request that answers.
fn answer_to(
    server: &Management,
    nonce: &str,
    resources: Vec<Resource>,
    gone: &[&str],
) -> DeltaDiscoveryRequest {
    server.delta.send(DeltaDiscoveryResponse {
        system_version_info: format!("after {nonce}"),
        resources,
        type_url: TYPE_URL.into(),
        nonce: nonce.into(),
        removed_resources: gone.iter().map(|&name| name.to_owned()).collect(),
    });
    let answer = server.delta.next();
    assert_eq!((answer.response_nonce.as_str(), answer.type_url.as_str()), (nonce, TYPE_URL));
    assert!(answer.resource_names_subscribe.is_empty());
    answer
}

/// Sends changes that must be accepted.
fn set(server: &Management, nonce: &str, resources: Vec<Resource>, gone: &[&str]) {
    assert_eq!(answer_to(server, nonce, resources, gone).error_detail, None);
}

/// Sends changes that must be rejected, and returns the errors.
fn rejected(server: &Management, nonce: &str, resources: Vec<Resource>) -> String {
    answer_to(server, nonce, resources, &[]).error_detail.expect("refused").message
}

#[test]
fn resources_are_added_changed_removed_and_kept_over_a_reconnect() {
    let server = Management::start();
    let weir = asking(server.address).env("WEIR__RULES__XDS__MODE", "delta").start_unhealthy();
    let first = server.delta.next();
    assert_eq!(first.type_url, TYPE_URL);
    assert!(
        first.initial_resource_versions.is_empty() && first.resource_names_subscribe.is_empty()
    );
    assert_eq!(first.node.unwrap().id, "default");

    set(
        &server,
        "n1",
        vec![resource("a", "1", &rules("a", 1)), resource("b", "1", &rules("b", 1))],
        &[],
    );
    until(&weir, &[("a", 1), ("b", 1)]);
    assert!(weir.is_healthy());
    assert_eq!(source(&weir)["version"], "after n1");
    set(&server, "n2", vec![resource("a", "2", &rules("a", 2))], &[]);
    until(&weir, &[("a", 2), ("b", 1)]);
    // A heartbeat for b and the removal of an unknown resource change nothing.
    let still = Resource { resource: None, ..resource("b", "1", &rules("b", 1)) };
    set(&server, "n3", vec![still], &["never"]);
    until(&weir, &[("a", 2), ("b", 1)]);
    set(&server, "n4", vec![resource("c", "1", &rules("c", 1))], &["b"]);
    until(&weir, &[("a", 2), ("c", 1)]);

    server.delta.end();
    let again = server.delta.next();
    let versions = &again.initial_resource_versions;
    assert_eq!((versions.len(), &*versions["a"], &*versions["c"]), (2, "2", "1"));
    assert_eq!(again.response_nonce, "");
    until(&weir, &[("a", 2), ("c", 1)]);
    set(&server, "n5", vec![], &["a"]);
    until(&weir, &[("c", 1)]);
    set(&server, "n6", vec![], &["c"]);
    until(&weir, &[]);
}

#[test]
fn resources_that_arrive_with_an_invalid_one_are_activated_once_it_is_fixed() {
    let server = Management::start();
    let weir = asking(server.address).env("WEIR__RULES__XDS__MODE", "delta").start_unhealthy();
    server.delta.next();
    set(&server, "n1", vec![resource("a", "1", &rules("a", 1))], &[]);
    let both = vec![resource("a", "2", &bad("a")), resource("b", "1", &rules("b", 1))];
    let why = rejected(&server, "n2", both);
    assert!(why.contains("a-resource:") && why.contains("'UNKNOWN'"), "{why}");
    until(&weir, &[("a", 1)]);
    // The invalid one is still present.
    rejected(&server, "n3", vec![resource("c", "1", &rules("c", 1))]);
    until(&weir, &[("a", 1)]);
    set(&server, "n4", vec![resource("a", "3", &rules("a", 3))], &[]);
    until(&weir, &[("a", 3), ("b", 1), ("c", 1)]);

    // A resource that cannot be read, and is then removed.
    let mut unreadable = resource("d", "1", &rules("d", 1));
    unreadable.resource.as_mut().unwrap().value = b"\xff".to_vec();
    let why = rejected(&server, "n5", vec![unreadable, resource("a", "4", &rules("a", 4))]);
    assert!(why.starts_with("d: error: the resource cannot be read"), "{why}");
    // After a reconnect weir sends the active versions, not the rejected ones.
    server.delta.fail("going down");
    let versions = server.delta.next().initial_resource_versions;
    assert_eq!((versions.len(), &*versions["a"]), (3, "3"));
    let empty = Resource { resource: None, ..resource("e", "1", &rules("e", 1)) };
    assert!(rejected(&server, "n6", vec![empty]).contains("no resource"));
    set(&server, "n7", vec![resource("a", "4", &rules("a", 4))], &["d", "e"]);
    until(&weir, &[("a", 4), ("b", 1), ("c", 1)]);
}

//! Rules from a management server.

mod away;
mod large;
mod tls;

use std::net::SocketAddr;
use std::time::Instant;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Duration};
use weir::proto::envoy::config::core::v3::Node;
use weir::proto::envoy::service::discovery::v3::{DiscoveryResponse, Resource};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir_rules::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};

use crate::reload::until;
use crate::support::api::{ask, channel, code, request};
use crate::support::http;
use crate::support::management::{Management, TYPE_URL, any};
use crate::support::wait_for;
use crate::support::weir::{Setup, Weir};

/// `weir serve` with rules from a server, set by the reference's variables. It reconnects quickly.
fn asking(server: SocketAddr) -> Setup {
    Setup::new()
        .arg("serve")
        .env("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .env("CONFIG_GRPC_XDS_SERVER_URL", server.to_string())
        .env("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10ms")
        .env("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "50ms")
}

/// A running weir with the rules of `shop`, which allow one request per year.
fn with_shop(server: &Management) -> Weir {
    let weir = asking(server.address).start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&rules("shop", 1))]);
    weir
}

/// Rules of a domain, identified by their limit.
fn rules(domain: &str, limit: u32) -> RateLimitConfig {
    of(domain, vec![descriptor("user", policy(limit))])
}

fn of(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    let name = format!("{domain}-resource");
    RateLimitConfig { name, domain: domain.to_owned(), descriptors, ..Default::default() }
}

fn descriptor(key: &str, rate_limit: RateLimitPolicy) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.to_owned(), rate_limit: Some(rate_limit), ..Default::default() }
}

fn policy(requests_per_unit: u32) -> RateLimitPolicy {
    RateLimitPolicy { unit: RateLimitUnit::Year.into(), requests_per_unit, ..Default::default() }
}

/// Invalid rules.
fn bad(domain: &str) -> RateLimitConfig {
    let without_unit = RateLimitPolicy { requests_per_unit: 1, ..Default::default() };
    of(domain, vec![descriptor("cart", without_unit)])
}

/// The source of the rules in `/status`.
fn source(weir: &Weir) -> serde_json::Value {
    http::get(weir.debug, "/status").json()["source"].take()
}

#[tokio::test]
async fn rules_are_activated_acknowledged_and_changed() {
    let server = Management::start();
    let weir = asking(server.address).start_unhealthy();
    let first = server.sotw.next();
    assert_eq!(first.type_url, TYPE_URL);
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("", ""));
    assert!(first.resource_names.is_empty() && first.error_detail.is_none());
    assert!(!weir.is_healthy());
    let ann = || request("shop", &[("user", "ann")]);
    server.set("1", vec![any(&rules("shop", 1)), any(&rules("cart", 2))]);
    assert!(weir.is_healthy());
    until(&weir, &[("cart", 2), ("shop", 1)]);
    assert_eq!(code(weir.grpc, ann()).await, Code::Ok);
    assert_eq!(code(weir.grpc, ann()).await, Code::OverLimit);
    let said = source(&weir);
    assert_eq!((&said["kind"], &said["connected"]), (&"xds".into(), &true.into()));
    assert_eq!(said["version"], "1");
    assert_eq!(weir.metric("weir_xds_connected"), 1);
    assert_eq!(weir.metric("weir_xds_stream_failures_total"), 0);

    // Resources that a response lacks are removed.
    server.set("2", vec![any(&rules("shop", 3))]);
    until(&weir, &[("shop", 3)]);
    assert_eq!(code(weir.grpc, ann()).await, Code::Ok);
    assert_eq!(source(&weir)["version"], "2");
    assert_eq!(server.sotw.streams(), 1);
}

#[tokio::test]
async fn weir_identifies_itself_to_the_server() {
    let server = Management::start();
    let weir = asking(server.address)
        .env("CONFIG_GRPC_XDS_NODE_ID", "edge-7")
        .env("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a=b,ignored,team=x")
        .env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "Authorization:Bearer x,x-team:weir")
        .start_unhealthy();
    let identity = |node: Option<Node>| {
        let node = node.expect("a node");
        let metadata = node.metadata.expect("metadata").fields;
        let text = |kind: &Option<Kind>| match kind {
            Some(Kind::StringValue(text)) => text.clone(),
            other => panic!("{other:?}"),
        };
        let metadata = metadata.iter().map(|(key, value)| (key.clone(), text(&value.kind)));
        (node.id, metadata.collect::<Vec<_>>(), node.user_agent_name)
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let wanted =
        ("edge-7".to_owned(), vec![pair("team", "x"), pair("zone", "a=b")], "weir".to_owned());
    assert_eq!(identity(server.sotw.next().node), wanted);
    assert_eq!(server.sotw.header("authorization").as_deref(), Some("Bearer x"));
    assert_eq!(server.sotw.header("x-team").as_deref(), Some("weir"));
    // On each request, as the reference does.
    assert_eq!(identity(server.answer_to("1", Vec::new()).node), wanted);
    assert!(!weir.said().contains("Bearer"));
}

#[test]
fn invalid_rules_are_rejected_with_their_field_and_the_active_ones_stay() {
    let server = Management::start();
    let weir = with_shop(&server);
    let rejected = |version: &str, resources| {
        let why = server.rejected(version, resources, "1");
        until(&weir, &[("shop", 1)]);
        assert!(weir.is_healthy());
        why
    };
    let why = rejected("2", vec![any(&rules("shop", 2)), any(&bad("cart"))]);
    let wanted = "cart-resource: error: invalid rate limit unit 'UNKNOWN'\n  \
                  at: descriptors[0].rate_limit.unit (cart)\n  help: ";
    assert!(why.starts_with(wanted), "{why}");
    assert!(!why.contains("shop-resource"), "{why}");

    let garbage = Any { type_url: TYPE_URL.into(), value: b"\xff\xff".to_vec() };
    let cluster = Any { type_url: "type.googleapis.com/x.Cluster".into(), ..Any::default() };
    let why = rejected("3", vec![any(&rules("shop", 2)), garbage, cluster]);
    assert!(why.contains("resource 2: error: the resource cannot be read"), "{why}");
    assert!(
        why.contains("resource 3: error: the resource is a \"type.googleapis.com/x.C"),
        "{why}"
    );

    server.sotw.send(DiscoveryResponse {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".into(),
        nonce: "other".into(),
        ..Default::default()
    });
    let answer = server.sotw.next();
    assert_eq!((answer.version_info.as_str(), answer.response_nonce.as_str()), ("1", "other"));
    assert!(answer.error_detail.unwrap().message.contains("v3.Cluster"));
    until(&weir, &[("shop", 1)]);

    let many = (0..500).map(|i| any(&bad(&format!("d{i}")))).collect();
    let why = rejected("4", many);
    assert!(why.len() < 5_000 && why.contains("(500 errors in all; "), "{}", why.len());
    assert_eq!(weir.metric("weir_config_load_error_total"), 4);
    let status = http::get(weir.debug, "/status").json();
    assert!(status["refused"]["problems"].as_str().unwrap().contains("d499-resource:"));
    assert_eq!(status["source"]["version"], "1");

    server.set("5", vec![any(&rules("shop", 2)), any(&rules("cart", 2))]);
    until(&weir, &[("cart", 2), ("shop", 2)]);
    assert!(http::get(weir.debug, "/status").json()["refused"].is_null());
}

#[test]
fn siblings_are_merged_with_a_note_in_the_status() {
    let server = Management::start();
    let weir = with_shop(&server);
    assert_eq!(http::get(weir.debug, "/status").json()["rules"]["warnings"], "");
    let each = RateLimitDescriptor {
        key: "user".into(),
        descriptors: vec![descriptor("path", policy(3))],
        ..Default::default()
    };
    server.set("2", vec![any(&of("shop", vec![descriptor("user", policy(7)), each]))]);
    wait_for("both rules", || {
        let rules = http::get(weir.debug, "/rlconfig").body;
        let has = |rule: &str| rules.lines().any(|line| line.starts_with(rule));
        (has("shop.user: unit=YEAR requests_per_unit=7") && has("shop.user.path: unit=YEAR"))
            .then_some(())
    });
    let status = http::get(weir.debug, "/status").json();
    let warnings = status["rules"]["warnings"].as_str().unwrap();
    assert!(
        warnings.starts_with("shop-resource: warning: one descriptor is merged with a sibling")
            && warnings.contains("at: descriptors[1] (user)"),
        "{warnings}"
    );
    assert!(status["problems"].as_array().unwrap().is_empty(), "{status}");
    assert!(weir.said().contains("one descriptor is merged"));
}

#[test]
fn a_repeated_rejected_set_is_compiled_once() {
    let server = Management::start();
    let weir = with_shop(&server);
    let why = server.rejected("2", vec![any(&bad("shop"))], "1");
    // Like some servers, it resends the same set after each rejection.
    let start = Instant::now();
    for version in ["3", "4", "5"] {
        assert_eq!(server.rejected(version, vec![any(&bad("shop"))], "1"), why);
    }
    // 100 + 200 + 400 ms.
    assert!(start.elapsed() >= std::time::Duration::from_millis(700), "{:?}", start.elapsed());
    assert_eq!(weir.metric("weir_config_load_error_total"), 1);
    assert_eq!(weir.said().matches("rules are rejected").count(), 1);
    // A valid set is not delayed by the answer to the invalid one.
    for version in ["6", "7"] {
        let rules = if version == "6" { bad("shop") } else { rules("shop", 7) };
        server.sotw.send(DiscoveryResponse {
            version_info: version.into(),
            resources: vec![any(&rules)],
            nonce: version.into(),
            ..Default::default()
        });
    }
    let (rejected, taken) = (server.sotw.next(), server.sotw.next());
    assert!(rejected.response_nonce == "6" && rejected.error_detail.is_some());
    assert!(taken.response_nonce == "7" && taken.version_info == "7");
    until(&weir, &[("shop", 7)]);
}

#[tokio::test]
async fn an_empty_set_of_resources_is_valid() {
    let server = Management::start();
    let weir = with_shop(&server);
    server.set("2", Vec::new());
    until(&weir, &[]);
    assert!(weir.is_healthy());
    assert_eq!(code(weir.grpc, request("shop", &[("user", "ann")])).await, Code::Ok);
    assert_eq!(weir.metric(r#"weir_domain_not_found_total{domain="shop"}"#), 1);
}

#[test]
fn health_may_require_a_domain() {
    let server = Management::start();
    let weir = asking(server.address)
        .env("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")
        .env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
        .start_unhealthy();
    server.sotw.next();
    assert!(!weir.is_healthy());
    for (version, resources, healthy) in [
        ("1", vec![], false),
        ("2", vec![any(&rules("shop", 1))], true),
        ("3", vec![], false),
        ("4", vec![any(&rules("shop", 1))], true),
    ] {
        server.set(version, resources);
        assert_eq!(weir.is_healthy(), healthy, "{version}");
    }
    server.rejected("5", vec![any(&bad("shop"))], "4");
    assert!(weir.is_healthy());
}

#[test]
fn merged_domains_may_have_several_resources() {
    let two = || {
        let more = of("shop", vec![descriptor("cart", policy(5))]);
        vec![any(&rules("shop", 1)), any(&RateLimitConfig { name: "more".into(), ..more })]
    };
    let server = Management::start();
    let _weir = with_shop(&server);
    let why = server.rejected("2", two(), "1");
    assert!(why.contains("more:") && why.contains("shop"), "{why}");

    let server = Management::start();
    let weir = asking(server.address).env("MERGE_DOMAIN_CONFIG", "true").start_unhealthy();
    server.sotw.next();
    server.set("1", two());
    let rules = http::get(weir.debug, "/rlconfig").body;
    assert!(rules.contains("shop.user: ") && rules.contains("shop.cart: "), "{rules}");
}

#[tokio::test]
async fn keys_of_weir_itself_are_accepted() {
    let server = Management::start();
    let weir = asking(server.address).start_unhealthy();
    server.sotw.next();
    // One hit per hour, but three at once.
    let bucket = RateLimitPolicy {
        unit: RateLimitUnit::Hour.into(),
        requests_per_unit: 1,
        algorithm: "token_bucket".into(),
        burst: Some(3),
        ..Default::default()
    };
    let days = RateLimitPolicy {
        period: Some(Duration { seconds: 7 * 86_400, nanos: 0 }),
        algorithm: "sliding_log".into(),
        requests_per_unit: 2,
        ..Default::default()
    };
    let several = RateLimitDescriptor { rate_limits: vec![days, policy(9)], ..Default::default() };
    let several = RateLimitDescriptor { key: "ip".into(), ..several };
    server.set("1", vec![any(&of("shop", vec![descriptor("user", bucket), several]))]);
    for (key, allowed) in [("user", 3), ("ip", 2)] {
        for hit in 1..=allowed + 1 {
            let wanted = if hit > allowed { Code::OverLimit } else { Code::Ok };
            assert_eq!(
                code(weir.grpc, request("shop", &[(key, "x")])).await,
                wanted,
                "{key} {hit}"
            );
        }
    }
    let unknown = RateLimitPolicy { algorithm: "guess".into(), ..policy(1) };
    let why = server.rejected("2", vec![any(&of("shop", vec![descriptor("user", unknown)]))], "1");
    assert!(why.contains("guess") && why.contains("token_bucket"), "{why}");
}

#[test]
fn resources_may_be_wrapped() {
    let server = Management::start();
    let weir = asking(server.address).start_unhealthy();
    server.sotw.next();
    let wrapper =
        Resource { resource: Some(any(&rules("shop", 4))), name: "w".into(), ..Default::default() };
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".to_owned();
    server.set("1", vec![Any { type_url, value: wrapper.encode_to_vec() }]);
    until(&weir, &[("shop", 4)]);
}

#[tokio::test]
async fn ten_thousand_descriptors_are_loaded_while_requests_are_answered() {
    let server = Management::start();
    let weir = with_shop(&server);
    let many: Vec<_> = (0..10_000)
        .map(|i| RateLimitDescriptor {
            value: format!("a-value-of-some-length-{i}"),
            ..descriptor("user", policy(i + 1))
        })
        .collect();
    let many = vec![any(&rules("shop", 1)), any(&of("many", many))];
    server.sotw.send(DiscoveryResponse {
        version_info: "2".into(),
        resources: many,
        ..Default::default()
    });
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    while http::get(weir.debug, "/rlconfig").body.lines().count() < 10_001 {
        client.should_rate_limit(request("shop", &[("user", "ann")])).await.unwrap();
    }
    let answer = server.sotw.next();
    assert_eq!((answer.version_info.as_str(), answer.error_detail), ("2", None));
    let asked = request("many", &[("user", "a-value-of-some-length-9999")]);
    let answer = ask(weir.grpc, asked).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 9_999);
}

#[test]
fn a_response_that_is_too_long_is_reported_and_the_rules_stay() {
    let server = Management::start();
    let mut weir =
        asking(server.address).env("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0x400").start_unhealthy();
    server.sotw.next();
    server.set("1", vec![any(&rules("shop", 1))]);
    server.sotw.send(DiscoveryResponse {
        resources: (0..100).map(|i| any(&rules(&format!("d{i}"), 1))).collect(),
        ..Default::default()
    });
    weir.until_said("decoded message length too large").unwrap();
    // It reconnects with the version it has.
    assert_eq!(server.sotw.next().version_info, "1");
    until(&weir, &[("shop", 1)]);
}

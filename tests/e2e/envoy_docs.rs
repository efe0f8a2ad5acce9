//! The configurations of docs/envoy.md, in a real Envoy. Its cluster is that of all other documents and examples.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use super::documents;
use crate::support::weir::{Setup, serving};
use crate::support::{PATIENCE, envoy, http, wait_for, yaml};

const DOCUMENT: &str = include_str!("../../docs/envoy.md");

/// A configuration with places for the parts that the document shows alone.
const SURROUNDINGS: &str = r#"
static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                http_filters:
                  {http filter}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      rate_limits:
                        - actions:
                            - request_headers: { header_name: x-user, descriptor_key: user }
                      routes:
                        {route}
                        - match: { prefix: / }
                          route: { cluster: backend }
  clusters:
    {cluster}
    - name: backend
      load_assignment:
        cluster_name: backend
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 10002 } } }
"#;

const CLUSTER: &str = r#"
name: weir
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http2_protocol_options: {} }
load_assignment:
  cluster_name: weir
  endpoints:
    - lb_endpoints:
        - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8081 } } }
"#;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 20 }
  - key: route
    value: reports
    rate_limit: { unit: year, requests_per_unit: 1 }
";

const SEARCH_RULES: &str = "\
domain: search
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 25 }
";

/// The rows of the table "What Envoy 1.40 really does", and the tests that show them.
const ROWS: [(&str, &str); 16] = [
    ("`rate_limited_status` below 400", "statuses_below_400_deny_nothing_or_are_ignored"),
    ("`status_on_error` below 400", "statuses_below_400_deny_nothing_or_are_ignored"),
    (
        "`failure_mode_deny` beside `failure_mode_deny_percent`",
        "statuses_below_400_deny_nothing_or_are_ignored",
    ),
    ("`rate_limited_as_resource_exhausted`", "without_an_answer_the_filter_decides"),
    ("weir exceeds `timeout`", "a_stalled_weir_keeps_its_connections"),
    (
        "the cluster lacks HTTP/2, or has `use_downstream_protocol_config`",
        "without_http2_weir_is_not_asked",
    ),
    (
        "`format` gives no number between 0 and 10⁹",
        "without_a_number_of_hits_a_request_passes_unasked metadata_alone_sends_no_start_for_odd_numbers",
    ),
    ("`format` makes a text: `%CEL(string(request.size))%`", "expressions_cannot_make_texts"),
    ("two items with the same entries", "an_item_that_a_route_has_twice_is_charged_twice"),
    ("`apply_on_stream_done`", "costs_are_charged_at_the_end_of_the_stream"),
    ("`generic_key` with `%REQ(x-user)%`", "a_generic_key_is_sent_as_written"),
    (
        "`request_headers` with bytes that are not UTF-8",
        "a_header_that_is_not_utf_8_is_counted_and_the_other_limits_hold",
    ),
    (
        "Thrift: `descriptor_key` of `generic_key`, `header_value_match`",
        "the_thrift_filter_ignores_descriptor_keys",
    ),
    ("several limits", "clients_see_200_until_the_limit_then_429_with_headers"),
    (
        "limits of a day, of two, of a year",
        "headers_of_weir_show_the_burst_that_remains clients_see_200_until_the_limit_then_429_with_headers",
    ),
    ("`rate: 10/d, burst: 20`", "headers_of_weir_show_the_burst_that_remains"),
];

fn blocks() -> impl Iterator<Item = &'static str> {
    let after_fence = DOCUMENT.split("```yaml\n").skip(1);
    after_fence.map(|text| text.split("```").next().unwrap())
}

/// Returns the blocks that start with this line.
fn blocks_with(first_line: &str) -> Vec<&'static str> {
    let found: Vec<_> = blocks().filter(|block| block.lines().next() == Some(first_line)).collect();
    assert!(!found.is_empty(), "docs/envoy.md has no block that starts with {first_line:?}");
    found
}

fn complete_example() -> &'static str {
    blocks_with("static_resources:")[0]
}

/// Returns weir's cluster of the complete example, which the page explains.
pub(super) fn cluster() -> Value {
    let example = yaml::document(complete_example());
    let mut found = Vec::new();
    clusters(&example, &mut found);
    (*found.first().expect("a cluster")).clone()
}

/// Adds weir's clusters.
fn clusters<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| clusters(item, found)),
        Value::Object(fields) => {
            if fields.contains_key("load_assignment") && value["name"] == "weir" {
                return found.push(value);
            }
            fields.values().for_each(|field| clusters(field, found));
        }
        _ => {}
    }
}

#[test]
fn all_documents_and_examples_have_the_same_cluster() {
    let wanted = cluster();
    let mut count = 0;
    for documents::Text { place, text, .. } in documents::texts() {
        let has_clusters = text.contains("load_assignment");
        let values = if has_clusters { yaml::documents(&text) } else { Vec::new() };
        let mut found = Vec::new();
        values.iter().for_each(|value| clusters(value, &mut found));
        for cluster in found {
            let fields = cluster.as_object().unwrap();
            count += 1;
            for (key, value) in fields.iter().filter(|(key, _)| *key != "load_assignment") {
                assert_eq!(*value, wanted[key], "{place}: {key}");
            }
            for key in wanted.as_object().unwrap().keys() {
                assert!(fields.contains_key(key), "{place}: {key} is missing");
            }
        }
    }
    // docs/envoy.md, examples/envoy and examples/compose.
    assert!(count >= 5, "{count} clusters");
}

/// Returns the place of a part in [`SURROUNDINGS`].
fn place(part: &str) -> &'static str {
    match part.split_once(['\n', ':']).unwrap() {
        ("name", rest) if rest.starts_with(" envoy.filters.http.") => "http filter",
        ("name", rest) if rest.starts_with(" weir\n") => "cluster",
        ("match", _) => "route",
        other => panic!("unknown kind of block: {other:?}"),
    }
}

/// Surrounds parts with all that Envoy needs.
fn complete(parts: &[&str]) -> String {
    let has_cluster = parts.iter().any(|part| place(part) == "cluster");
    let cluster = Some(CLUSTER.trim_start()).filter(|_| !has_cluster);
    let mut config = String::new();
    for line in SURROUNDINGS.lines() {
        let Some(name) = line.trim_start().strip_prefix('{') else {
            config += &format!("{line}\n");
            continue;
        };
        let margin = &line[..line.len() - name.len() - 1];
        for part in parts.iter().copied().chain(cluster) {
            if place(part) != name.trim_end_matches('}') {
                continue;
            }
            for (number, line) in part.lines().enumerate() {
                let dash = if number == 0 { "- " } else { "  " };
                config += &format!("{margin}{dash}{line}\n");
            }
        }
    }
    config
}

#[test]
fn envoy_accepts_every_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["weir-headless.weir.svc.cluster.local".into()])
            .unwrap();
    for (name, text) in [
        ("weir-ca.pem", cert.pem()),
        ("envoy.pem", cert.pem()),
        ("envoy.key", signing_key.serialize_pem()),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let mut accepted = 0;
    for block in blocks() {
        let config = match block.split(':').next().unwrap() {
            "domain" => continue,
            "static_resources" => block.to_owned(),
            _ => complete(&[block]),
        };
        let config = config.replace("/etc/envoy", dir.path().to_str().unwrap());
        if let Err(error) = envoy::validate(&config) {
            panic!("{error}\n{block}");
        }
        accepted += 1;
    }
    assert!(accepted >= 6, "{accepted}");
    let broken = complete_example().replace("failure_mode_deny", "failure_mode_denies");
    assert!(envoy::validate(&broken).is_err(), "unknown fields are noticed");
}

/// Connects and sends a request over the TCP listener. Returns whether the backend answered.
fn passes(envoy: &envoy::Envoy) -> bool {
    let mut socket = TcpStream::connect(envoy.listener("database")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // A connection over its limit may be closed at any time.
    let _ = socket.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer.starts_with(b"HTTP/1.1 200")
}

#[test]
fn the_complete_example_limits_requests_and_connections() {
    let rules = blocks_with("domain: shop")[0].replace("/m\n", "/year\n");
    let weir = serving(&rules).start();
    let envoy = envoy::documented(complete_example(), &weir);
    let ann = [("x-user", "ann")];

    // A search costs 10 of 20 hits, everything else one.
    assert_eq!(envoy.statuses(1, "/search", &ann), [200]);
    assert_eq!(envoy.statuses(11, "/", &ann), [&[200; 10][..], &[429]].concat());
    assert_eq!(envoy.statuses(3, "/healthz", &ann), [200; 3]);
    let answer = http::get_with(envoy.address, "/", &[("x-user", "bob")]);
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("19"));

    let passed: Vec<_> = (0..5).map(|_| passes(&envoy)).collect();
    assert_eq!(passed, [true, true, true, false, false]);

    // All statistics of the table.
    let stats = envoy.stats();
    let (_, table) = DOCUMENT.split_once("## What to monitor").unwrap();
    let names = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let names: Vec<_> = names.collect();
    assert!(names.len() >= 9);
    let unused =
        ["cluster.backend.ratelimit.error", "cluster.backend.ratelimit.failure_mode_allowed"];
    for name in names.into_iter().filter(|name| !unused.contains(name)) {
        let shown = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
        assert!(stats.lines().any(shown), "Envoy has no statistic {name}:\n{stats}");
    }
    assert_eq!(envoy.stat("cluster.backend.ratelimit.over_limit"), 1);
    assert_eq!(envoy.stat("ratelimit.database.cx_closed"), 2);
}

#[test]
fn routes_choose_their_domain_and_descriptors() {
    let weir = Setup::new().file("rules/a.yaml", RULES).file("rules/b.yaml", SEARCH_RULES);
    let weir = weir.arg("serve").arg("--rules").arg("rules").start();
    let mut parts = blocks_with("name: envoy.filters.http.ratelimit");
    parts.truncate(1);
    let routes = blocks().filter(|block| block.starts_with("match:"));
    // The first one is for all paths.
    parts.extend(routes.filter(|block| !block.starts_with("match: { prefix: / }")));
    assert_eq!(parts.len(), 3);
    let envoy = envoy::documented(&complete(&parts), &weir);
    let statuses = |count, path, user| envoy.statuses(count, path, &[("x-user", user)]);

    assert_eq!(statuses(21, "/", "ann"), [&[200; 20][..], &[429]].concat());
    // The other domain: 25 hits, of which each search takes 10.
    assert_eq!(statuses(3, "/search", "ann"), [200, 200, 429]);
    // The route's own limit, and that of the virtual host.
    assert_eq!(statuses(2, "/reports", "bob"), [200, 429]);
    let answer = http::get_with(envoy.address, "/", &[("x-user", "bob")]);
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("17"));
}

#[test]
fn the_rows_of_the_table_are_tested() {
    let (_, table) = DOCUMENT.split_once("## What Envoy 1.40 really does\n\n").unwrap();
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
    let shown: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).collect();
    assert_eq!(shown, ROWS.map(|(row, _)| row));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e");
    let sources = ["envoy", "envoy_docs", "envoy_filters", "holds", "budgets/expressions"];
    let read = |name| fs::read_to_string(root.join(format!("{name}.rs"))).unwrap();
    let tests: String = sources.map(read).concat();
    for test in ROWS.iter().flat_map(|(_, names)| names.split(' ')) {
        assert!(tests.contains(&format!("#[test]\nfn {test}() {{")), "{test}");
    }
}

#[test]
fn without_an_answer_the_filter_decides() {
    let filter = blocks_with("name: envoy.filters.http.ratelimit")[0];
    let denying = filter.replace("failure_mode_deny: false", "failure_mode_deny: true");
    for (filter, status) in [(filter, 200), (&denying, 503)] {
        let mut weir = serving(RULES).start();
        let envoy = envoy::documented(&complete(&[filter]), &weir);
        let ask = |headers: &[(&str, &str)]| http::get_with(envoy.address, "/", headers);
        let ann = [("x-user", "ann"), ("content-type", "application/grpc")];
        for _ in 0..20 {
            assert_eq!(ask(&ann).status, 200);
        }
        // rate_limited_as_resource_exhausted: the status of gRPC is in a header.
        let denied = ask(&ann);
        assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("8")));
        weir.kill();
        assert_eq!(ask(&[("x-user", "bob")]).status, status);
        wait_for("the error is counted", || {
            (envoy.stat("cluster.backend.ratelimit.shop.error") == 1).then_some(())
        });
        let allowed = envoy.stat("cluster.backend.ratelimit.shop.failure_mode_allowed");
        assert_eq!(allowed, u64::from(status == 200));
    }
}

//! The table of docs/migrating.md: each rule admits what its lines do, and the real Envoy accepts what it needs.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::envoy;

const DOCUMENT: &str = include_str!("../../docs/migrating.md");

/// A part of each row's lines, the descriptor of its first request, and how many requests pass at once.
const ROWS: [(&str, &str, u32); 12] = [
    ("limit_req zone=login", "limit=login,remote_address=192.0.2.1", 6),
    ("limit_conn downloads", "limit=downloads,remote_address=192.0.2.1,request_id={n}", 10),
    ("limit-rps", "limit=shop,remote_address=192.0.2.1", 51),
    ("minute: 60", "limit=kong,remote_address=192.0.2.1", 60),
    ("window_size", "limit=advanced,api_key=a", 5),
    ("window: 10s", "method=POST,remote_address=192.0.2.1", 5),
    ("max_value", "tier=free,user=ann", 10),
    ("tokens_per_fill", "limit=local", 1_000),
    ("average", "limit=traefik,remote_address=192.0.2.1", 50),
    ("CL.THROTTLE", "user=ann", 16),
    ("maxretry", "remote_address=192.0.2.1", 4),
    ("unit=MINUTE", "api_key=a", 20),
];

const FILTER: &str = r#"
static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: shop
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: { google_grpc: { target_uri: "127.0.0.1:1", stat_prefix: weir } }
                      rate_limits:
                        {items}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{ match: { prefix: / }, route: { cluster: backend } }]
  clusters: [{ name: backend }]
"#;

/// The texts in backticks of a cell.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Runs weir in a directory. Returns its output.
fn weir(directory: &Path, command: &str) -> String {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.args(command.split(' ')).current_dir(directory).output().expect("weir runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{command}: {}", text.concat());
    text.concat()
}

/// A test whose requests all pass but the last, one after the other at one time.
fn test_of(descriptor: &str, admitted: u32) -> String {
    let step = |n: u32| {
        let code = if n < admitted { "OK" } else { "OVER_LIMIT" };
        let descriptor = descriptor.replace("{n}", &n.to_string());
        format!("      - {{ descriptors: ['{descriptor}'], expect: {{ code: {code} }} }}\n")
    };
    let steps: String = (0..=admitted).map(step).collect();
    format!("rules: [rules.yaml]\ndomain: shop\ntests:\n  - name: row\n    steps:\n{steps}")
}

#[test]
fn each_rule_admits_what_its_lines_do_and_envoy_accepts_its_actions() {
    let (_, section) = DOCUMENT.split_once("## From other programs").expect("a section");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| line.trim_matches('|').split(" | ").collect())
        .collect();
    assert_eq!(rows.len(), ROWS.len());
    for (row, (lines, descriptor, admitted)) in rows.iter().zip(ROWS) {
        let [_, old, rule, actions] = row[..] else { panic!("four cells: {row:?}") };
        assert!(old.contains(lines), "{lines}: {old}");
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: String| {
            fs::write(directory.path().join(name), text).expect("a file");
        };
        write("rules.yaml", format!("domain: shop\ndescriptors:\n  - {}\n", code(rule).concat()));
        write("row.test.yaml", test_of(descriptor, admitted));
        let config = FILTER.replace("{items}", &code(actions).join("\n                        "));
        write("envoy.yaml", config.clone());
        weir(directory.path(), "test row.test.yaml");
        weir(directory.path(), "check rules.yaml --envoy envoy.yaml --deny-warnings");
        assert_eq!(envoy::validate(&config), Ok(()), "{lines}");
    }
}

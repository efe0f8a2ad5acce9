//! The subcommand `weir convert`: what it writes for other programs, and that `weir check` accepts it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs weir in a directory. Returns the exit code and the outputs.
fn weir(directory: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

const NGINX: &str = "\
http {
  limit_req_zone $binary_remote_addr zone=address:10m rate=10r/s;
  limit_req_zone $http_x_api_key$request_method zone=key:10m rate=30r/m;
  limit_conn_zone $server_name zone=host:10m;
  limit_req zone=address burst=20 nodelay;
  server {
    server_name shop.example;
    location / { proxy_pass http://a; }
    location /login { limit_req zone=key burst=5; limit_conn host 10; }
    location ~ \\.php$ { limit_conn host 5; }
  }
  server { listen 81 default_server; }
}
";

const ENVOY: &str = "\
http_filters:
- name: envoy.filters.http.local_ratelimit
  typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
    stat_prefix: edge
    token_bucket: { max_tokens: 1000, tokens_per_fill: 100, fill_interval: 0.1s }
    descriptors:
    - { entries: [{ key: user, value: ann }], token_bucket: { max_tokens: 5, tokens_per_fill: 5, fill_interval: 1s } }
    - { entries: [{ key: user }], token_bucket: { max_tokens: 5, fill_interval: 60s } }
    - { entries: [{ key: other }], token_bucket: { max_tokens: 5, fill_interval: 60s } }
    filter_enabled: { default_value: { numerator: 100 } }
    filter_enforced: { default_value: { numerator: 100 } }
route_config:
  virtual_hosts:
  - name: all
    domains: ['*']
    rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }] }]
    routes: [{ match: { prefix: /a }, route: { cluster: a } }, { match: { prefix: / }, route: { cluster: b } }]
";

const KONG: &str = "\
_format_version: '3.0'
services:
- name: shop
  plugins: [{ name: rate-limiting, config: { minute: 60, month: 10000, limit_by: ip } }]
  routes:
  - { name: all, paths: [/], hosts: [shop.example] }
  - name: search
    paths: [/search, '~/find']
    methods: [GET, POST]
    plugins:
    - { name: rate-limiting-advanced, config: { limit: [5, 50], window_size: [30, 3600], identifier: consumer } }
";

const KUADRANT: &str = "\
apiVersion: kuadrant.io/v1
kind: RateLimitPolicy
metadata: { name: toys, namespace: shop }
spec:
  targetRef: { group: gateway.networking.k8s.io, kind: HTTPRoute, name: toys }
  limits:
    writes:
      rates: [{ limit: 5, window: 10s }]
      when: [{ predicate: \"request.method == 'POST'\" }]
      counters: [{ expression: source.address }]
    all: { rates: [{ limit: 500, window: 1m }] }
    users: { rates: [{ limit: 5, window: 1m }], counters: [{ expression: auth.identity.userid }] }
";

#[test]
fn what_is_written_fits_together() {
    for (file, text, rules, not_converted) in [
        (
            "nginx.conf",
            NGINX,
            4,
            "nginx.conf:9: nginx delays requests of the burst without `nodelay`",
        ),
        ("envoy.yaml", ENVOY, 3, "envoy.yaml:10: no `rate_limits` of a route"),
        ("kong.yaml", KONG, 2, "kong.yaml:11: `identifier: consumer`: Envoy does not know"),
        ("policy.yaml", KUADRANT, 2, "policy.yaml:12: `auth.identity.userid`: Envoy has no `auth`"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(file), text).unwrap();
        let (code, out, err) =
            weir(directory.path(), &["convert", file, "-d", "shop", "--out", "converted"]);
        assert_eq!(out, "converted/rules.yaml\nconverted/envoy-actions.yaml\n", "{err}");
        assert_eq!(code, Some(1), "something has no equivalent");
        assert!(err.contains(&format!("not converted: {not_converted}")), "{err}");
        let check = ["check", "converted/rules.yaml", "--deny-warnings", "--envoy"];
        let check = [&check[..], &["converted/envoy-actions.yaml"]].concat();
        let (code, out, err) = weir(directory.path(), &check);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
        assert!(
            out.contains(&format!("ok: {rules} rules in 1 domain of 1 file, 0 warnings")),
            "{out}"
        );
        // Nothing is overwritten.
        let again = weir(directory.path(), &["convert", file, "-d", "shop", "--out", "converted"]);
        assert!(again.2.contains("rules.yaml exists and is not overwritten"), "{}", again.2);
        let (_, out, err) = weir(directory.path(), &["convert", file]);
        assert!(out.starts_with("domain: example\n"), "{out}");
        assert!(err.contains("note: --out DIR writes what Envoy sends"), "{err}");
    }
}

#[test]
fn formats_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), "rules: []\n").unwrap();
    let (code, _, err) = weir(directory.path(), &["convert", "a.yaml"]);
    assert_eq!(code, Some(1));
    let formats = "limitador, reference-json, nginx, envoy-local, kong, kuadrant, shorthand";
    assert!(err.contains(&format!("write --from and one of {formats}")), "{err}");
    let (_, help, _) = weir(directory.path(), &["convert", "--help"]);
    for format in formats.split(", ") {
        assert!(help.contains(&format!("- {format}:")), "{help}");
    }
}

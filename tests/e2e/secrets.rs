//! Secrets in settings and arguments are shown nowhere, and values of clients in no metric.

use std::process::Command;

use serde_json::json;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::support::api::{ask, descriptor, user_request};
use crate::support::certificates::Authority;
use crate::support::http;
use crate::support::redis::Client;
use crate::support::statsd::StatsdServer;
use crate::support::weir::{Setup, serving};

const SECRET: &str = "S3cret";

/// `weir serve` with a secret in each URL and each list that may hold one. Nobody listens there.
fn with_secrets() -> Setup {
    let login = format!("ann:{SECRET}@127.0.0.1:1");
    let mut setup = Setup::new().arg("serve");
    for (variable, value) in [
        ("STORE__REDIS__URL", format!("redis://{login}/0")),
        ("STORE__REDIS__PER_SECOND__URL", format!("redis://{login}/1")),
        ("RULES__XDS__URL", login.clone()),
        ("RULES__XDS__HEADERS", format!("authorization:{SECRET}")),
        ("RULES__XDS__NODE_METADATA", format!("token={SECRET}")),
        ("OTLP__HEADERS", format!("authorization={SECRET}")),
        ("TRACING__ENDPOINT", format!("http://{login}/v1/traces")),
    ] {
        setup = setup.env(&format!("WEIR__{variable}"), value);
    }
    setup
        .env("WEIR__RULES__SOURCE", "xds")
        .env("WEIR__TRACING__ENABLED", "true")
        .env("WEIR__LOG__LEVEL", "debug")
        .env("WEIR__DRAIN__DELAY", "0")
}

fn check(what: &str, text: &str) {
    assert!(!text.contains(SECRET), "{what}:\n{text}");
}

#[test]
fn they_are_not_in_printed_settings() {
    let (status, output) = with_secrets().arg("--print-settings").run();
    assert_eq!(status.code(), Some(0), "{output}");
    // The settings have arrived.
    assert!(output.contains("rules.xds.url = \"***@127.0.0.1:1\""), "{output}");
    check("printed settings", &output);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_neither_in_the_log_of_failures_nor_in_the_status() {
    // A request waits that long for rules, which nobody sends.
    let mut weir = with_secrets().env("WEIR__CLIENTS__TIMEOUT", "2s").start_unhealthy();
    // It may fail: it is traced.
    let _ = ask(weir.grpc, user_request()).await;
    for failure in [
        "cannot connect to redis",
        "no stream from the management server",
        "cannot export telemetry",
    ] {
        weir.until_said(failure).unwrap();
    }
    for path in ["/status", "/metrics", "/rlconfig", "/stats"] {
        let address = if path == "/metrics" { weir.http } else { weir.debug };
        check(path, &http::get(address, path).body);
    }
    weir.signal("TERM");
    weir.wait_until_ended();
    let said = weir.said_in_all();
    assert!(said.contains("***@127.0.0.1:1"), "{said}");
    check("the log", &said);
}

/// Arguments with a secret in a wrong place, and what their error names.
const WRONG_PLACES: [(&str, &str); 16] = [
    ("top --server http://u:S3cret@h", "--server is \"http://***@h\""),
    ("top --server S3cret@h", "--server is \"***@h\""),
    ("top --token-file S3cret", "--token-file *** (not a file) cannot be read"),
    ("top --server https://localhost:1 --cert tls.crt --key S3cret", "--key names ***"),
    ("health --url http://u:S3cret@h", "'http://***@h' for '--url"),
    ("hit u:S3cret@h -d shop user=ann", "'***@h' for '[ADDRESS]'"),
    ("http://u:S3cret@h", "'http://***@h'"),
    ("controls u:S3cret@h:6379", "'***@h:6379'"),
    ("serve --set metrics.statsd.address=u:S3cret@h", "metrics.statsd.address is \"***@h\""),
    ("serve --set grpc.address=S3cret@h", "grpc.address is \"***@h\""),
    ("serve --http-address u:S3cret@h", "http.address is \"***@h\""),
    ("serve --set drain.delay=u:S3cret@h", "drain.delay is \"***@h\""),
    (
        "serve --rules / --set debug.read_token_file=S3cret",
        "debug.read_token_file: *** (not a file)",
    ),
    ("serve --rules / --set debug.write_token_file=/S3cret", "debug.write_token_file: *** (not"),
    (
        "serve --rules / --set resp.password_file=S3cret/S3 --set resp.address=127.0.0.1:0",
        "resp.password_file: *** (not a file)",
    ),
    (
        "serve --rules / --set grpc.tls.enabled=true --set grpc.tls.cert=tls.crt --set grpc.tls.key=S3cret",
        "grpc.tls.key names ***",
    ),
];

#[test]
fn they_are_not_in_errors_about_what_holds_them_in_the_wrong_place() {
    let identity = Authority::new().sign(&["localhost"]);
    for (args, named) in WRONG_PLACES {
        let mut setup = Setup::new().file("tls.crt", &identity.cert);
        for arg in args.split(' ') {
            setup = setup.arg(arg);
        }
        for place in ["GRPC", "HTTP", "DEBUG"] {
            setup = setup.env(&format!("WEIR__{place}__ADDRESS"), "127.0.0.1:0");
        }
        let (status, output) = setup.run();
        assert!(!status.success() && output.contains(named), "{args}: {output}");
        check(args, &output);
    }
    let server = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["controls"])
        .env("WEIR_SERVER", "http://u:S3cret@h")
        .output()
        .unwrap();
    let error = String::from_utf8(server.stderr).unwrap();
    assert!(error.contains("WEIR_SERVER is \"http://***@h\""), "{error}");
}

#[test]
fn they_are_not_in_the_log_of_connections_to_redis() {
    let setup = serving("domain: shop")
        .env("REDIS_URL", "127.0.0.1:1")
        .env("WEIR__STORE__REDIS__PASSWORD_FILE", SECRET)
        .env("WEIR__DRAIN__DELAY", "0");
    let mut weir = setup.start_unhealthy();
    weir.until_said("cannot read *** (not a file)").unwrap();
    check("the status", &http::get(weir.debug, "/status").body);
    weir.signal("TERM");
    weir.wait_until_ended();
    check("the log", &weir.said_in_all());
}

const ALL_KINDS: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
    descriptors:
      - key: path
        shadow_mode: true
        rate_limit: { unit: year, requests_per_unit: 1 }
  - key: wild
    value: 'S3*'
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: shared
    value: 'S3*'
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: address
    network: 203.0.113.0/24
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: several
    rate_limits:
      - { name: a, unit: hour, requests_per_unit: 1 }
      - { name: b, unit: year, requests_per_unit: 2, shadow_mode: true }
  - key: held
    rate_limit: { algorithm: concurrency, requests_per_unit: 1 }
  - key: smooth
    rate_limit: { unit: year, requests_per_unit: 1, algorithm: gcra }
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 10 }
    reserve: { id: call, settle: end, estimate: 6 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: free
    rate_limit: { unlimited: true }
";

/// An address of a client, which is as secret.
const ADDRESS: &str = "203.0.113.77";

/// Sends descriptors with the secret in each of their values: over limits, with a limit of their own, that
/// give back, that reserve and settle, and that are invalid.
async fn send_all_kinds(weir: &crate::support::weir::Weir) {
    let long = SECRET.repeat(100);
    let values = [SECRET, "\n S3cret.S3cret|c:1#\"\\{}=", &long, ADDRESS];
    let keys = ["user", "wild", "shared", "address", "several", "held", "smooth", "quota", "free"];
    let mut all = Vec::new();
    for value in values {
        all.extend(keys.map(|key| descriptor(&[(key, value)])));
        all.extend(["none", "tokens"].map(|key| descriptor(&[(key, value)])));
        all.push(descriptor(&[("user", value), ("path", value)]));
        all.push(descriptor(&[("tokens", value), ("call", value)]));
        all.push(descriptor(&[("tokens", value), ("call", value), ("end", value)]));
    }
    for kind in 0..4 {
        for mut descriptor in all.clone() {
            match kind {
                1 | 2 => {
                    let unit = if kind == 1 { 5 } else { 77 };
                    let limit =
                        RateLimitOverride { requests_per_unit: 1, unit, unit_multiplier: None };
                    descriptor.limit = Some(limit);
                }
                3 => descriptor.is_negative_hits = true,
                _ => {}
            }
            for _ in 0..3 {
                let domain = "shop".to_owned();
                let descriptors = vec![descriptor.clone()];
                // Some are invalid, and those of `held` have no end.
                let _ =
                    ask(weir.grpc, RateLimitRequest { domain, descriptors, hits_addend: 2 }).await;
            }
        }
    }
    for value in values {
        for key in keys {
            let entries = json!([{ "key": key, "value": value }]);
            let body = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
            http::post(weir.http, "/json", body.to_string());
            let mut body = body;
            (body["id"], body["amount"]) = (json!(value), json!(1));
            for path in ["reserve", "settle"] {
                http::post(weir.http, &format!("/v1/budget/{path}"), body.to_string());
            }
        }
        http::get(weir.http, &format!("/{SECRET}"));
    }
}

#[tokio::test]
async fn values_of_clients_are_in_no_metric() {
    let statsd = StatsdServer::tcp();
    let mut weir = serving(ALL_KINDS)
        .env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true")
        .env("WEIR__RESP__ADDRESS", "127.0.0.1:0")
        .env("WEIR__METRICS__MAX_SERIES", "100000")
        .env("USE_PROMETHEUS", "true")
        .env("PROMETHEUS_ADDR", "127.0.0.1:0")
        .env("STATSD_HOST", "127.0.0.1")
        .env("STATSD_PORT", statsd.address.port().to_string())
        .env("STATS_FLUSH_INTERVAL", "20ms")
        .start();
    let port_after = |said: String| said.trim_end_matches('\'').parse::<std::net::SocketAddr>();
    let resp = port_after(weir.until_said("Listening for RESP on '").unwrap()).unwrap();
    send_all_kinds(&weir).await;
    let mut redis = Client::connect(resp.port()).unwrap();
    for command in [
        &["WEIR.CHECK", "shop", "1", "user", SECRET][..],
        &["CL.THROTTLE", SECRET, "1", "1", "60"],
        &[SECRET, SECRET],
    ] {
        redis.send(command).unwrap();
    }
    // Limits that were sent count under the keys.
    statsd.wait_for_sum("ratelimit.service.rate_limit.shop.none.total_hits", "", 24);
    assert!(weir.metric(r#"weir_rule_hits_total{domain="shop",rule="tokens.call"}"#) > 0);
    let openmetrics = [("accept", "application/openmetrics-text;version=1.0.0")];
    for page in [
        http::get(weir.http, "/metrics").body,
        http::get_with(weir.http, "/metrics", &openmetrics).body,
        http::get(weir.debug, "/metrics").body,
        statsd.lines().join("\n"),
    ] {
        assert!(page.contains("rule_hits") || page.contains("total_hits"), "{page}");
        let all_but_rules = page.replace("_S3*", "");
        check("metrics", &all_but_rules);
        assert!(!page.contains(ADDRESS), "{page}");
    }
}

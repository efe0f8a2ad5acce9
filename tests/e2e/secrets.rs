//! Secrets in settings are shown nowhere.

use crate::support::api::{ask, user_request};
use crate::support::http;
use crate::support::weir::Setup;

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
        ("OTLP__ENDPOINT", format!("http://{login}/a")),
        ("TRACING__ENDPOINT", format!("http://{login}/v1/traces")),
        ("METRICS__OTLP__ENDPOINT", format!("http://{login}/v1/metrics")),
    ] {
        setup = setup.env(&format!("WEIR__{variable}"), value);
    }
    setup
        .env("WEIR__RULES__SOURCE", "xds")
        .env("WEIR__TRACING__ENABLED", "true")
        .env("WEIR__METRICS__OTLP__ENABLED", "true")
        .env("WEIR__METRICS__OTLP__INTERVAL", "1s")
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

#[tokio::test]
async fn they_are_neither_in_the_log_of_failures_nor_in_the_status() {
    let mut weir = with_secrets().start_unhealthy();
    // It may fail: it is traced.
    let _ = ask(weir.grpc, user_request()).await;
    for failure in [
        "cannot connect to redis",
        "no stream from the management server",
        "cannot export telemetry signal=\"metrics\"",
        "cannot export telemetry signal=\"traces\"",
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

//! Limits of the system, and settings beyond all bounds: errors, no panics.

use std::fs;
use std::net::UdpSocket;

use serde_json::json;

use crate::support::control_api::{ControlApi, of_user};
use crate::support::http;
use crate::support::wait_for;
use crate::support::weir::{Setup, serving};

fn with_rules() -> Setup {
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    \
                 rate_limit: { unit: year, requests_per_unit: 2 }\n";
    serving(rules)
}

/// On free ports, for a service that is to end.
fn setup() -> Setup {
    let free = ["--grpc-address", "--http-address", "--debug-address"];
    free.iter().fold(with_rules(), |setup, address| setup.arg(address).arg("127.0.0.1:0"))
}

/// Runs it to its end, which is an error at the start. Returns its output.
fn error(setup: Setup, code: i32) -> String {
    let (status, said) = setup.run();
    assert_eq!(status.code(), Some(code), "{said}");
    for bad in ["panic", "memory allocation", "backtrace"] {
        assert!(!said.contains(bad), "{said}");
    }
    said
}

#[test]
fn little_address_space_is_an_error_at_the_start() {
    for kib in [80_000, 160_000, 250_000, 500_000] {
        let said = error(setup().max_address_space(kib), 1);
        let wanted = format!("its address space is limited to {} MiB", kib / 1024);
        assert!(said.contains(&wanted) && said.contains("ulimit -v"), "{said}");
    }
}

#[test]
fn threads_whose_stacks_do_not_fit_are_an_error_at_the_start() {
    let setup = setup().max_address_space(600_000).env("WEIR__RUNTIME__THREADS", "1000");
    let said = error(setup, 1);
    let wanted = "limited to 585 MiB, and it needs at least 2512 MiB for 1000 serving threads";
    assert!(said.contains(wanted) && said.contains("ulimit -v"), "{said}");
}

#[test]
fn descriptors_that_do_not_suffice_are_an_error_at_the_start() {
    let said = error(setup().max_files(20).env("WEIR__RUNTIME__THREADS", "2"), 1);
    assert!(said.contains("Too many open files"), "{said}");
}

/// A limit of the size of files is like a full disk: a write ends in the middle.
#[test]
fn controls_that_do_not_fit_on_the_disk_are_not_kept_and_the_file_stays_whole() {
    let setup = with_rules().max_file_size(2);
    let file = setup.path("controls.json");
    let weir = setup.env("WEIR__CONTROLS__FILE", &file).start();
    let (api, metric) = (ControlApi::new(&weir), "weir_controls_unkept");
    let put = |user: &str, reason: &str| {
        let block = json!({ "action": "block", "for": "forever", "reason": reason });
        api.put_good(user, &of_user(user, &block))
    };
    assert_eq!(put("ann", "")["kept"], true);
    let whole = fs::read(&file).unwrap();
    let because = put("bob", &"x".repeat(900))["not_kept_because"].to_string();
    assert!(because.contains("controls.json cannot be written: File too large"), "{because}");
    assert_eq!((fs::read(&file).unwrap(), weir.metric(metric)), (whole, 1));
    let (_, deleted) = api.delete("/v1/controls/bob");
    assert_eq!((&deleted["kept"], weir.metric(metric)), (&json!(true), 0));
}

/// Settings that threads add to the current time.
const DURATIONS: [&str; 8] = [
    "WEIR__CLIENTS__TIMEOUT",
    "WEIR__DRAIN__TIMEOUT",
    "WEIR__GRPC__MAX_CONNECTION_AGE",
    "WEIR__GRPC__MAX_CONNECTION_AGE_GRACE",
    "WEIR__METRICS__FLUSH_INTERVAL",
    "WEIR__RULES__POLL",
    "WEIR__STORE__BUDGET",
    "WEIR__STORE__DENY_LOCALLY_FOR",
];

fn with_durations(setup: Setup, duration: &str) -> Setup {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let setup = DURATIONS.iter().fold(setup, |setup, name| setup.env(name, duration));
    setup
        .env("WEIR__METRICS__STATSD__ADDRESS", server.local_addr().unwrap().to_string())
        .env("TRACING_ENABLED", "true")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", u64::MAX.to_string())
        .env("WEIR__METRICS__STATSD__ENABLED", "true")
}

#[test]
fn the_longest_durations_stop_no_thread() {
    let mut weir = with_durations(with_rules(), "2562047h").start();
    wait_for("metrics", || (http::get(weir.http, "/metrics").status == 200).then_some(()));
    let failures = weir.metric(r#"weir_thread_failures_total{thread="weir-otlp"}"#);
    assert_eq!(failures, 0);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", body).status, 200);
    assert!(!weir.said().contains("panic"), "{}", weir.said());
    weir.kill();
}

#[test]
fn longer_durations_are_errors() {
    let said = error(with_durations(setup(), "200000000000000d"), 64);
    for name in DURATIONS {
        assert!(said.contains(&format!("{name}: ")), "{name} is not in {said}");
    }
    assert_eq!(said.matches("up to 2562047h").count(), DURATIONS.len(), "{said}");
}

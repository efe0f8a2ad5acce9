//! The metrics of a real process, by weir's own names.

use std::io::Write as _;
use std::process::{Command, Stdio};

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::api::{HIGH_LIMIT, ask, channel, user_request};
use crate::support::redis::Server;
use crate::support::tools::promtool;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

/// Asserts that the buckets of a histogram only grow up to `count`, and that its sum is positive.
fn assert_histogram(weir: &Weir, name: &str, label: &str, count: u64) {
    let page = http::get(weir.http, "/metrics").body;
    let value = |sample: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {sample}: {page}"))
    };
    let bucket = format!("{name}_bucket{{{label},le=\"");
    let buckets = page.lines().filter_map(|line| line.strip_prefix(&bucket)?.split_once("\"} "));
    let buckets: Vec<(&str, u64)> =
        buckets.map(|(bound, count)| (bound, count.parse().unwrap())).collect();
    assert!(buckets.len() > 5 && buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
    assert_eq!(buckets.last(), Some(&("+Inf", count)), "{name}: {page}");
    assert_eq!(value(&format!("{name}_count{{{label}}}")), count as f64);
    assert!(value(&format!("{name}_sum{{{label}}}")) > 0.0);
}

async fn ask_times(weir: &Weir, times: usize) {
    for _ in 0..times {
        ask(weir.grpc, user_request()).await.unwrap();
    }
}

#[tokio::test]
async fn requests_are_timed_by_method() {
    let weir = serving(HIGH_LIMIT).start();
    ask_times(&weir, 5).await;
    let mut health = HealthClient::new(channel(weir.grpc).await);
    for _ in 0..2 {
        health.check(HealthCheckRequest { service: "ratelimit".into() }).await.unwrap();
    }
    let name = "weir_request_duration_seconds";
    assert_histogram(&weir, name, r#"method="ShouldRateLimit""#, 5);
    assert_histogram(&weir, name, r#"method="Check""#, 2);
    assert_eq!(weir.metric(r#"weir_grpc_requests_total{method="ShouldRateLimit"}"#), 5);
}

#[test]
fn the_http_port_may_be_without_metrics() {
    let mut weir = serving(HIGH_LIMIT)
        .env("WEIR__HTTP__METRICS", "false")
        .env("USE_PROMETHEUS", "true")
        .env("PROMETHEUS_ADDR", "127.0.0.1:0")
        .start();
    assert_eq!(http::get(weir.http, "/metrics").status, 404);
    assert_eq!(http::get(weir.http, "/readyz").status, 200);
    let rest = weir.until_said("Listening for metrics on '").unwrap();
    let prometheus = rest.split('\'').next().unwrap().parse().unwrap();
    for address in [weir.debug, prometheus] {
        assert_eq!(http::get(address, "/metrics").status, 200);
    }
}

fn with_redis(redis: &Server) -> Setup {
    let setup = serving(HIGH_LIMIT).env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
    // The reference's names are on the same page.
    setup.env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0")
}

#[tokio::test]
async fn round_trips_and_connections_of_redis_are_counted() {
    let mut redis = Server::start();
    let weir = with_redis(&redis).start();
    let round_trips = || weir.metric(r#"weir_redis_round_trips_total{redis="main"}"#);
    let before = round_trips();
    ask_times(&weir, 5).await;
    assert!(round_trips() >= before + 5);
    assert_histogram(&weir, "weir_store_round_trip_seconds", r#"redis="main""#, round_trips());
    assert_histogram(&weir, "weir_redis_batch_keys", r#"redis="main""#, 5);
    let open = weir.metric(r#"weir_redis_connections{redis="main"}"#);
    assert!(open > 0);
    assert_eq!(weir.metric("ratelimit_redis_pool_cx_active"), open);
    redis.kill();
    wait_for("all connections are down", || {
        (weir.metric(r#"weir_redis_connections{redis="main"}"#) == 0).then_some(())
    });
    assert_eq!(weir.metric(r#"weir_redis_connections_down{redis="main"}"#), open);
}

#[tokio::test]
async fn promtool_accepts_the_page() {
    let Some(promtool) = promtool() else { return };
    let redis = Server::start();
    let setup = serving(HIGH_LIMIT).env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
    let weir = setup.start();
    ask_times(&weir, 1).await;
    let page = http::get(weir.http, "/metrics").body;
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

//! The log, and readers of it that stall.

use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::{channel, code, request};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

/// Longer than any drain should take here, shorter than the drain's own time-out.
const SOON: Duration = Duration::from_secs(10);

const DROPPED: &str = "weir_log_lines_dropped_total";

/// At this level each frame of HTTP/2 is a line, whichever of weir's own lines are throttled.
fn debugging() -> Setup {
    serving(RULES).env("WEIR__LOG__LEVEL", "debug").env("WEIR__DRAIN__DELAY", "200ms")
}

/// Leaves the log unread until lines are dropped.
async fn stall(weir: &Weir) {
    weir.leave_unread(true);
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    let started = Instant::now();
    loop {
        for _ in 0..1_500 {
            client.should_rate_limit(request("shop", &[("user", "ann")])).await.unwrap();
        }
        if weir.metric(DROPPED) > 0 {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no line is dropped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_read_stops_nothing() {
    let redis = Server::start();
    let mut weir = debugging()
        .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .start();
    stall(&weir).await;

    let until = async |wanted| {
        let started = Instant::now();
        while code(weir.grpc, request("shop", &[("user", "ann")])).await != wanted {
            assert!(started.elapsed() < SOON, "no {wanted:?} within {SOON:?}");
        }
    };
    redis.stop();
    until(Code::OverLimit).await;
    redis.go_on();
    until(Code::Ok).await;
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", body).status, 200);
    assert!(weir.is_healthy());

    let asked = Instant::now();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(asked.elapsed() < SOON);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_lines_are_counted_and_reported_when_there_is_room() {
    let mut weir = debugging().start();
    stall(&weir).await;
    weir.leave_unread(false);
    let lines = weir.until_said("log lines dropped, as the log was not read lines=").unwrap();
    assert!(lines.parse::<u64>().unwrap() <= weir.metric(DROPPED));
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    let said = weir.said_in_all();
    assert!(said.lines().last().unwrap().ends_with(" INFO stopped"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_whether_the_log_is_read_or_not() {
    for unread in [false, true] {
        let mut weir = debugging().env("WEIR__DRAIN__DELAY", "1h").start();
        if unread {
            stall(&weir).await;
        }
        weir.signal("TERM");
        wait_for("weir drains", || (!weir.is_healthy()).then_some(()));
        let asked = Instant::now();
        weir.signal("TERM");
        assert_eq!(weir.wait_until_ended().code(), Some(1));
        assert!(asked.elapsed() < SOON);
        weir.leave_unread(false);
        let reported = weir.said_in_all().contains("second stop signal: exiting without draining");
        assert!(reported != unread);
    }
}

#[test]
fn what_files_and_clients_bring_is_escaped() {
    let rules = "domain: d\n\"kye\\u001b[31m\\nforged\\u009b\\u2028\": 1\n";
    for format in ["text", "json"] {
        let mut weir = serving(rules)
            .env("WEIR__LOG__LEVEL", "debug")
            .env("WEIR__LOG__FORMAT", format)
            .start_unhealthy();
        let forged = "{\"\u{9b}31m\u{202e}\": 1}";
        assert_eq!(http::post(weir.http, "/json", forged).status, 400);
        weir.until_said("unknown key 'kye").unwrap();
        weir.signal("INT");
        weir.wait_until_ended();
        for line in weir.said_in_all().lines() {
            assert_eq!(weir::escape::escape(line), line);
            let begins = if format == "json" { &["{\"timestamp\""][..] } else { &["2", "    "] };
            assert!(begins.iter().any(|begin| line.starts_with(begin)), "{line}");
        }
    }
}

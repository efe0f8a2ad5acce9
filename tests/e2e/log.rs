//! The log, with readers that stall.

use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::{HIGH_LIMIT, channel, user_request, wait_for_code};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

/// Longer than a drain should take here, shorter than `drain.timeout`.
const SOON: Duration = Duration::from_secs(10);

const DROPPED: &str = "weir_log_lines_dropped_total";

/// A service that logs each HTTP/2 frame, which is not throttled.
fn with_debug_log() -> Setup {
    serving(HIGH_LIMIT).env("WEIR__LOG__LEVEL", "debug").env("WEIR__DRAIN__DELAY", "200ms")
}

/// Stops reading the log and sends requests until lines are dropped.
async fn stall(weir: &Weir) {
    weir.pause_reading(true);
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    let started = Instant::now();
    loop {
        for _ in 0..1_500 {
            client.should_rate_limit(user_request()).await.unwrap();
        }
        if weir.metric(DROPPED) > 0 {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no line was dropped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_log_does_not_block_the_service() {
    let redis = Server::start();
    let mut weir = with_debug_log()
        .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .start();
    stall(&weir).await;

    redis.stop();
    wait_for_code(weir.grpc, user_request(), Code::OverLimit).await;
    redis.go_on();
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", body).status, 200);
    assert!(weir.is_healthy());

    let signaled = Instant::now();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(signaled.elapsed() < SOON);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_lines_are_counted_and_reported_once_the_log_is_read() {
    let mut weir = with_debug_log().start();
    stall(&weir).await;
    weir.pause_reading(false);
    let lines = weir.until_said("log lines dropped because the log was not read lines=").unwrap();
    assert!(lines.parse::<u64>().unwrap() <= weir.metric(DROPPED));
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    let said = weir.said_in_all();
    assert!(said.lines().last().unwrap().ends_with(" INFO stopped"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_even_with_an_unread_log() {
    for unread in [false, true] {
        let setup = with_debug_log().env("WEIR__DRAIN__TIMEOUT", "2h");
        let mut weir = setup.env("WEIR__DRAIN__DELAY", "1h").start();
        if unread {
            stall(&weir).await;
        }
        weir.signal("TERM");
        wait_for("weir drains", || (!weir.is_healthy()).then_some(()));
        let signaled = Instant::now();
        weir.signal("TERM");
        assert_eq!(weir.wait_until_ended().code(), Some(1));
        assert!(signaled.elapsed() < SOON);
        weir.pause_reading(false);
        let reported = weir.said_in_all().contains("second stop signal: exiting without draining");
        assert!(reported != unread);
    }
}

#[test]
fn text_from_files_and_clients_is_escaped() {
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

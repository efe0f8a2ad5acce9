//! The log, with readers that stall.

use std::time::{Duration, Instant};

use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::{HIGH_LIMIT, channel, code, request, user_request, wait_for_code};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

/// Longer than a drain should take here, shorter than `drain.timeout`.
const SOON: Duration = Duration::from_secs(10);

const DROPPED: &str = "weir_log_lines_dropped_total";

/// A service that logs each decision, which is not throttled.
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
        .store_times("1s")
        .start();
    stall(&weir).await;

    redis.stop();
    wait_for_code(weir.grpc, user_request(), Code::OverLimit).await;
    redis.go_on();
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    // Its thread has a connection of its own.
    wait_for("/json is answered", || {
        (http::post(weir.http, "/json", body).status == 200).then_some(())
    });
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
    for format in ["text", "json", "reference-json"] {
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
            assert_eq!(weir_common::escape::escape(line), line);
            let begins = match format {
                "json" => &["{\"timestamp\""][..],
                "reference-json" => &["{\"@message\""],
                _ => &["2", "    "],
            };
            assert!(begins.iter().any(|begin| line.starts_with(begin)), "{line}");
        }
    }
}

/// Starts a service with these variables, asks once per user, and returns its whole log.
async fn log_of(env: &[(&str, &str)], users: &[&str]) -> String {
    log_by("", env, users).await
}

/// Does so with more lines of the rule.
async fn log_by(more: &str, env: &[(&str, &str)], users: &[&str]) -> String {
    let rules = "domain: shop\ndescriptors:\n- key: user\n  \
                 rate_limit: { unit: year, requests_per_unit: 1 }\n";
    let rules = &format!("{rules}{more}");
    let setup = env.iter().fold(serving(rules), |setup, (name, value)| setup.env(name, value));
    let mut weir = setup.start();
    for user in users {
        code(weir.grpc, request("shop", &[("user", user)])).await;
    }
    weir.signal("INT");
    weir.wait_until_ended();
    weir.said_in_all()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_json_of_the_reference_has_its_fields() {
    let log = log_of(&[("LOG_FORMAT", "json"), ("LOG_LEVEL", "DEBUG")], &["ann"]).await;
    let mut levels = Vec::new();
    for line in log.lines() {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let time = event["@timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.len() == 30, "{line}");
        assert!(event["@message"].is_string(), "{line}");
        levels.push(event["level"].as_str().unwrap().to_owned());
        if event["@message"] == "decision" {
            assert_eq!((&event["descriptor"], &event["hits"]), (&"user=ann".into(), &1.into()));
        }
    }
    for level in ["warning", "info", "debug"] {
        assert!(levels.iter().any(|it| it == level), "{level}: {log}");
    }
    assert!(log.contains("\"@message\":\"Listening for gRPC on '"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_is_one_line_at_debug_and_libraries_are_silent() {
    let long = "x".repeat(5_000);
    let log =
        log_of(&[("LOG_LEVEL", "debug"), ("CACHE_KEY_PREFIX", "w:")], &["ann", "ann", &long]).await;
    // A connection that ends may have a line too.
    assert!(log.matches(" DEBUG ").count() <= 6, "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("DEBUG decision ")).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (line, rest) in [
        (lines[0], "hits=1 used_before=0 remaining=0 result=\"ok\" overall=\"ok\""),
        (lines[1], "result=\"over_limit\" overall=\"over_limit\""),
    ] {
        let start = "decision domain=\"shop\" descriptor=\"user=ann\" rule=\"user\" \
                     key=\"w:{shop|user=ann}f31536000\" limit=1 per year hits=1 used_before=";
        assert!(line.contains(start) && line.ends_with(rest), "{line}");
    }
    assert!(lines[1].contains(" used_before=1 remaining=0 retry_after_ms="), "{}", lines[1]);
    assert!(lines[2].contains("xx…\"") && lines[2].len() < 1_000, "{}", lines[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_ban_denies_is_logged_as_such() {
    let ban = "  ban: { after: 1, within: 1h, for: 1h }\n";
    let log = log_by(ban, &[("LOG_LEVEL", "debug")], &["ann", "ann", "ann"]).await;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("DEBUG decision ")).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(!lines[0].contains("banned"), "{}", lines[0]);
    for line in &lines[1..] {
        assert!(line.contains(" banned=true result=\"over_limit\""), "{line}");
    }
}

/// Users of the reference look for these lines, whose level there is WARN; others do not.
#[tokio::test(flavor = "multi_thread")]
async fn lines_about_listeners_are_warnings_only_where_log_level_is_set() {
    let log = log_of(&[("LOG_LEVEL", "warn")], &[]).await;
    assert!(log.contains(" WARN Listening for gRPC on '"), "{log}");
    let log = log_of(&[], &[]).await;
    assert!(log.contains(" INFO Listening for gRPC on '") && !log.contains(" WARN "), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_where_weir_counts() {
    let log = log_of(&[], &[]).await;
    assert!(log.contains(" INFO weir counts in memory, each replica by itself\n"), "{log}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let on_disk = [("WEIR__STORE__KIND", "disk"), ("WEIR__STORE__DISK__PATH", path)];
    let log = log_of(&on_disk, &[]).await;
    let wanted = format!("weir counts on disk, each replica by itself directory=\"{path}\"\n");
    assert!(log.contains(&wanted), "{log}");
    let redis = Server::start();
    let server = format!("127.0.0.1:{}", redis.port());
    let log = log_of(&[("REDIS_URL", server.as_str())], &[]).await;
    let wanted = format!("weir counts in redis, with all replicas that use it servers={server}\n");
    assert!(log.contains(&wanted), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_is_raised_by_name() {
    let log = log_of(&[("LOG_LEVEL", "info,h2=debug")], &["ann"]).await;
    assert!(log.contains(" DEBUG ") && !log.contains("decision domain"), "{log}");
    let log = log_of(&[("LOG_LEVEL", "warning,weir::limiter=debug")], &["ann"]).await;
    assert!(log.contains("decision domain") && !log.contains(" INFO "), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_are_logged_if_asked_for_and_bounded() {
    let log = log_of(&[("WEIR__LOG__DENIALS", "0")], &["ann", "ann"]).await;
    assert!(!log.contains("request denied"), "{log}");
    let log = log_of(&[("WEIR__LOG__DENIALS", "1000")], &["ann", "ann", "ann", "bob"]).await;
    let denied: Vec<&str> = log.lines().filter(|line| line.contains("request denied")).collect();
    assert_eq!(denied.len(), 2, "{denied:#?}");
    assert!(denied[0].contains("INFO request denied domain=\"shop\" descriptor=\"user=ann\""));
    assert!(denied[0].ends_with(" suppressed=0"), "{denied:#?}");
    // A client that floods leaves lines to others.
    let mut users = vec!["ann"; 30];
    users.extend(["bob"; 2]);
    let log = log_of(&[("WEIR__LOG__DENIALS", "2")], &users).await;
    assert!(log.contains("request denied domain=\"shop\" descriptor=\"user=bob\""), "{log}");
}

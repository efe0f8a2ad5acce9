//! Callers with deadlines: Envoy, and clients that send `grpc-timeout`.

use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::load::Load;
use crate::support::pauses::Pauses;
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::{envoy, http};

const EDGE: &str = "\
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000 }
";

/// Envoy waits for 20 ms. Its counters show whether it got an answer.
#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn envoy_gets_the_answer_of_the_policy_while_redis_is_stalled() {
    for (policy, status) in [("deny", 429), ("allow", 200)] {
        let redis = Server::start();
        let proxy = Proxy::start(redis.port());
        let setup = with_redis(proxy.port(), EDGE).default_store_times();
        let weir = setup.env("WEIR__STORE__ON_FAILURE", policy).start();
        let envoy = envoy::with_default_timeout(&weir);
        let ask = || http::get_with(envoy.address, "/", &[("x-user", "ann")]).status;
        let unanswered = || {
            let count = |name: &str| envoy.stat(&format!("cluster.backend.ratelimit.{name}"));
            count("error") + count("failure_mode_allowed")
        };
        // A pause of the machine can exceed 20 ms too, so this is repeated, and fails only without one. If weir
        // waited for longer than its budget, every repetition would fail.
        let mut failures = 0;
        for _ in 0..20 {
            proxy.resume();
            let degraded = format!(r#"weir_store_degraded_charges_total{{policy="{policy}"}}"#);
            wait_for("answers that Redis gave", || {
                let before = weir.metric(&degraded);
                let statuses = [ask(), ask(), ask()];
                (statuses == [200; 3] && weir.metric(&degraded) == before).then_some(())
            });
            let (before, degraded_before) = (unanswered(), weir.metric(&degraded));
            proxy.stall();
            let pauses = Pauses::watch();
            let statuses: Vec<u16> = (0..30).map(|_| ask()).collect();
            let late = pauses.end();
            let unanswered = unanswered() - before;
            if unanswered == 0 {
                assert_eq!(statuses, [status; 30], "{policy}");
                assert!(weir.metric(&degraded) >= degraded_before + 30, "{policy}");
            }
            println!("{unanswered} of 30 unanswered, {late:?}");
            failures += usize::from(unanswered > 0 && late.is_never());
            if unanswered == 0 || failures == 5 {
                break;
            }
        }
        assert!(failures < 5, "{policy}: Envoy timed out in each of five attempts");
    }
}

/// Sends a request with a `grpc-timeout`.
async fn ask_with_timeout(
    weir: &Weir,
    timeout: Duration,
) -> Result<RateLimitResponse, tonic::Status> {
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    let mut request = tonic::Request::new(user_request());
    request.set_timeout(timeout);
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

fn failed(weir: &Weir, reason: &str) -> u64 {
    weir.metric(&format!(r#"weir_store_failed_charges_total{{reason="{reason}"}}"#))
}

/// Returns how many connections are down or slow: their charges fail at once.
fn connections_unused(weir: &Weir) -> u64 {
    weir.metric(r#"weir_redis_connections_down{redis="main"}"#)
        + weir.metric(r#"weir_redis_connections_slow{redis="main"}"#)
}

/// A late answer is attributed to the caller if its deadline is under 10 ms, and to Redis otherwise.
#[tokio::test]
#[ignore = "measures times: scripts/test runs it alone"]
async fn a_short_deadline_is_not_counted_as_a_failure_of_redis() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // No connection goes down: only the budgets of requests end.
    let weir = with_redis(proxy.port(), HIGH_LIMIT)
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .env("WEIR__STORE__BUDGET", "auto")
        .env("WEIR__STORE__REDIS__SLOW_AFTER", "60s")
        .start();
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    let before = failed(&weir, "timed_out");
    proxy.stall();
    let start = Instant::now();
    while failed(&weir, "caller_deadline") == 0 {
        assert!(start.elapsed() < PATIENCE);
        let _ = ask_with_timeout(&weir, Duration::from_millis(9)).await;
    }
    assert_eq!(failed(&weir, "timed_out"), before);
    assert!(!weir.said().contains("store failed"), "{}", weir.said());
    let of_callers = failed(&weir, "caller_deadline");
    while failed(&weir, "timed_out") == before {
        assert!(start.elapsed() < PATIENCE);
        let _ = ask_with_timeout(&weir, Duration::from_millis(11)).await;
    }
    assert_eq!(failed(&weir, "caller_deadline"), of_callers);
    weir.has_said("store failed");
    assert_eq!(connections_unused(&weir), 0);
}

/// Once a connection is slow, failures are attributed to Redis, however short deadlines are.
#[tokio::test]
async fn an_outage_is_logged_and_counted_as_a_failure_of_the_store() {
    let redis = Server::start();
    let setup = with_redis(redis.port(), HIGH_LIMIT).default_store_times();
    let weir = setup.env("WEIR__STORE__ON_FAILURE", "deny").start();
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    redis.stop();
    wait_for("a connection is slow or down", || (connections_unused(&weir) > 0).then_some(()));
    let before = failed(&weir, "timed_out");
    let start = Instant::now();
    while failed(&weir, "timed_out") == before {
        assert!(start.elapsed() < PATIENCE);
        let _ = ask_with_timeout(&weir, Duration::from_millis(4)).await;
    }
    wait_for("it is logged", || weir.said().contains("store failed").then_some(()));
    redis.go_on();
}

/// The first requests to a frozen Redis wait for their whole budget. Once the threshold of the
/// connection, which is shorter here, has passed, later requests are answered at once.
#[tokio::test]
#[ignore = "measures times: scripts/test runs it alone"]
async fn a_frozen_redis_delays_only_the_first_requests() {
    let (timeout, budget) = (Duration::from_millis(45), Duration::from_millis(42));
    let redis = Server::start();
    let setup = with_redis(redis.port(), HIGH_LIMIT).default_store_times();
    let weir = setup.env("WEIR__STORE__ON_FAILURE", "deny").start();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the first request never waited for its budget");
        wait_for_code(weir.grpc, user_request(), Code::Ok).await;
        redis.stop();
        let sent = Instant::now();
        let first = ask_with_timeout(&weir, timeout).await;
        let took = sent.elapsed();
        // A probe may have noticed first, or the machine paused and the caller timed out.
        if !first.is_ok_and(|answer| answer.overall_code() == Code::OverLimit) || took < budget {
            redis.go_on();
            continue;
        }
        let of_thread = connections_unused(&weir);
        assert!(of_thread > 0, "the threshold passes before the budget ends");
        wait_for("all connections are slow or down", || {
            (connections_unused(&weir) >= super::policies::connections()).then_some(())
        });
        let mut took = Vec::new();
        for _ in 0..21 {
            let sent = Instant::now();
            let _ = ask_with_timeout(&weir, Duration::from_secs(1)).await;
            took.push(sent.elapsed());
        }
        took.sort();
        // A busy machine delays some requests, but not half of them.
        assert!(took[10] < Duration::from_millis(20), "{took:?}");
        break redis.go_on();
    }
}

/// One round trip in a hundred takes up to 15 ms longer, as in a busy cluster. Envoy waits for 20 ms.
#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn occasional_slow_round_trips_fail_no_request() {
    const RATE: u32 = 1_000;
    const ROUNDS: usize = 10;
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // Without leases: each request makes a round trip.
    let setup = with_redis(proxy.port(), HIGH_LIMIT).env("WEIR__STORE__LEASES_FOR", "0s");
    let weir = setup.default_store_times().env("WEIR__STORE__ON_FAILURE", "deny").start();
    let counts = || {
        let down = weir.metric(r#"weir_redis_connection_failures_total{redis="main"}"#);
        (weir.metric(r#"weir_store_degraded_charges_total{policy="deny"}"#), down)
    };
    let mut seen = Vec::new();
    // A pause of the machine can exceed the budget of 17 ms too, and fails the requests in its time. A budget that is
    // too small fails more than five times as many requests in each round.
    for _ in 0..ROUNDS {
        proxy.resume();
        let load =
            Load::with_timeout(weir.grpc, RATE, &[user_request()], Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(500));
        proxy.slow_some(100, Duration::from_millis(5)..Duration::from_millis(15));
        let (slowed, before) = (proxy.slowed(), counts());
        let pauses = Pauses::watch();
        std::thread::sleep(Duration::from_secs(3));
        let (slowed, after, late) = (proxy.slowed() - slowed, counts(), pauses.end());
        let requests = load.stop().len() as u64;
        let (by_policy, downs) = (after.0 - before.0, after.1 - before.1);
        println!(
            "{by_policy} of {requests} by policy, {downs} down, {slowed} round trips slow, {late:?}"
        );
        if slowed >= 5
            && (by_policy as f64) < requests as f64 * (0.001 + late.part)
            && (downs == 0 || !late.is_never())
        {
            return;
        }
        // Beside a longer pause it says nothing.
        if late.longest < Duration::from_millis(5) {
            seen.push((by_policy, downs, slowed));
        }
    }
    assert!(seen.len() < 3, "too many by policy, a connection down, or none slow: {seen:?}");
}

/// Three milliseconds of a caller's deadline are reserved for sending the answer.
#[tokio::test]
#[ignore = "measures times: scripts/test runs it alone"]
async fn short_deadlines_are_answered_in_time() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // The connection must not go down, because requests would then be answered at once.
    let setup = with_redis(proxy.port(), HIGH_LIMIT).env("WEIR__STORE__ON_FAILURE", "deny");
    let weir = setup.store_times("60s").start();
    wait_for_code(weir.grpc, user_request(), Code::Ok).await;
    proxy.stall();
    // On a busy machine three milliseconds are not always enough. If weir waited for the whole
    // deadline, they never would be.
    for timeout in [6, 60] {
        let mut took = Vec::new();
        let start = Instant::now();
        while took.len() < 20 {
            assert!(start.elapsed() < PATIENCE, "{timeout} ms: too few answers in time: {took:?}");
            let sent = Instant::now();
            if let Ok(answer) = ask_with_timeout(&weir, Duration::from_millis(timeout)).await {
                assert_eq!(answer.overall_code(), Code::OverLimit);
                took.push(sent.elapsed());
            }
        }
        took.sort();
        println!("deadline of {timeout} ms: {:?} minimum, {:?} median", took[0], took[10]);
        let soonest = Duration::from_millis(timeout - 3);
        assert!(took[0] >= soonest, "{timeout} ms: answered after {:?}", took[0]);
    }
}

//! Callers who wait for so long and no longer: Envoy, and those who say it in `grpc-timeout`.

use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::load::Load;
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::{envoy, http};

const EDGE: &str = "\
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000000 }
";

/// Envoy waits for 20 ms. Its counters tell whether it got an answer, or made one up.
#[test]
fn envoy_sees_the_policy_and_no_timeout_while_redis_is_stalled() {
    for (policy, status) in [("deny", 429), ("allow", 200)] {
        let redis = Server::start();
        let proxy = Proxy::start(redis.port());
        let weir = on(proxy.port(), EDGE).env("WEIR__STORE__ON_FAILURE", policy).start();
        let envoy = envoy::hasty(&weir);
        let ask = || http::get_with(envoy.address, "/", &[("x-user", "ann")]).status;
        let made_up = || {
            let count = |name: &str| envoy.stat(&format!("cluster.backend.ratelimit.{name}"));
            count("error") + count("failure_mode_allowed")
        };
        // A pause of this machine may cost those 20 ms, too, and is not weir's: then it is tried
        // again. Did weir wait for longer than its budget, no try would do.
        let passes = (0..5).any(|_| {
            proxy.resume();
            let degraded = format!(r#"weir_store_degraded_charges_total{{policy="{policy}"}}"#);
            wait_for("answers that Redis gave", || {
                let before = weir.metric(&degraded);
                let statuses = [ask(), ask(), ask()];
                (statuses == [200; 3] && weir.metric(&degraded) == before).then_some(())
            });
            let (before, degraded_before) = (made_up(), weir.metric(&degraded));
            proxy.stall();
            let statuses: Vec<u16> = (0..30).map(|_| ask()).collect();
            let made_up = made_up() - before;
            if made_up == 0 {
                assert_eq!(statuses, [status; 30], "{policy}");
                assert!(weir.metric(&degraded) >= degraded_before + 30, "{policy}");
            }
            made_up == 0
        });
        assert!(passes, "{policy}: Envoy's patience ended in each of five tries");
    }
}

/// Asks as a caller who waits for so long.
async fn ask_for(weir: &Weir, timeout: Duration) -> Result<RateLimitResponse, tonic::Status> {
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    let mut asked = tonic::Request::new(ann());
    asked.set_timeout(timeout);
    client.should_rate_limit(asked).await.map(tonic::Response::into_inner)
}

fn failed(weir: &Weir, reason: &str) -> u64 {
    weir.metric(&format!(r#"weir_store_failed_charges_total{{reason="{reason}"}}"#))
}

fn connections_down(weir: &Weir) -> u64 {
    weir.metric(r#"weir_redis_connections_down{instance="main"}"#)
}

/// Only a caller who leaves less than 10 ms is the cause of a late answer: who leaves more is
/// answered too late by Redis.
#[tokio::test]
async fn a_callers_deadline_is_no_failure_of_redis() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // No connection is down: only requests' own budgets end.
    let weir = on(proxy.port(), WIDE)
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .env("WEIR__STORE__REDIS__SLOW_AFTER", "60s")
        .start();
    until(&weir, Code::Ok).await;
    let before = failed(&weir, "timed_out");
    proxy.stall();
    let began = Instant::now();
    while failed(&weir, "caller_deadline") == 0 {
        assert!(began.elapsed() < PATIENCE);
        let _ = ask_for(&weir, Duration::from_millis(9)).await;
    }
    assert_eq!(failed(&weir, "timed_out"), before);
    assert!(!weir.said().contains("store failed"), "{}", weir.said());
    let of_callers = failed(&weir, "caller_deadline");
    while failed(&weir, "timed_out") == before {
        assert!(began.elapsed() < PATIENCE);
        let _ = ask_for(&weir, Duration::from_millis(11)).await;
    }
    assert_eq!(failed(&weir, "caller_deadline"), of_callers);
    assert!(weir.said().contains("store failed"), "{}", weir.said());
    assert_eq!(connections_down(&weir), 0);
}

/// However little callers leave: once a connection is down, its failures are Redis's.
#[tokio::test]
async fn an_outage_is_logged_and_counted_as_the_stores() {
    let redis = Server::start();
    let weir = on(redis.port(), WIDE).env("WEIR__STORE__ON_FAILURE", "deny").start();
    until(&weir, Code::Ok).await;
    redis.stop();
    wait_for("a connection to be down", || (connections_down(&weir) > 0).then_some(()));
    let before = failed(&weir, "timed_out");
    let began = Instant::now();
    while failed(&weir, "timed_out") == before {
        assert!(began.elapsed() < PATIENCE);
        let _ = ask_for(&weir, Duration::from_millis(4)).await;
    }
    assert!(weir.said().contains("store failed"), "{}", weir.said());
    redis.go_on();
}

/// The first to ask a frozen Redis wait as long as they can; once the threshold is missed, which is
/// shorter here, nobody waits.
#[tokio::test]
async fn a_frozen_redis_costs_the_first_wave_its_budget_and_others_nothing() {
    let (timeout, budget) = (Duration::from_millis(45), Duration::from_millis(42));
    let redis = Server::start();
    let weir = on(redis.port(), WIDE).env("WEIR__STORE__ON_FAILURE", "deny").start();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "the first one never waits for its budget");
        until(&weir, Code::Ok).await;
        redis.stop();
        let sent = Instant::now();
        let first = ask_for(&weir, timeout).await;
        let took = sent.elapsed();
        // A ping may have been first to notice; or the machine paused, and the caller gave up.
        if !first.is_ok_and(|answer| answer.overall_code() == Code::OverLimit) || took < budget {
            redis.go_on();
            continue;
        }
        let thread_down = connections_down(&weir);
        assert!(thread_down > 0, "the threshold is missed before the budget ends");
        wait_for("all connections to be down", || {
            (connections_down(&weir) >= super::policies::connections()).then_some(())
        });
        let mut took = Vec::new();
        for _ in 0..21 {
            let sent = Instant::now();
            let _ = ask_for(&weir, Duration::from_secs(1)).await;
            took.push(sent.elapsed());
        }
        took.sort();
        // A busy machine delays some, but not half of them.
        assert!(took[10] < Duration::from_millis(20), "{took:?}");
        break redis.go_on();
    }
}

/// One round trip of a hundred is late by up to 15 ms, as in a busy cluster. Envoy waits for 20 ms.
#[test]
fn round_trips_that_are_late_now_and_then_fail_nobody() {
    const RATE: u32 = 1_000;
    const ROUNDS: usize = 10;
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = on(proxy.port(), WIDE).env("WEIR__STORE__ON_FAILURE", "deny").start();
    let counts = || {
        let down = weir.metric(r#"weir_redis_connection_failures_total{instance="main"}"#);
        (weir.metric(r#"weir_store_degraded_charges_total{policy="deny"}"#), down)
    };
    let mut seen = Vec::new();
    // A pause of this machine may take those 17 ms, too. A budget that is too small fails more than
    // five times as many in each round.
    for _ in 0..ROUNDS {
        proxy.resume();
        let load = Load::waiting(weir.grpc, RATE, &[ann()], Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(500));
        proxy.slow_some(100, Duration::from_millis(5)..Duration::from_millis(15));
        let (slowed, before) = (proxy.slowed(), counts());
        std::thread::sleep(Duration::from_secs(3));
        let (slowed, after) = (proxy.slowed() - slowed, counts());
        let asked = load.stop().len() as u64;
        let (by_policy, downs) = (after.0 - before.0, after.1 - before.1);
        println!("{by_policy} of {asked} by policy, {downs} down, {slowed} round trips late");
        assert!(slowed >= 5, "{slowed} of {asked}");
        if by_policy * 1_000 < asked && downs == 0 {
            return;
        }
        seen.push((by_policy, downs));
    }
    panic!("in each round too many were answered by policy, or a connection was down: {seen:?}");
}

/// Of a caller's time three milliseconds are left for the way back.
#[tokio::test]
async fn who_has_little_time_is_answered_before_it_is_over() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // It is the caller's time that ends, each time: a connection that is down answers at once.
    let setup = on(proxy.port(), WIDE).env("WEIR__STORE__ON_FAILURE", "deny");
    let weir = within(setup, "60s").start();
    until(&weir, Code::Ok).await;
    proxy.stall();
    // The three milliseconds are the machine's, too: where it is busy they are not enough every
    // time. Did weir wait for its budget, they would never be.
    for timeout in [6, 60] {
        let mut took = Vec::new();
        let began = Instant::now();
        while took.len() < 20 {
            assert!(began.elapsed() < PATIENCE, "{timeout} ms: too rarely in time: {took:?}");
            let sent = Instant::now();
            if let Ok(answer) = ask_for(&weir, Duration::from_millis(timeout)).await {
                assert_eq!(answer.overall_code(), Code::OverLimit);
                took.push(sent.elapsed());
            }
        }
        took.sort();
        println!("of {timeout} ms: {:?} at best, {:?} mostly", took[0], took[10]);
        let soonest = Duration::from_millis(timeout - 3);
        assert!(took[0] >= soonest, "{timeout} ms: answered after {:?}", took[0]);
    }
}

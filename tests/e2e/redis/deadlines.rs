//! Callers who wait for so long and no longer: Envoy, and those who say it in `grpc-timeout`.

use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
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
            let degraded = format!(r#"weir_store_degraded_total{{policy="{policy}"}}"#);
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

#[tokio::test]
async fn a_callers_deadline_is_no_failure_of_redis() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = on(proxy.port(), WIDE)
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .env("WEIR__STORE__BUDGET", "60s")
        .start();
    until(&weir, Code::Ok).await;
    let before = weir.metric(r#"weir_store_failed_total{reason="timed_out"}"#);
    proxy.stall();
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    let hurried = r#"weir_store_failed_total{reason="hurried"}"#;
    let began = Instant::now();
    while weir.metric(hurried) == 0 {
        assert!(began.elapsed() < PATIENCE);
        let mut asked = tonic::Request::new(ann());
        asked.set_timeout(Duration::from_millis(20));
        let _ = client.should_rate_limit(asked).await;
    }
    assert_eq!(weir.metric(r#"weir_store_failed_total{reason="timed_out"}"#), before);
    assert!(!weir.said().contains("the store failed"), "{}", weir.said());
}

/// Of a caller's time three milliseconds are left for the way back.
#[tokio::test]
async fn who_has_little_time_is_answered_before_it_is_over() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    // So long that it is the caller's time that ends, each time: once the budget has ended, whoever
    // asks is answered at once.
    let weir = on(proxy.port(), WIDE)
        .env("WEIR__STORE__ON_FAILURE", "deny")
        .env("WEIR__STORE__BUDGET", "60s")
        .start();
    until(&weir, Code::Ok).await;
    proxy.stall();
    let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
    // The three milliseconds are the machine's, too: where it is busy they are not enough every
    // time. Did weir wait for its budget, they would never be.
    for timeout in [6, 60] {
        let mut took = Vec::new();
        let began = Instant::now();
        while took.len() < 20 {
            assert!(began.elapsed() < PATIENCE, "{timeout} ms: too rarely in time: {took:?}");
            let mut asked = tonic::Request::new(ann());
            asked.set_timeout(Duration::from_millis(timeout));
            let sent = Instant::now();
            if let Ok(answer) = client.should_rate_limit(asked).await {
                assert_eq!(answer.get_ref().overall_code(), Code::OverLimit);
                took.push(sent.elapsed());
            }
        }
        took.sort();
        println!("of {timeout} ms: {:?} at best, {:?} mostly", took[0], took[10]);
        let soonest = Duration::from_millis(timeout - 3);
        assert!(took[0] >= soonest, "{timeout} ms: answered after {:?}", took[0]);
    }
}

//! Counters shared by replicas, and kept through their restarts.

use std::net::SocketAddr;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::control_api::ControlApi;
use crate::support::redis::Server;

/// One rule for each algorithm, with 60 per year: nothing refills during a test.
const YEARLY: &str = "\
domain: shop
descriptors:
  - key: fixed_window
    rate_limit: { algorithm: fixed_window, unit: year, requests_per_unit: 60 }
  - key: sliding_window
    rate_limit: { algorithm: sliding_window, unit: year, requests_per_unit: 60 }
  - key: sliding_log
    rate_limit: { algorithm: sliding_log, unit: year, requests_per_unit: 60 }
  - key: token_bucket
    rate_limit: { algorithm: token_bucket, unit: year, requests_per_unit: 60 }
  - key: gcra
    rate_limit: { algorithm: gcra, unit: year, requests_per_unit: 60 }
  - key: bucketed_window
    rate_limit: { algorithm: bucketed_window, unit: year, requests_per_unit: 60 }
";
const ALGORITHMS: [&str; 6] =
    ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "bucketed_window"];
const N: usize = 60;

/// When an admitted request was sent, and when its answer arrived.
type Admission = (Instant, Instant);

/// Sends `each` requests on each of eight connections, spread over `to`. Returns those admitted.
async fn admitted(to: &[SocketAddr], entry: (&str, &str), each: usize) -> Vec<Admission> {
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..8 {
        let to = to[i % to.len()];
        let request = request("shop", &[entry]);
        clients.spawn(async move {
            let mut client = RateLimitServiceClient::new(channel(to).await);
            let mut admitted = Vec::new();
            for _ in 0..each {
                let sent = Instant::now();
                let answer = client.should_rate_limit(request.clone()).await.expect("an answer");
                if answer.get_ref().overall_code() == Code::Ok {
                    admitted.push((sent, Instant::now()));
                }
            }
            admitted
        });
    }
    clients.join_all().await.concat()
}

#[tokio::test]
async fn two_replicas_share_a_limit_and_restarts_keep_the_counts() {
    let redis = Server::start();
    let start = || with_redis(redis.port(), YEARLY).start();
    let (first, second) = (start(), start());
    for algorithm in ALGORITHMS {
        let both = [first.grpc, second.grpc];
        let count = admitted(&both, (algorithm, "a"), 20).await.len();
        assert_eq!(count, N, "{algorithm}");
        // Half used.
        assert_eq!(admitted(&both[..1], (algorithm, "b"), 4).await.len(), 32, "{algorithm}");
    }
    drop((first, second));
    let again = start();
    for algorithm in ALGORITHMS {
        assert_eq!(admitted(&[again.grpc], (algorithm, "a"), 1).await.len(), 0, "{algorithm}");
        let rest = admitted(&[again.grpc], (algorithm, "b"), 6).await.len();
        assert_eq!(rest, N - 32, "{algorithm}");
    }
}

#[tokio::test]
async fn no_period_of_a_sliding_log_exceeds_the_limit() {
    const PERIOD: Duration = Duration::from_secs(1);
    const LIMIT: usize = 20;
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: \
                 { algorithm: sliding_log, period: 1s, requests_per_unit: 20 }\n";
    let redis = Server::start();
    let start = || with_redis(redis.port(), rules).start();
    let (first, second) = (start(), start());
    let mut all = Vec::new();
    let start = Instant::now();
    // Until the limit has been granted more than twice, so that the window has moved.
    while all.len() <= 2 * LIMIT {
        assert!(start.elapsed() < PATIENCE, "the window does not move: {}", all.len());
        all.extend(admitted(&[first.grpc, second.grpc], ("user", "ann"), 20).await);
    }
    // Each request was admitted between being sent and being answered, so those sent and answered
    // within one period must not exceed the limit. It is enough to check periods that start with one.
    for &(from, _) in &all {
        let within = |&&(sent, answered): &&Admission| sent >= from && answered < from + PERIOD;
        let count = all.iter().filter(within).count();
        assert!(count <= LIMIT, "{count} admitted within {PERIOD:?}");
    }
}

/// State and reset are of the key that requests charge, and show it.
#[tokio::test]
async fn keys_of_a_domain_charged_together_are_shown_and_reset() {
    let redis = Server::start();
    let rules = "domain: billing
charge: together
descriptors:
  - key: account
    rate_limit: { unit: year, requests_per_unit: 5 }
";
    let weir = with_redis(redis.port(), rules).start();
    let exists = || redis.command(&["EXISTS", "weir:{billing}|account=7|f31536000"]).int() == 1;
    wait_for_code(weir.grpc, request("billing", &[("account", "7")]), Code::Ok).await;
    assert!(exists());
    let api = ControlApi::new(&weir);
    let state = api.good("/v1/state?domain=billing&descriptor=account=7");
    assert_eq!(state["key"], "weir:{billing}|account=7|f31536000");
    assert!(state["limits"][0]["used"].as_u64() >= Some(1), "{state}");
    assert_eq!(api.delete("/v1/state?domain=billing&descriptor=account=7").0, 200);
    assert!(!exists());
}

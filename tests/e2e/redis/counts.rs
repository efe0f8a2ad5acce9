//! One count, however many count and however often they start anew.

use std::net::SocketAddr;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::redis::Server;

/// One rule for each algorithm, of 60 a year: nothing comes back while a test lasts.
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

/// When a request was sent, and when its answer was there.
type Admission = (Instant, Instant);

/// What is admitted of so many requests on each of eight connections, spread over `to`.
async fn admitted(to: &[SocketAddr], entry: (&str, &str), each: usize) -> Vec<Admission> {
    let mut askers = tokio::task::JoinSet::new();
    for i in 0..8 {
        let to = to[i % to.len()];
        let asked = request("shop", &[entry]);
        askers.spawn(async move {
            let mut client = RateLimitServiceClient::new(channel(to).await);
            let mut admitted = Vec::new();
            for _ in 0..each {
                let sent = Instant::now();
                let answer = client.should_rate_limit(asked.clone()).await.expect("an answer");
                if answer.get_ref().overall_code() == Code::Ok {
                    admitted.push((sent, Instant::now()));
                }
            }
            admitted
        });
    }
    askers.join_all().await.concat()
}

#[tokio::test]
async fn two_replicas_together_admit_what_the_limit_says_and_restarts_forget_nothing() {
    let redis = Server::start();
    let start = || within(on(redis.port(), YEARLY), AMPLE).start();
    let (first, second) = (start(), start());
    for algorithm in ALGORITHMS {
        let both = [first.grpc, second.grpc];
        let count = admitted(&both, (algorithm, "a"), 20).await.len();
        assert_eq!(count, N, "{algorithm}");
        // Used by half.
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
async fn no_window_of_a_log_has_more_than_its_limit() {
    const PERIOD: Duration = Duration::from_secs(1);
    const LIMIT: usize = 20;
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: \
                 { algorithm: sliding_log, period: 1s, requests_per_unit: 20 }\n";
    let redis = Server::start();
    let start = || within(on(redis.port(), rules), AMPLE).start();
    let (first, second) = (start(), start());
    let mut all = Vec::new();
    let began = Instant::now();
    // Until the window has moved on twice: with more, the limit was given more than once.
    while all.len() <= 2 * LIMIT {
        assert!(began.elapsed() < PATIENCE, "the window does not move: {}", all.len());
        all.extend(admitted(&[first.grpc, second.grpc], ("user", "ann"), 20).await);
    }
    // Each was admitted between being sent and being answered. So all that were sent and answered
    // within a period lie in one window; whichever has the most of them begins with one.
    for &(from, _) in &all {
        let within = |&&(sent, answered): &&Admission| sent >= from && answered < from + PERIOD;
        let count = all.iter().filter(within).count();
        assert!(count <= LIMIT, "{count} admitted within {PERIOD:?}");
    }
}

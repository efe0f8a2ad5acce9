//! Leases: replicas serve hot keys without a round trip, and never pass a limit together.

use std::net::SocketAddr;

use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::control_api::ControlApi;
use crate::support::redis::Server;

/// Neither rule charges what it denies, so what is counted is what was admitted.
const RULES: &str = "\
domain: shop
descriptors:
  - key: hour
    rate_limits:
      - { unit: hour, requests_per_unit: 4000 }
      - { unit: day, requests_per_unit: 100000 }
  - key: second
    rate_limit: { algorithm: sliding_window, unit: second, requests_per_unit: 100000 }
";

const SERVED: &str = "weir_leased_hits_total{result=\"served\"}";

fn replica(redis: &Server) -> Setup {
    with_redis(redis.port(), RULES)
}

/// Sends requests over a connection. Returns how many are admitted.
async fn admitted(to: SocketAddr, key: &str, requests: usize) -> usize {
    let mut client = RateLimitServiceClient::new(channel(to).await);
    let request = request("shop", &[(key, "a")]);
    let mut admitted = 0;
    for _ in 0..requests {
        let answer = client.should_rate_limit(request.clone()).await.expect("an answer");
        admitted += usize::from(answer.get_ref().overall_code() == Code::Ok);
    }
    admitted
}

/// What Redis has counted.
fn used(weir: &Weir, key: &str) -> u64 {
    let state = ControlApi::new(weir).good(&format!("/v1/state?domain=shop&descriptor={key}=a"));
    state["limits"][0]["used"].as_u64().expect("a count")
}

#[tokio::test]
async fn replicas_of_a_hot_key_never_pass_its_limit_and_return_what_is_left() {
    let redis = Server::start();
    let mut replicas = [replica(&redis).start(), replica(&redis).start()];
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..8 {
        clients.spawn(admitted(replicas[i % 2].grpc, "hour", 400));
    }
    let sum: usize = clients.join_all().await.iter().sum();
    assert_eq!(sum, 3_200, "all are within the limit");
    for replica in &replicas {
        assert!(replica.metric(SERVED) > 400, "{}", replica.metric(SERVED));
    }
    // It returns what nobody asked for, and again when it stops.
    wait_for("leases are returned", || (used(&replicas[0], "hour") == 3_200).then_some(()));
    assert_eq!(admitted(replicas[1].grpc, "hour", 40).await, 40);
    replicas[1].signal("TERM");
    assert!(replicas[1].wait_until_ended().success());
    assert_eq!(used(&replicas[0], "hour"), 3_240);
    // Both at the end of the limit.
    let second = replica(&redis).start();
    let both = [replicas[0].grpc, second.grpc];
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..8 {
        clients.spawn(admitted(both[i % 2], "hour", 400));
    }
    let rest: usize = clients.join_all().await.iter().sum();
    assert!((760 - 16..=760).contains(&rest), "{rest}");
}

#[tokio::test]
async fn a_process_that_was_stopped_serves_nothing_from_its_lease() {
    let redis = Server::start();
    let weir = replica(&redis).env("WEIR__STORE__LEASES_FOR", "1s").start();
    assert_eq!(admitted(weir.grpc, "second", 200).await, 200);
    let served = weir.metric(SERVED);
    assert!(served > 100, "{served}");
    let time = ["EVAL", "return redis.call('TIME')[1]", "0"];
    let now = || redis.command(&time).text().parse::<u64>().expect("seconds");
    weir.signal("STOP");
    let until = now() + 4;
    wait_for("three windows", || (now() >= until).then_some(()));
    let waiting = tokio::spawn(admitted(weir.grpc, "second", 20));
    weir.signal("CONT");
    assert_eq!(waiting.await.unwrap(), 20);
    assert_eq!(weir.metric(SERVED), served);
}

#[tokio::test]
async fn what_is_leased_here_is_shown() {
    let redis = Server::start();
    let weir = replica(&redis).env("WEIR__STORE__LEASES_FOR", "1s").start();
    let api = ControlApi::new(&weir);
    for _ in 0..100 {
        admitted(weir.grpc, "hour", 40).await;
        let state = api.good("/v1/state?domain=shop&descriptor=hour=a");
        if let Some(hits @ 1..) = state["leased"]["hits"].as_u64() {
            assert!(state["leased"]["ends_ms"].as_u64().is_some_and(|left| left <= 1_000));
            assert!(hits <= 500, "at most an eighth of the limit: {hits}");
            return;
        }
    }
    panic!("never leased");
}

#[tokio::test]
async fn nothing_is_leased_where_it_is_off() {
    let redis = Server::start();
    let off = replica(&redis).env("WEIR__STORE__LEASES_FOR", "0s").start();
    let reference = replica(&redis).env("WEIR__STORE__REDIS__LAYOUT", "reference").start();
    for weir in [off, reference] {
        assert_eq!(admitted(weir.grpc, "hour", 200).await, 200);
        assert_eq!(weir.metric("weir_lease_grants_total"), 0);
    }
}

//! Leases: replicas serve hot keys without a round trip, and never pass a limit together.

use std::net::SocketAddr;

use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::channel;
use crate::support::control_api::ControlApi;
use crate::support::http;
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;

/// Neither rule charges what it denies, so what is counted is what was admitted. No window of a year ends during a test.
const RULES: &str = "\
domain: shop
descriptors:
  - key: year
    rate_limits:
      - { unit: year, requests_per_unit: 4000 }
      - { period: 1000d, requests_per_unit: 100000 }
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

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_hot_key_never_pass_its_limit_and_return_what_is_left() {
    let redis = Server::start();
    // So that keys are hot on a busy machine.
    let for_longer = || replica(&redis).env("WEIR__STORE__LEASES_FOR", "1s").start();
    let mut replicas = [for_longer(), for_longer()];
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..8 {
        clients.spawn(admitted(replicas[i % 2].grpc, "year", 400));
    }
    let sum: usize = clients.join_all().await.iter().sum();
    assert_eq!(sum, 3_200, "all are within the limit");
    for replica in &replicas {
        assert!(replica.metric(SERVED) > 400, "{}", replica.metric(SERVED));
    }
    // It returns what nobody asked for, and again when it stops.
    wait_for("leases are returned", || (used(&replicas[0], "year") == 3_200).then_some(()));
    assert_eq!(admitted(replicas[1].grpc, "year", 40).await, 40);
    replicas[1].signal("INT");
    assert!(replicas[1].wait_until_ended().success());
    assert_eq!(used(&replicas[0], "year"), 3_240);
    // Two at the end of the limit.
    let both = [replica(&redis).start(), replica(&redis).start()];
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..8 {
        clients.spawn(admitted(both[i % 2].grpc, "year", 400));
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
        admitted(weir.grpc, "year", 40).await;
        let state = api.good("/v1/state?domain=shop&descriptor=year=a");
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
    assert_eq!(admitted(off.grpc, "year", 200).await, 200);
    assert_eq!(off.metric("weir_lease_grants_total"), 0);
}

/// The rules twice: with leases and without.
fn twins() -> String {
    let rules = |name: &str, lease: &str| {
        format!(
            "  - key: {name}_large
    rate_limit: {{ unit: year, requests_per_unit: 100000 }}
{lease}  - key: {name}_small
    rate_limit: {{ unit: year, requests_per_unit: 400, charge_denied: false }}
{lease}"
        )
    };
    let (early, alone) = (rules("early", ""), rules("alone", "    lease: false\n"));
    format!("domain: shop\ndescriptors:\n{early}{alone}")
}

/// What a text or a document shows of one of the twins, under the name of both.
fn of_twin(twin: &str, lines: impl Iterator<Item = String>) -> Vec<String> {
    let name = format!("{twin}_");
    let of_twin = lines.filter(|line| line.contains(&name));
    let mut shown: Vec<String> = of_twin.map(|line| line.replace(&name, "")).collect();
    shown.sort();
    shown
}

/// Redis is 2 ms away, and one request comes after the other: codes, metrics of rules, lists of top keys, history and
/// denials are those without leases.
#[tokio::test(flavor = "multi_thread")]
async fn one_replica_shows_what_it_shows_without_leases() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    proxy.delay(Duration::from_millis(2));
    let weir = with_redis(proxy.port(), &twins())
        .env("WEIR__STORE__DENY_LOCALLY_FOR", "0")
        // So that keys are hot on a busy machine.
        .env("WEIR__STORE__LEASES_FOR", "1s")
        .start();
    let api = ControlApi::new(&weir);
    let codes = async |key: String, hits: &[u32]| {
        let mut client = RateLimitServiceClient::new(channel(weir.grpc).await);
        let mut codes = Vec::new();
        for hits in hits {
            let hits_addend = *hits;
            let request = RateLimitRequest { hits_addend, ..request("shop", &[(&key, "a")]) };
            let answer = client.should_rate_limit(request).await.expect("an answer").into_inner();
            codes.push((answer.overall_code, answer.statuses[0].limit_remaining));
        }
        codes
    };
    let large = [[79_000].as_slice(), &[1; 3_000]].concat();
    let small = [[1; 32].as_slice(), &[368, 1, 1]].concat();
    for (key, hits) in [("large", &large), ("small", &small)] {
        let leased = codes(format!("early_{key}"), hits).await;
        let alone = codes(format!("alone_{key}"), hits).await;
        assert_eq!(leased, alone, "{key}");
    }
    assert!(weir.metric(SERVED) > 1_000);

    let same = |what: &str, lines: Vec<String>| {
        let [leased, alone] = ["early", "alone"].map(|twin| of_twin(twin, lines.iter().cloned()));
        assert!(!alone.is_empty(), "{what}");
        assert_eq!(leased, alone, "{what}");
    };
    let metrics = http::get(weir.http, "/metrics").body;
    same("metrics", metrics.lines().map(str::to_owned).collect());
    for by in ["near", "hits", "denied"] {
        let list = api.good(&format!("/v1/top?by={by}"));
        let rows = list["rows"].as_array().expect("rows").iter().map(|row| {
            let mut row = row.clone();
            // It is that of the latest request.
            row.as_object_mut().expect("a row").remove("reset_ms");
            row.to_string()
        });
        same(by, rows.collect());
    }
    // It is written once a second.
    wait_for("the same history", || {
        let history = api.good("/v1/history?step=1s");
        let rules = || history["rules"].as_array().into_iter().flatten().map(ToString::to_string);
        let [early, alone] = ["early", "alone"].map(|twin| of_twin(twin, rules()));
        (alone.len() == 2 && early == alone).then_some(())
    });
}

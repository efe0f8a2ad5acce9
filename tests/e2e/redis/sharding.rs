//! Two Redis behind Envoy's redis_proxy or twemproxy.

use std::net::SocketAddr;

use serde_json::json;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::*;
use crate::support::api::{channel, descriptor};
use crate::support::control_api::{ControlApi, of_user};
use crate::support::redis::Server;
use crate::support::redis::sharding::{PATIENT, Sharding};

/// What is denied charges nothing, and keys of windows are hot enough for leases.
const RULES: &str = "\
domain: shop
descriptors:
  - key: fixed
    rate_limits:
      - { unit: week, requests_per_unit: 700 }
      - { unit: year, requests_per_unit: 900 }
  - key: sliding
    rate_limit: { unit: month, requests_per_unit: 700, algorithm: sliding_window }
  - key: gcra
    rate_limit: { unit: year, requests_per_unit: 700, algorithm: gcra }
  - key: log
    rate_limit: { unit: year, requests_per_unit: 700, algorithm: sliding_log }
";
const KEYS: [&str; 4] = ["fixed", "sliding", "gcra", "log"];

fn behind(proxy: &Sharding) -> Setup {
    let setup = with_redis(proxy.port(), RULES).env("REDIS_TYPE", "PROXY");
    // Keys are hot enough on a busy machine, too.
    setup.env("WEIR__STORE__LEASES_FOR", "1s")
}

/// Sends requests with four descriptors. Returns how many of each are admitted.
async fn admitted(weir: SocketAddr, user: &'static str, requests: usize) -> [usize; 4] {
    let mut client = RateLimitServiceClient::new(channel(weir).await);
    let descriptors = KEYS.map(|key| descriptor(&[(key, user)])).to_vec();
    let request = RateLimitRequest { descriptors, ..request("shop", &[]) };
    let mut admitted = [0; 4];
    for _ in 0..requests {
        let answer = client.should_rate_limit(request.clone()).await.expect("an answer");
        for (admitted, status) in admitted.iter_mut().zip(&answer.get_ref().statuses) {
            *admitted += usize::from(status.code() == Code::Ok);
        }
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_behind_proxies_admit_exactly_n_with_leases_and_share_no_controls() {
    for start in [Sharding::envoy, Sharding::twemproxy] {
        let servers = [Server::start(), Server::start()];
        let proxy = start(&servers, true, PATIENT);
        let mut replicas = [behind(&proxy).start(), behind(&proxy).start()];
        let mut clients = tokio::task::JoinSet::new();
        for i in 0..16 {
            clients.spawn(admitted(replicas[i % 2].grpc, "ann", 50));
        }
        let all = clients.join_all().await;
        let sum = |i: usize| all.iter().map(|admitted| admitted[i]).sum::<usize>();
        let mut sums: [usize; 4] = std::array::from_fn(sum);
        assert_eq!(sums[2..], [700, 700], "what is not leased");
        // Leased keys may be denied while others hold unused hits, until these are returned.
        let give_up = Instant::now() + Duration::from_secs(60);
        while sums != [700; 4] && Instant::now() < give_up {
            let more = admitted(replicas[0].grpc, "ann", 10).await;
            sums = std::array::from_fn(|i| sums[i] + more[i]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(sums, [700; 4]);
        let leased = "weir_leased_hits_total{result=\"served\"}";
        assert!(replicas.iter().all(|replica| replica.metric(leased) > 0));
        for server in &servers {
            assert!(server.command(&["DBSIZE"]).int() > 0);
        }
        replicas[0].until_said("replicas share no controls and no lists of top keys").unwrap();
        let controls = ControlApi::new(&replicas[0]);
        let (status, written) = controls.put("eve", &of_user("eve", &json!({ "action": "block" })));
        assert_eq!((status, &written["shared"]), (200, &json!(false)), "{written}");
        // A replica that stops returns what it has leased.
        assert_eq!(admitted(replicas[0].grpc, "bob", 300).await, [300; 4]);
        replicas[0].signal("INT");
        replicas[0].wait_until_ended();
        let api = ControlApi::new(&replicas[1]);
        let state = api.good("/v1/state?domain=shop&descriptor=fixed=bob");
        assert_eq!(state["limits"][0]["used"], 300, "{state}");
    }
}

#[tokio::test]
async fn without_the_setting_weir_names_it_and_is_not_ready() {
    let servers = [Server::start(), Server::start()];
    for start in [Sharding::envoy, Sharding::twemproxy] {
        let proxy = start(&servers, true, PATIENT);
        let mut weir = with_redis(proxy.port(), RULES).start_unhealthy();
        let line = weir.until_said("cannot connect to redis").unwrap();
        assert!(line.contains("set store.redis.topology to proxy (REDIS_TYPE=PROXY)"), "{line}");
        assert!(!weir.is_healthy());
    }
}

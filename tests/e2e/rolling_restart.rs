//! Replicas that restart one after the other behind a real Envoy under load: no request is lost.
//! Envoy fails a request whose call to weir fails, so each lost call shows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::envoy::{Envoy, Replica};
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::service_address::ServiceAddress;
use crate::support::traffic::{Outcomes, Traffic};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{envoy, wait_for};

use super::envoy_docs;

const RULES: &str = "\
domain: edge
descriptors:
  - key: service
    value: shop
    rate_limit: { unit: year, requests_per_unit: 1000000000 }
";

/// Longer than it takes to notice that a replica is not ready any more.
const DELAY: &str = "2s";

const CLIENTS: u32 = 8;
const PER_SECOND: u32 = 100;

/// How late Redis answers, so that requests are in flight at any moment.
const LATENCY: Duration = Duration::from_millis(20);

/// A Redis that answers late, for all replicas.
struct SlowRedis {
    proxy: Proxy,
    _server: Server,
}

impl SlowRedis {
    fn start() -> SlowRedis {
        let server = Server::start();
        let proxy = Proxy::start(server.port());
        proxy.delay(LATENCY);
        SlowRedis { proxy, _server: server }
    }

    fn replica(&self) -> Setup {
        serving(RULES)
            .env("WEIR__DRAIN__DELAY", DELAY)
            .env("REDIS_URL", format!("127.0.0.1:{}", self.proxy.port()))
    }
}

/// Starts a replica where an earlier one was.
fn start_again(replica: impl Fn() -> Setup, grpc: SocketAddr, http: SocketAddr) -> Weir {
    let (grpc, http) = (grpc.to_string(), http.to_string());
    // Another process may have taken the port for a moment.
    wait_for("the port is free", || {
        let setup = replica().arg("--grpc-address").arg(&grpc).arg("--http-address").arg(&http);
        setup.arg("--debug-address").arg("127.0.0.1:0").try_start().ok()
    })
}

fn answered(traffic: &Traffic) -> u64 {
    traffic.outcomes().values().sum()
}

/// Waits until as many more requests have an outcome.
fn wait_for_answers(traffic: &Traffic, count: u64) {
    let before = answered(traffic);
    wait_for("answers", || (answered(traffic) >= before + count).then_some(()));
}

fn assert_none_lost(envoy: &Envoy, outcomes: &Outcomes) {
    println!("outcomes {outcomes:?}");
    assert_eq!(outcomes.keys().collect::<Vec<_>>(), ["200"], "{outcomes:?}");
    assert_eq!(envoy.stat("cluster.backend.ratelimit.error"), 0);
    assert_eq!(envoy.stat("cluster.weir.upstream_cx_destroy_with_active_rq"), 0);
    assert_eq!(envoy.stat("cluster.weir.upstream_rq_rx_reset"), 0);
}

fn stop(weir: &mut Weir) {
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    let said = weir.said_in_all();
    assert!(!said.contains("did not end in time"), "{said}");
}

/// Restarts both of two replicas in place, with this kind of health check.
fn restart_with_health_checks(check: &str, probed: impl Fn(&Weir) -> SocketAddr) {
    let redis = SlowRedis::start();
    let mut replicas = [redis.replica().start(), redis.replica().start()];
    let endpoints = [0, 1].map(|i: usize| {
        let weir = &replicas[i];
        Replica { grpc: weir.grpc, probed: probed(weir) }
    });
    let cluster = format!(
        "health_checks: [{{ timeout: 5s, interval: 0.1s, no_traffic_interval: 0.1s, \
         unhealthy_threshold: 1, healthy_threshold: 1, {check} }}]"
    );
    let envoy = envoy::in_front_of_replicas(&endpoints, &cluster);
    let both_healthy = || {
        let healthy = || envoy.stat("cluster.weir.membership_healthy");
        wait_for("both replicas are healthy", || (healthy() == 2).then_some(()));
    };
    both_healthy();
    let traffic = Traffic::start(envoy.address, CLIENTS, PER_SECOND);
    for replica in &mut replicas {
        let calls = envoy.calls_to(replica.grpc);
        wait_for("the replica is called", || {
            (envoy.calls_to(replica.grpc) > calls + 20).then_some(())
        });
        stop(replica);
        *replica = start_again(|| redis.replica(), replica.grpc, replica.http);
        both_healthy();
        wait_for_answers(&traffic, 100);
    }
    assert_none_lost(&envoy, &traffic.stop());
}

#[test]
fn with_grpc_health_checks_a_restart_loses_no_request() {
    restart_with_health_checks("grpc_health_check: { service_name: ratelimit }", |weir| weir.grpc);
}

#[test]
fn with_http_health_checks_a_restart_loses_no_request() {
    restart_with_health_checks("http_health_check: { path: /readyz }", |weir| weir.http);
}

/// Envoy has just started, so that it has not used the cluster when it first checks its health. With
/// `WEIR_LONG_TESTS`, replicas restart until its first minute is over.
#[test]
fn with_the_documented_cluster_a_restart_in_envoys_first_minute_loses_no_request() {
    let started = Instant::now();
    let is_over = || match std::env::var_os("WEIR_LONG_TESTS") {
        Some(_) => started.elapsed() > Duration::from_secs(75),
        None => true,
    };
    // With the default `drain.delay`.
    let start = || serving(RULES);
    let mut replicas = [start().start(), start().start()];
    let endpoints = replicas.each_ref().map(Replica::of);
    let envoy = envoy::with_documented_cluster(&endpoints, envoy_docs::cluster());
    let traffic = Traffic::start(envoy.address, CLIENTS, PER_SECOND);
    loop {
        for replica in &mut replicas {
            let calls = envoy.calls_to(replica.grpc);
            wait_for("the replica is called", || {
                (envoy.calls_to(replica.grpc) > calls + 20).then_some(())
            });
            stop(replica);
            *replica = start_again(start, replica.grpc, replica.http);
            wait_for("both replicas are healthy", || {
                (envoy.stat("cluster.weir.membership_healthy") == 2).then_some(())
            });
            wait_for_answers(&traffic, 100);
            if is_over() {
                return assert_none_lost(&envoy, &traffic.stop());
            }
        }
    }
}

/// As Envoy Gateway configures it: Envoy knows one address and checks no health; Kubernetes sends new
/// connections to replicas that are ready, and each replica is replaced by one at another address.
#[test]
fn on_one_address_without_health_checks_a_restart_loses_no_request() {
    let (redis, service) = (SlowRedis::start(), ServiceAddress::start());
    let start = || {
        let weir = redis.replica().start();
        service.add(&weir);
        wait_for("the replica is ready", || service.routes_to(&weir).then_some(()));
        weir
    };
    let mut replicas = [start(), start()];
    let address = Replica { grpc: service.address, probed: service.address };
    let envoy = envoy::in_front_of_replicas(&[address], "");
    let traffic = Traffic::start(envoy.address, CLIENTS, PER_SECOND);
    wait_for_answers(&traffic, 100);
    // Each of the two once more: Envoy's connection has moved between them.
    for i in [0, 1, 0, 1] {
        let replacement = start();
        stop(&mut replicas[i]);
        replicas[i] = replacement;
        wait_for_answers(&traffic, 100);
    }
    assert_none_lost(&envoy, &traffic.stop());
    let moved = replicas.iter().map(|weir| service.connections_to(weir)).sum::<u64>();
    assert!(moved > 0, "no connection has moved to the new replicas");
}

#[test]
fn connections_that_reach_their_age_lose_no_request() {
    let redis = SlowRedis::start();
    let weir = redis.replica().env("GRPC_MAX_CONNECTION_AGE", "50ms").start();
    let envoy = envoy::in_front_of_replicas(&[Replica::of(&weir)], "");
    let traffic = Traffic::start(envoy.address, CLIENTS, PER_SECOND);
    let connections = || envoy.stat("cluster.weir.upstream_cx_total");
    wait_for("connections are replaced", || (connections() > 40).then_some(()));
    assert_none_lost(&envoy, &traffic.stop());
}

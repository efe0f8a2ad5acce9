//! weir in the place of envoyproxy/ratelimit, with exactly the environment, volumes, probes, user and
//! command that Envoy Gateway gives it.

mod example;
mod gateway;
mod ipv6;
mod overlay;
mod pod;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use self::gateway::{DESCRIPTOR, DOMAIN, Gateway, RULE};
use self::pod::{Pod, in_pod};
use crate::support::api::request;
use crate::support::certificates::Authority;
use crate::support::redis::{Config, Server};
use crate::support::{PATIENCE, wait_for, wait_until};

/// A request of the route that the rules limit.
fn limited_request() -> RateLimitRequest {
    request(DOMAIN, &[(DESCRIPTOR, DESCRIPTOR), (RULE, RULE)])
}

/// Opens a connection as Envoy does: it verifies weir's certificate and shows none that weir verifies.
async fn channel(pod: &Pod, authority: &Authority) -> Channel {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&authority.pem))
        .domain_name("envoy-ratelimit.envoy-gateway-system.svc.cluster.local");
    let endpoint = Endpoint::from_shared(format!("https://{}", pod.grpc())).unwrap();
    endpoint.tls_config(tls).unwrap().timeout(PATIENCE).connect().await.expect("TLS on gRPC")
}

/// Sends the request until the rules are loaded, then until it is over the limit. Returns how many
/// requests were allowed.
async fn allowed(pod: &Pod, authority: &Authority) -> u32 {
    let mut client = RateLimitServiceClient::new(channel(pod, authority).await);
    let mut allowed = 0;
    wait_until("the rules limit the route", async || {
        let Ok(answer) = client.should_rate_limit(limited_request()).await else { return false };
        let answer = answer.into_inner();
        // Without rules, requests are allowed without a limit.
        let has_limit = answer.statuses.iter().any(|status| status.current_limit.is_some());
        allowed += u32::from(has_limit && answer.overall_code() == Code::Ok);
        answer.overall_code() == Code::OverLimit
    })
    .await;
    allowed
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn starts_and_serves_its_rules() {
    in_pod("envoy_gateway::starts_and_serves_its_rules", |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        pod.config_map();
        pod.start();
        // Healthy without rules, because Envoy Gateway forces the start.
        wait_for("the startup probe", || (pod.probe() == Some(200)).then_some(()));
        gateway.await_subscription();
        gateway.set_snapshot(3);
        assert_eq!(block_on(allowed(&pod, &authority)), 3);
        assert!(redis.command(&["DBSIZE"]).int() > 0, "counted in Redis");

        assert!(pod.metrics().contains("\n# TYPE "), "metrics on their own port");

        // A server that restarts with the same snapshot sends nothing.
        gateway.restart_stream();
        assert_eq!(pod.probe_until_answered(), 200);
        gateway.set_snapshot(5);
        assert!(block_on(allowed(&pod, &authority)) > 0, "the new limit");
        pod.stop();
    });
}

#[test]
fn metrics_have_the_names_of_the_config_map() {
    in_pod("envoy_gateway::metrics_have_the_names_of_the_config_map", |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        pod.config_map();
        pod.start();
        gateway.await_subscription();
        gateway.set_snapshot(1);
        assert_eq!(block_on(allowed(&pod, &authority)), 1);
        wait_for("the metrics that the mapper names", || {
            let text = pod.metrics();
            let has = |name: &str| {
                let start = format!("ratelimit_service_rate_limit_{name}{{domain=\"{DOMAIN}\"");
                text.lines().any(|line| line.starts_with(&start))
            };
            (has("over_limit") && has("total_hits")).then_some(())
        });
    });
}

#[test]
fn without_a_config_map_the_built_in_mapper_is_used() {
    in_pod("envoy_gateway::without_a_config_map_the_built_in_mapper_is_used", |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        pod.start();
        gateway.await_subscription();
        gateway.set_snapshot(1);
        assert_eq!(block_on(allowed(&pod, &authority)), 1);
        wait_for("the built-in names", || {
            pod.metrics().contains("ratelimit_service_rate_limit_total_hits").then_some(())
        });
    });
}

#[test]
fn the_startup_probe_waits_for_redis_and_the_gateway_may_come_later() {
    in_pod(
        "envoy_gateway::the_startup_probe_waits_for_redis_and_the_gateway_may_come_later",
        |place| {
            let (authority, mut redis) = (Authority::new(), Server::start());
            redis.kill();
            let mut pod = Pod::new(place.clone(), &authority, &redis);
            pod.start();
            for _ in 0..3 {
                assert_eq!(pod.probe_until_answered(), 500);
            }
            redis.restart();
            wait_for("the startup probe", || (pod.probe() == Some(200)).then_some(()));
            let gateway = Gateway::start(&place, &authority);
            gateway.await_subscription();
            gateway.set_snapshot(2);
            assert_eq!(block_on(allowed(&pod, &authority)), 2);
        },
    );
}

#[test]
fn tracing_without_a_collector_does_not_matter() {
    in_pod("envoy_gateway::tracing_without_a_collector_does_not_matter", |place| {
        let (authority, redis) = (Authority::new(), Server::start());
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        pod.with_tracing();
        pod.start();
        gateway.await_subscription();
        gateway.set_snapshot(3);
        assert_eq!(block_on(allowed(&pod, &authority)), 3);
    });
}

#[test]
fn redis_over_tls_is_verified_by_the_systems_roots() {
    in_pod("envoy_gateway::redis_over_tls_is_verified_by_the_systems_roots", |place| {
        let authority = Authority::new();
        let redis = Server::with(Config { tls: true, ..Config::default() });
        let gateway = Gateway::start(&place, &authority);
        let mut pod = Pod::new(place, &authority, &redis);
        pod.with_redis_over_tls(&redis);
        pod.start();
        wait_for("the startup probe", || (pod.probe() == Some(200)).then_some(()));
        gateway.await_subscription();
        gateway.set_snapshot(3);
        assert_eq!(block_on(allowed(&pod, &authority)), 3);
    });
}

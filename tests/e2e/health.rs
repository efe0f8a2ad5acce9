//! Health: whether the service is ready, and why not.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::api::{HIGH_LIMIT, channel};
use crate::support::redis::Server;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for};

/// A service with `redis`, which no pause of the machine makes too slow.
fn with_redis(redis: &Server) -> Setup {
    serving(HIGH_LIMIT).env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
}

fn get(weir: &Weir, path: &str) -> (u16, String) {
    let answer = http::get(weir.http, path);
    (answer.status, answer.body)
}

/// Asserts that the service is not ready, for these reasons, but alive.
fn assert_not_ready(weir: &Weir, reasons: &str) {
    assert_eq!(get(weir, "/readyz"), (503, reasons.to_owned()));
    assert_eq!(get(weir, "/healthcheck"), (500, String::new()));
    assert_eq!(get(weir, "/livez"), (200, "ok\n".to_owned()));
}

fn wait_for_readiness(weir: &Weir, ready: bool) {
    let status = if ready { 200 } else { 503 };
    let answered = || (http::get(weir.http, "/readyz").status == status).then_some(());
    wait_for(&format!("/readyz answers {status}"), answered);
}

#[test]
fn readiness_names_each_unmet_condition() {
    let mut redis = Server::start();
    redis.kill();
    let weir = with_redis(&redis).file("rules.yaml", "domain: [").start_unhealthy();
    assert_not_ready(&weir, "no rules are loaded\nredis has not answered yet\n");
    assert_eq!(weir.metric("weir_ready"), 0);
    assert_eq!(weir.metric(r#"weir_not_ready{reason="no rules are loaded"}"#), 1);
    std::fs::write(weir.path("rules.yaml"), HIGH_LIMIT).unwrap();
    wait_for("rules are loaded", || {
        (get(&weir, "/readyz").1 == "redis has not answered yet\n").then_some(())
    });
    redis.restart();
    wait_for_readiness(&weir, true);
    assert_eq!(get(&weir, "/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(get(&weir, "/healthcheck"), (200, "OK".to_owned()));
    assert_eq!(weir.metric("weir_ready"), 1);
    assert_eq!(weir.metric(r#"weir_not_ready{reason="no rules are loaded"}"#), 0);
    // The log is written by a thread of its own.
    wait_for("it is logged", || weir.said().contains("health reports serving").then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_redis_if_asked_to_and_watchers_see_each_change() {
    let mut redis = Server::start();
    let setup = with_redis(&redis).env("WEIR__DRAIN__DELAY", "10ms");
    let mut weir = setup.env("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true").start();
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let mut watch = async |service: &str| {
        let request = HealthCheckRequest { service: service.into() };
        health.watch(request).await.unwrap().into_inner()
    };
    let (mut watched, mut process) = (watch("ratelimit").await, watch("").await);
    let mut next = async || watched.message().await.unwrap().map(|message| message.status());
    assert_eq!(next().await, Some(ServingStatus::Serving));
    for _ in 0..2 {
        redis.kill();
        assert_eq!(next().await, Some(ServingStatus::NotServing));
        assert_not_ready(&weir, "no connection to redis is up\n");
        redis.restart();
        assert_eq!(next().await, Some(ServingStatus::Serving));
        assert_eq!(get(&weir, "/readyz").0, 200);
    }
    weir.signal("TERM");
    assert_eq!(next().await, Some(ServingStatus::NotServing));
    assert_eq!(next().await, None);
    // The process serves to its end.
    let first = process.message().await.unwrap().map(|message| message.status());
    assert_eq!(first, Some(ServingStatus::Serving));
    assert!(process.message().await.unwrap().is_none());
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    let said = weir.said_in_all();
    assert!(said.contains("health reports not serving"), "{said}");
    assert!(said.contains("no connection to redis is up"), "{said}");
}

#[test]
fn health_that_follows_redis_needs_the_one_for_limits_per_second_too() {
    let (main, mut per_second) = (Server::start(), Server::start());
    let weir = with_redis(&main)
        .env("REDIS_PERSECOND", "true")
        .env("REDIS_PERSECOND_URL", format!("127.0.0.1:{}", per_second.port()))
        .env("WEIR__HEALTH__FOLLOW_STORE", "true")
        // An explicit wish, whatever answers requests meanwhile.
        .env("WEIR__STORE__ON_FAILURE", "allow")
        .start();
    per_second.kill();
    wait_for_readiness(&weir, false);
    assert_not_ready(&weir, "no connection to redis is up\n");
    per_second.restart();
    wait_for_readiness(&weir, true);
}

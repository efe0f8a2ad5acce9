//! Starting while there is no Redis.

use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::*;
use crate::support::api::channel;
use crate::support::http;
use crate::support::redis::Server;

async fn grpc_health(weir: &Weir) -> ServingStatus {
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let asked = health.check(HealthCheckRequest { service: "ratelimit".into() }).await;
    let HealthCheckResponse { status } = asked.unwrap().into_inner();
    status.try_into().unwrap()
}

#[tokio::test]
async fn ports_open_at_once_and_health_waits_for_redis() {
    let mut redis = Server::start();
    redis.kill();
    let weir = on(redis.port(), WIDE).start_unhealthy();
    // For more than one try to reach it.
    for _ in 0..3 {
        assert_eq!(http::get(weir.http, "/healthcheck").status, 500);
        assert_eq!(grpc_health(&weir).await, ServingStatus::NotServing);
        let asked = crate::support::api::ask(weir.grpc, ann()).await;
        assert_eq!(asked.unwrap_err().code(), tonic::Code::Unknown);
    }
    redis.restart();
    wait_for("weir is healthy", || weir.is_healthy().then_some(()));
    assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
    until_counted(&weir, &redis).await;

    // It was there once: whoever asks is told of failures, health is not.
    redis.kill();
    wait_for("Redis to be missed", || {
        (weir.metric(r#"weir_redis_connections_down{instance="main"}"#) > 0).then_some(())
    });
    assert!(weir.is_healthy());
    assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
}

#[tokio::test]
async fn where_a_policy_answers_nobody_waits_for_redis() {
    for policy in ["allow", "deny", "local"] {
        let mut redis = Server::start();
        redis.kill();
        let weir = on(redis.port(), WIDE).env("WEIR__STORE__ON_FAILURE", policy).start_unhealthy();
        wait_for("weir is healthy", || weir.is_healthy().then_some(()));
        assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
        let wanted = if policy == "deny" { Code::OverLimit } else { Code::Ok };
        assert_eq!(code(weir.grpc, ann()).await, wanted, "{policy}");
        redis.restart();
        until_counted(&weir, &redis).await;
    }
}

/// Waits until a request is counted in Redis.
async fn until_counted(weir: &Weir, redis: &Server) {
    let give_up = Instant::now() + PATIENCE;
    while redis.command(&["DBSIZE"]).int() == 0 {
        assert!(Instant::now() < give_up, "nothing counted within {PATIENCE:?}");
        // Failures are looked for elsewhere.
        let _ = crate::support::api::ask(weir.grpc, ann()).await;
    }
}

//! Starting while Redis is unreachable.

use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::*;
use crate::support::api::{ask, channel};
use crate::support::redis::Server;
use crate::support::{http, wait_until};

async fn grpc_health(weir: &Weir) -> ServingStatus {
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let response = health.check(HealthCheckRequest { service: "ratelimit".into() }).await;
    let HealthCheckResponse { status } = response.unwrap().into_inner();
    status.try_into().unwrap()
}

#[tokio::test]
async fn ports_open_at_once_and_health_waits_for_redis() {
    let mut redis = Server::start();
    redis.kill();
    let weir = with_redis(redis.port(), HIGH_LIMIT).start_unhealthy();
    // During several attempts to connect.
    for _ in 0..3 {
        assert_eq!(http::get(weir.http, "/healthcheck").status, 500);
        assert_eq!(grpc_health(&weir).await, ServingStatus::NotServing);
        let answer = ask(weir.grpc, user_request()).await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::Unknown);
    }
    redis.restart();
    wait_for("weir is healthy", || weir.is_healthy().then_some(()));
    assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
    until_counted(&weir, &redis).await;

    // After the first answer of Redis, failures fail requests but not health.
    redis.kill();
    wait_for("a connection is down", || {
        (weir.metric(r#"weir_redis_connections_down{redis="main"}"#) > 0).then_some(())
    });
    assert!(weir.is_healthy());
    assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
}

#[tokio::test]
async fn with_a_failure_policy_health_does_not_wait_for_redis() {
    for policy in ["allow", "deny", "local"] {
        let mut redis = Server::start();
        redis.kill();
        let weir = with_redis(redis.port(), HIGH_LIMIT)
            .env("WEIR__STORE__ON_FAILURE", policy)
            .start_unhealthy();
        wait_for("weir is healthy", || weir.is_healthy().then_some(()));
        assert_eq!(grpc_health(&weir).await, ServingStatus::Serving);
        let wanted = if policy == "deny" { Code::OverLimit } else { Code::Ok };
        assert_eq!(code(weir.grpc, user_request()).await, wanted, "{policy}");
        redis.restart();
        until_counted(&weir, &redis).await;
    }
}

#[test]
fn unusable_certificates_stop_the_start() {
    let name = "store.redis.tls.ca names /none: No such file";
    let tls = ("REDIS_TLS", "true");
    let per_second = ("WEIR__STORE__REDIS__PER_SECOND__URL", "rediss://localhost:1");
    for (variable, text) in [tls, per_second] {
        let (status, output) = with_redis(1, HIGH_LIMIT)
            .env(variable, text)
            .env("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true")
            .env("REDIS_TLS_CACERT", "/none")
            .run();
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(output.contains("weir cannot start") && output.contains(name), "{output}");
    }
}

/// Waits until a request is counted in Redis.
async fn until_counted(weir: &Weir, redis: &Server) {
    wait_until("a request is counted", async || {
        // Other tests look for failures.
        let _ = ask(weir.grpc, user_request()).await;
        redis.command(&["DBSIZE"]).int() > 0
    })
    .await;
}

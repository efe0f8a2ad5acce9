//! The management server is unreachable, or becomes so.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tonic::transport::Server;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{any, asking, bad, rules, source, with_shop};
use crate::reload::until;
use crate::support::api::{ask, code, request};
use crate::support::management::Management;
use crate::support::{PATIENCE, wait_for};

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    Management::start().address
}

#[test]
fn an_ended_stream_is_reopened_with_the_active_version() {
    let server = Management::start();
    let weir = with_shop(&server);
    server.set("2", vec![any(&rules("shop", 2))]);
    server.rejected("3", vec![any(&bad("shop"))], "2");
    for end in [0, 1] {
        match end {
            0 => server.sotw.end(),
            _ => server.sotw.fail("going down"),
        }
        let again = server.sotw.next();
        assert_eq!((again.version_info.as_str(), again.response_nonce.as_str()), ("2", ""));
        assert!(again.error_detail.is_none() && again.node.is_some());
        until(&weir, &[("shop", 2)]);
    }
    assert_eq!(weir.metric("weir_xds_stream_failures_total"), 2);
    server.set("4", vec![any(&rules("shop", 4))]);
    until(&weir, &[("shop", 4)]);
    let said = weir.said();
    assert!(said.contains("the server ended the stream"), "{said}");
    assert!(said.contains("going down"), "{said}");
}

#[tokio::test]
async fn the_rules_stay_while_the_server_is_unreachable() {
    let server = Management::start();
    let weir = with_shop(&server);
    let address = server.address;
    drop(server);
    wait_for("the disconnect is detected", || {
        (weir.metric("weir_xds_connected") == 0).then_some(())
    });
    wait_for("weir reconnects", || {
        (weir.metric("weir_xds_stream_failures_total") > 10).then_some(())
    });
    assert!(weir.is_healthy());
    let said = source(&weir);
    assert_eq!((&said["connected"], &said["version"]), (&false.into(), &"1".into()));
    assert!(said["last_failure"]["reason"].as_str().unwrap().contains("refused"), "{said}");
    let ann = || request("shop", &[("user", "ann")]);
    assert_eq!(code(weir.grpc, ann()).await, Code::Ok);
    assert_eq!(code(weir.grpc, ann()).await, Code::OverLimit);
    // Logged once for each reason, not each time.
    let lines = weir.said().matches("no stream from the management server").count();
    assert!(lines <= 5, "{lines}");

    let server = Management::start_on(address, Server::builder());
    let first = server.sotw.next();
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str()), ("1", ""));
    server.set("2", vec![any(&rules("shop", 2))]);
    until(&weir, &[("shop", 2)]);
    // Counts are kept.
    assert_eq!(code(weir.grpc, ann()).await, Code::OverLimit);
    assert_eq!(weir.metric("weir_xds_connected"), 1);
}

#[tokio::test]
async fn without_a_server_ports_are_open_and_health_is_not_serving() {
    let address = nobody();
    let weir = asking(address).start_unhealthy();
    wait_for("the disconnect is detected", || {
        (weir.metric("weir_xds_stream_failures_total") > 1).then_some(())
    });
    assert!(!weir.is_healthy());
    let server = Management::start_on(address, Server::builder());
    assert_eq!(server.sotw.next().version_info, "");
    // The first rules are invalid: there are none until they are fixed.
    server.rejected("1", vec![any(&bad("shop"))], "");
    assert!(!weir.is_healthy());
    let refused = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap_err();
    assert!(refused.message().contains("no rate limit configuration loaded"), "{refused:?}");
    server.set("2", vec![any(&rules("shop", 1))]);
    assert!(weir.is_healthy());
}

#[tokio::test]
async fn health_may_do_without_rules() {
    let weir = asking(nobody()).env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true").start();
    let refused = ask(weir.grpc, request("shop", &[("user", "ann")])).await.unwrap_err();
    assert!(refused.message().contains("no rate limit configuration loaded"), "{refused:?}");
}

#[test]
fn no_rules_and_no_stream_are_problems_in_the_status_and_in_the_log() {
    let address = nobody();
    let weir = asking(address).env("FORCE_START_WITHOUT_INITIAL_CONFIG", "true").start();
    // They are not due yet.
    assert!(weir.problems().is_empty());
    let kinds = || weir.problems().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    wait_for("two problems", || (kinds() == ["no_rules", "xds"]).then_some(()));
    for (_, problem) in weir.problems() {
        let text = problem["text"].as_str().unwrap();
        assert_eq!(problem["severity"], "critical");
        weir.has_said(&format!("problem with the rules problem=\"{text}"));
    }
    let server = Management::start_on(address, Server::builder());
    server.sotw.next();
    wait_for("a stream", || (kinds() == ["no_rules"]).then_some(()));
    server.set("1", vec![any(&rules("shop", 1))]);
    assert_eq!(kinds(), [""; 0]);
    drop(server);
    wait_for("the stream is lost", || (kinds() == ["xds"]).then_some(()));
    let (_, problem) = &weir.problems()[0];
    assert_eq!(problem["severity"], "warning");
}

#[test]
fn waiting_for_a_server_does_not_delay_the_stop() {
    // One that is unreachable, one that is silent, and one that is connected.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Management::start();
    for address in [nobody(), silent.local_addr().unwrap(), server.address] {
        let mut weir = asking(address)
            .env("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "1h")
            .env("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1h")
            .env("WEIR__DRAIN__DELAY", "0")
            .start_unhealthy();
        let start = Instant::now();
        weir.signal("TERM");
        assert!(weir.wait_until_ended().success());
        assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    }
}

/// A proxy between weir and a server that can drop all bytes, as a failed machine or network does
#[test]
fn waits_grow() {
    let weir = asking(nobody())
        .env("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "20ms")
        .env("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "1h")
        .env("XDS_CLIENT_BACKOFF_JITTER", "false")
        .start_unhealthy();
    let start = Instant::now();
    wait_for("six failures", || (weir.metric("weir_xds_stream_failures_total") >= 6).then_some(()));
    // 20 + 40 + 80 + 160 + 320 ms between them.
    assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
}

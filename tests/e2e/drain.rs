//! How the service stops. Tests with gRPC clients need a multi-threaded runtime: an HTTP/2 server
//! waits until its clients have acknowledged the end of the connection.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{channel, code, request};
use crate::support::weir::{Setup, serving};
use crate::support::{http, wait_for};

/// Longer than a drain should take here, shorter than `drain.timeout`.
const SOON: Duration = Duration::from_secs(10);

fn setup() -> Setup {
    serving("domain: shop\n").env("WEIR__DRAIN__DELAY", "200ms").env("WEIR__DRAIN__TIMEOUT", "30s")
}

#[test]
fn every_stop_signal_ends_the_process_with_exit_code_0() {
    // Ctrl-C skips the delay: it is for people, not for load balancers.
    for (signal, delay) in [("TERM", "200ms"), ("HUP", "200ms"), ("INT", "1h")] {
        let mut weir = setup().env("WEIR__DRAIN__DELAY", delay).start();
        let signaled = Instant::now();
        weir.signal(signal);
        assert_eq!(weir.wait_until_ended().code(), Some(0), "{signal}");
        assert!(signaled.elapsed() < SOON, "{signal}");
        assert!(signal == "INT" || signaled.elapsed() >= Duration::from_millis(200), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_fails_first_and_requests_are_answered_until_the_listeners_close() {
    // Longer than the test.
    let weir = setup().env("WEIR__DRAIN__DELAY", "1h").start();
    let channel = channel(weir.grpc).await;
    let check = HealthCheckRequest { service: "ratelimit".into() };
    let mut watched = HealthClient::new(channel.clone()).watch(check).await.unwrap().into_inner();
    let mut next = async || watched.message().await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::Serving);

    weir.signal("TERM");
    assert_eq!(next().await, ServingStatus::NotServing);
    let health = http::get(weir.http, "/healthcheck");
    assert_eq!((health.status, health.body.as_str()), (500, ""));
    assert_eq!(code(weir.grpc, request("shop", &[("k", "v")])).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_watchers_do_not_delay_the_end() {
    let mut weir = setup().start();
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let mut watched = Vec::new();
    for service in ["ratelimit", "", "unknown"] {
        let check = HealthCheckRequest { service: service.into() };
        watched.push(health.watch(check).await.unwrap().into_inner());
    }
    let _idle = TcpStream::connect(weir.http).unwrap();
    let signaled = Instant::now();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(signaled.elapsed() < SOON);
}

#[test]
fn requests_that_do_not_finish_are_cut_off_at_the_drain_timeout() {
    let mut weir = setup().env("WEIR__DRAIN__TIMEOUT", "300ms").start();
    let mut half_open = TcpStream::connect(weir.http).unwrap();
    half_open.write_all(b"POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n{").unwrap();
    let signaled = Instant::now();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(signaled.elapsed() < SOON);
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let mut weir = setup().env("WEIR__DRAIN__DELAY", "1h").start();
    weir.signal("TERM");
    wait_for("weir drains", || weir.said().contains("draining").then_some(()));
    assert!(weir.runs());
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(1));
}

#[test]
fn the_log_can_be_closed() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--rules", "examples/rules", "--set", "drain.delay=10ms"])
        .args(["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"])
        .args(["--debug-address", "127.0.0.1:0"])
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    // Reads until it listens, and then no more: the pipe is closed.
    let mut log = BufReader::new(weir.stderr.take().expect("is piped")).lines();
    assert!(log.any(|line| line.is_ok_and(|line| line.contains("Listening for debug"))));
    drop(log);
    let stopped = Command::new("kill").arg(weir.id().to_string()).status();
    assert!(stopped.is_ok_and(|status| status.success()));
    assert_eq!(weir.wait().expect("ends").code(), Some(0));
}

//! What each port does from the start until the first rules are loaded or rejected.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::connections::{Answer, framed_request, head, send};
use crate::support::api::{HIGH_LIMIT, ask, channel, user_request};
use crate::support::management::{Management, any, config};
use crate::support::program::Program;
use crate::support::weir::{Setup, serving};
use crate::support::{http, wait_for};

const BODY: &str =
    r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;

/// Returns an address that is free now.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn is_refused(address: SocketAddr) -> bool {
    match TcpStream::connect(address) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            true
        }
    }
}

/// Where a program listens, by its log.
fn listens(weir: &mut Program, title: &str) -> SocketAddr {
    let rest = weir.until_said(&format!("Listening for {title} on '")).unwrap();
    rest.split('\'').next().unwrap().parse().unwrap()
}

/// Rules that are being written, again and again.
struct Writer {
    path: PathBuf,
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Writer {
    fn start(path: PathBuf) -> Writer {
        let (stop, stopped) = std::sync::mpsc::channel();
        let file = path.clone();
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while stopped.recv_timeout(Duration::from_millis(5)).is_err() {
                number += 1;
                std::fs::write(&file, format!("{HIGH_LIMIT}# {number}\n")).unwrap();
            }
        });
        Writer { path, stop, thread }
    }

    fn finish(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
        std::fs::write(&self.path, HIGH_LIMIT).unwrap();
    }
}

#[test]
fn connections_for_requests_are_refused_until_the_rules_are_loaded() {
    let (grpc, resp) = (free(), free());
    let setup = serving(HIGH_LIMIT)
        .arg("--grpc-address")
        .arg(&grpc.to_string())
        .env("WEIR__RESP__ADDRESS", resp.to_string());
    let setup = ["--http-address", "--debug-address"]
        .into_iter()
        .fold(setup, |setup, name| setup.arg(name).arg("127.0.0.1:0"));
    let writer = Writer::start(setup.path("rules.yaml"));
    let mut weir = setup.spawn();
    let (http, debug) = (listens(&mut weir, "HTTP"), listens(&mut weir, "debug"));
    assert_eq!(http::get(http, "/livez").status, 200);
    assert_eq!(http::get(http, "/readyz").body, "no rules are loaded\n");
    assert_eq!(http::get(debug, "/status").status, 200);
    assert!(is_refused(grpc) && is_refused(resp));
    // An error comes only after a second.
    let (sent, json) = (Instant::now(), http::post(http, "/json", BODY));
    assert!(json.status == 200 || sent.elapsed() >= Duration::from_secs(1), "{}", json.status);
    // From the first connection on, requests are answered.
    let client = std::thread::spawn(move || {
        wait_for("gRPC listens", || (!is_refused(grpc)).then_some(()));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(ask(grpc, user_request()))
    });
    writer.finish();
    assert_eq!(client.join().unwrap().unwrap().overall_code(), Code::Ok);
    assert_eq!(listens(&mut weir, "gRPC"), grpc);
    assert_eq!(listens(&mut weir, "RESP"), resp);
    assert!(!is_refused(resp));
    assert_eq!(http::post(http, "/json", BODY).status, 200);
}

#[test]
fn a_stop_while_the_rules_are_loaded_is_graceful() {
    let setup = serving(HIGH_LIMIT).env("WEIR__DRAIN__DELAY", "10ms");
    let setup = ["--grpc-address", "--http-address", "--debug-address"]
        .into_iter()
        .fold(setup, |setup, name| setup.arg(name).arg("127.0.0.1:0"));
    let writer = Writer::start(setup.path("rules.yaml"));
    let mut weir = setup.spawn();
    listens(&mut weir, "debug");
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(!weir.said_in_all().contains("Listening for gRPC"));
    writer.finish();
}

#[tokio::test]
async fn rules_that_are_rejected_at_the_start_are_an_error_for_each_request() {
    let weir = serving("domain: [").start_unhealthy();
    let error = ask(weir.grpc, user_request()).await.unwrap_err();
    assert_eq!(error.message(), "no rate limit configuration loaded");
    assert_eq!(http::post(weir.http, "/json", BODY).status, 400);
}

/// `weir serve` with rules from a server.
fn with_xds(server: SocketAddr) -> Setup {
    let setup = Setup::new().arg("serve").env("CONFIG_TYPE", "GRPC_XDS_SOTW");
    setup.env("CONFIG_GRPC_XDS_SERVER_URL", server.to_string())
}

/// Sends a request with a timeout that only weir observes.
async fn ask_within(grpc: SocketAddr, timeout: &str) -> Answer {
    let socket = tokio::net::TcpStream::connect(grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let head = head().header("grpc-timeout", timeout);
    send(&mut client, head, &[framed_request("ann")]).await.unwrap()
}

fn assert_no_rules(answer: &Answer) {
    assert_eq!(answer.status.as_deref(), Some("2"));
    assert_eq!(answer.message, "no%20rate%20limit%20configuration%20loaded");
}

fn shop() -> Vec<prost_types::Any> {
    let rules = serde_json::json!({
        "name": "shop", "domain": "shop", "descriptors": [
            { "key": "user", "rate_limit": { "unit": "YEAR", "requests_per_unit": 9 } }
        ]
    });
    vec![any(&config(&rules))]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_the_first_rules_of_a_management_server_within_their_timeout() {
    let server = Management::start();
    let weir = with_xds(server.address).start_unhealthy();
    server.sotw.next();
    assert_no_rules(&ask_within(weir.grpc, "50m").await);
    let grpc = weir.grpc;
    let waiting = tokio::spawn(async move { ask_within(grpc, "1M").await });
    // Liveness holds meanwhile.
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let alive = health.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(alive.status(), ServingStatus::Serving);
    sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    server.set("1", shop());
    assert_eq!(waiting.await.unwrap().status.as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_no_longer_once_the_first_rules_are_rejected() {
    let server = Management::start();
    let weir = with_xds(server.address).start_unhealthy();
    server.sotw.next();
    let grpc = weir.grpc;
    let waiting = tokio::spawn(async move { ask_within(grpc, "1H").await });
    let twice = [shop(), shop()].concat();
    server.rejected("1", twice, "");
    assert_no_rules(&waiting.await.unwrap());
    assert_no_rules(&ask_within(grpc, "1H").await);
}

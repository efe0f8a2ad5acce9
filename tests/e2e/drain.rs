//! How the service stops. Tests with gRPC clients need a multi-threaded runtime: an HTTP/2 server
//! waits until its clients have acknowledged the end of the connection.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::connections::{framed_request, head};
use crate::support::api::{HIGH_LIMIT, ask, channel, code, request, user_request};
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{http, wait_for, wait_until};

/// Longer than a drain should take here.
const SOON: Duration = Duration::from_secs(10);

fn setup() -> Setup {
    serving("domain: shop\n").env("WEIR__DRAIN__DELAY", "200ms").env("WEIR__DRAIN__TIMEOUT", "2h")
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
        let received = "stop signal received; rule files are reloaded without one";
        weir.has_said(&format!("{received} signal=\"SIG{signal}\""));
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
    let answer = |path| {
        let answer = http::get(weir.http, path);
        (answer.status, answer.body)
    };
    assert_eq!(answer("/healthcheck"), (500, String::new()));
    assert_eq!(answer("/readyz"), (503, "draining\n".into()));
    assert_eq!(answer("/livez"), (200, "ok\n".into()));
    assert_eq!(code(weir.grpc, request("shop", &[("k", "v")])).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_is_settled_and_cancelled_while_weir_drains() {
    let rules = "domain: llm\ndescriptors:\n  - key: user\n    rate_limit: { unit: year, \
                 requests_per_unit: 100 }\n    reserve: { id: id, settle: settle, estimate: 10 }\n";
    let redis = Server::start();
    for redis in [None, Some(&redis)] {
        let mut setup = serving(rules)
            .env("WEIR__DRAIN__DELAY", "1h")
            .env("WEIR__DRAIN__TIMEOUT", "2h")
            .env("WEIR__HTTP__ALLOW_NEGATIVE_HITS", "true");
        if let Some(redis) = redis {
            setup = setup.env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
        }
        let mut weir = setup.start();
        let call = |step: &str, id: &str, amount: &str| {
            let body = format!(
                r#"{{"domain":"llm","descriptors":[{{"entries":[{{"key":"user","value":"ann"}}]}}],"id":"{id}"{amount}}}"#
            );
            let answer = http::post(weir.http, &format!("/v1/budget/{step}"), body);
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        };
        for id in ["a", "b", "c"] {
            assert_eq!(call("reserve", id, r#","amount":20"#)["code"], "OK");
        }
        weir.signal("TERM");
        wait_for("weir drains", || (http::get(weir.http, "/readyz").status == 503).then_some(()));
        let settled = call("settle", "a", r#","amount":5"#);
        assert_eq!((&settled["result"], &settled["remaining"]), (&"SETTLED".into(), &55.into()));
        let cancelled = call("cancel", "b", "");
        assert_eq!(
            (&cancelled["result"], &cancelled["remaining"]),
            (&"SETTLED".into(), &75.into())
        );
        let end = [("user", "ann"), ("id", "c"), ("settle", "1")];
        let end = RateLimitRequest { hits_addend: 30, ..request("llm", &end) };
        let settled = ask(weir.grpc, end).await.unwrap();
        assert_eq!(settled.statuses[0].limit_remaining, 65);
        assert!(weir.runs());
    }
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
    let _half_open = start_body(&weir);
    let signaled = Instant::now();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
    assert!(signaled.elapsed() < SOON);
    let said = weir.said_in_all();
    assert!(said.contains("requests in flight did not end in time"), "{said}");
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for (first, second) in [("TERM", "TERM"), ("TERM", "INT"), ("HUP", "HUP"), ("INT", "INT")] {
        let mut weir = setup().env("WEIR__DRAIN__DELAY", "1h").start();
        // It keeps the process running after Ctrl-C, too.
        let _unfinished = start_body(&weir);
        weir.signal(first);
        wait_for("weir drains", || weir.said().contains("draining").then_some(()));
        assert!(weir.runs());
        weir.signal(second);
        assert_eq!(weir.wait_until_ended().code(), Some(1), "{first}, {second}");
    }
}

/// Starts a request to `/json` whose body does not end.
fn start_body(weir: &Weir) -> TcpStream {
    let mut half_open = TcpStream::connect(weir.http).unwrap();
    half_open.write_all(b"POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n{").unwrap();
    half_open
}

/// A service whose Redis does not answer, with a request in flight to it.
struct Stalled {
    weir: Weir,
    proxy: Proxy,
    request: tokio::task::JoinHandle<Result<Code, tonic::Status>>,
    _redis: Server,
}

impl Stalled {
    async fn start(budget: &str) -> Stalled {
        let redis = Server::start();
        let proxy = Proxy::start(redis.port());
        let weir = setup()
            .file("rules.yaml", HIGH_LIMIT)
            .env("REDIS_URL", format!("127.0.0.1:{}", proxy.port()))
            .env("WEIR__STORE__BUDGET", budget)
            .env("WEIR__STORE__REDIS__SLOW_AFTER", "1h")
            .start();
        let round_trips = || weir.metric(r#"weir_redis_round_trips_total{redis="main"}"#);
        assert_eq!(code(weir.grpc, user_request()).await, Code::Ok);
        proxy.stall();
        let (before, to) = (round_trips(), weir.grpc);
        let request = tokio::spawn(async move {
            ask(to, user_request()).await.map(|answer| answer.overall_code())
        });
        wait_until("the request is in flight", async || round_trips() > before).await;
        Stalled { weir, proxy, request, _redis: redis }
    }

    /// Sends SIGTERM and waits until the listeners are closed.
    fn stop(&mut self) {
        self.weir.signal("TERM");
        self.weir.until_said("listeners are closed").unwrap();
        assert!(!self.request.is_finished());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_to_a_stalled_redis_are_answered_before_the_end() {
    let mut stalled = Stalled::start("1h").await;
    stalled.stop();
    assert!(stalled.weir.runs());
    stalled.proxy.resume();
    assert_eq!(stalled.request.await.unwrap().unwrap(), Code::Ok);
    assert_eq!(stalled.weir.wait_until_ended().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stays_stalled_delays_the_end_by_the_budget() {
    let mut stalled = Stalled::start("3s").await;
    stalled.stop();
    let status = stalled.request.await.unwrap().unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unknown, "{status}");
    assert_eq!(stalled.weir.wait_until_ended().code(), Some(0));
    let said = stalled.weir.said_in_all();
    assert!(!said.contains("did not end in time"), "{said}");
}

/// Sends calls on one connection until it gets GOAWAY. Returns how many there were, and asserts that
/// each is answered, or was sent so late that the client may repeat it.
async fn send_until_asked_to_leave(to: SocketAddr) -> usize {
    let socket = tokio::net::TcpStream::connect(to).await.unwrap();
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut calls = tokio::task::JoinSet::new();
    loop {
        let Ok(ready) = client.ready().await else { break };
        client = ready;
        let Ok((response, mut stream)) = client.send_request(head().body(()).unwrap(), false)
        else {
            break;
        };
        let sent = stream.send_data(framed_request("ann"), true);
        calls.spawn(async move {
            // If a GOAWAY came between the head and the data, this has the reason, and `sent` has not.
            let mut body = response.await?.into_body();
            sent?;
            while let Some(data) = body.data().await {
                data?;
            }
            let trailers = body.trailers().await?.unwrap_or_default();
            assert_eq!(trailers["grpc-status"], "0");
            Ok::<(), h2::Error>(())
        });
        // As many in flight as Envoy might have, and time for other tasks.
        while calls.len() > 64 {
            count(calls.join_next().await);
        }
    }
    let left = calls.len();
    while let Some(call) = calls.join_next().await {
        count(Some(call));
    }
    left
}

fn count(call: Option<Result<Result<(), h2::Error>, tokio::task::JoinError>>) {
    match call.expect("a call").expect("no panic") {
        Ok(()) => {}
        // A stream that the final GOAWAY does not include: it was not sent before the first one came.
        Err(error) => assert!(error.is_go_away() && error.is_remote(), "lost: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cross_goaway_are_answered() {
    let mut weir = setup().start();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        clients.spawn(send_until_asked_to_leave(weir.grpc));
    }
    // Requests are in flight by then: the delay has passed.
    weir.signal("TERM");
    let left: Vec<usize> = clients.join_all().await;
    println!("in flight at the end: {left:?}");
    assert!(left.iter().any(|left| *left > 0), "nothing was in flight");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
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

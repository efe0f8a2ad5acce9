//! What a client may do with a connection, frame by frame.

mod compressed;
#[cfg(target_os = "linux")]
mod memory;
pub mod raw;
mod reflection;
mod resets;
mod slow;

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use prost::Message;
use tokio::net::TcpStream as Socket;
use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use self::raw::{frame, preface};
use crate::support::api::{code, request};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, wait_for};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn setup() -> Setup {
    serving(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: { unit: year, requests_per_unit: 2 }\n",
    )
}

/// Connects with plain HTTP/2: a gRPC client would never do what is tested here.
pub async fn connect(weir: &Weir) -> SendRequest<Bytes> {
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

pub fn head() -> http::request::Builder {
    let uri = format!("http://weir{PATH}");
    Request::post(uri).header("content-type", "application/grpc").header("te", "trailers")
}

/// A message with its prefix.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

pub fn framed_request(user: &str) -> Bytes {
    framed(&request("shop", &[("user", user)]).encode_to_vec())
}

/// A response: the HTTP status, the body, and the gRPC status and message.
pub struct Answer {
    pub http: StatusCode,
    pub body: Vec<u8>,
    pub status: Option<String>,
    pub message: String,
    /// The value of `grpc-accept-encoding`.
    pub accepts: Option<String>,
}

/// Sends a request with its body in these parts, and returns the response.
pub async fn send(
    client: &mut SendRequest<Bytes>,
    head: http::request::Builder,
    parts: &[Bytes],
) -> Result<Answer, h2::Error> {
    let head = head.body(()).unwrap();
    let (response, mut stream) = client.send_request(head, parts.is_empty())?;
    for (i, part) in parts.iter().enumerate() {
        stream.send_data(part.clone(), i + 1 == parts.len())?;
    }
    let (head, mut body) = response.await?.into_parts();
    let mut whole = Vec::new();
    while let Some(data) = body.data().await {
        whole.extend_from_slice(&data?);
    }
    let trailers = body.trailers().await?;
    let text = |headers: &HeaderMap, name| {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    };
    let header = |name| text(&head.headers, name).or_else(|| text(trailers.as_ref()?, name));
    Ok(Answer {
        http: head.status,
        body: whole,
        status: header("grpc-status"),
        message: header("grpc-message").unwrap_or_default(),
        accepts: header("grpc-accept-encoding"),
    })
}

#[tokio::test]
async fn a_request_may_arrive_in_any_number_of_frames() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    let whole = framed_request("ann");
    let bytes: Vec<Bytes> = whole.chunks(1).map(Bytes::copy_from_slice).collect();
    let halves = [whole.slice(..7), whole.slice(7..)];
    let empty = [whole.clone(), Bytes::new()];
    for (parts, expected) in
        [(&halves[..], Code::Ok), (&bytes, Code::Ok), (&empty, Code::OverLimit)]
    {
        let answer = send(&mut client, head(), parts).await.unwrap();
        assert_eq!((answer.http, answer.status.as_deref()), (StatusCode::OK, Some("0")));
        let message = RateLimitResponse::decode(&answer.body[5..]).unwrap();
        assert_eq!(message.overall_code(), expected);
    }
}

#[tokio::test]
async fn an_invalid_call_is_refused_with_the_reason() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    let whole = framed_request("ann");
    let compressed = [&[1], &whole[1..]].concat().into();
    let twice = [whole.clone(), whole.clone()].concat().into();
    for (body, status, reason) in [
        (framed(b"\x0a"), "13", "ends%20within%20a%20field"),
        (Bytes::new(), "13", "missing"),
        (whole.slice(..4), "13", "missing"),
        (whole.slice(..9), "13", "exactly%20one%20message"),
        (twice, "13", "exactly%20one%20message"),
        (compressed, "13", "compressed%20flag"),
        (framed(&[]), "2", "domain%20must%20not%20be%20empty"),
    ] {
        let answer = send(&mut client, head(), &[body]).await.unwrap();
        assert_eq!(answer.http, StatusCode::OK);
        assert_eq!(answer.status.as_deref(), Some(status), "{}", answer.message);
        assert!(answer.message.contains(reason), "{reason}: {}", answer.message);
    }
    let answer = send(&mut client, head(), &[]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("13"));
    let typed = |kind| Request::post(format!("http://weir{PATH}")).header("content-type", kind);
    for kind in [
        "text/html",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpcx",
        "application/grpc+json",
    ] {
        let answer = send(&mut client, typed(kind), &[framed_request("ann")]).await.unwrap();
        assert_eq!(answer.http, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        assert_eq!(answer.status.as_deref(), Some("3"), "{kind}");
        let wanted = format!("POST with the content type {kind}: send POST with application/grpc");
        assert!(answer.message.replace("%20", " ").ends_with(&wanted), "{}", answer.message);
    }
    for kind in ["application/grpc+proto", "application/grpc;charset=utf-8"] {
        let answer = send(&mut client, typed(kind), &[framed_request("ann")]).await.unwrap();
        assert_eq!(answer.status.as_deref(), Some("0"), "{kind}");
    }
    let get = Request::get(format!("http://weir{PATH}")).header("content-type", "application/grpc");
    let answer = send(&mut client, get, &[]).await.unwrap();
    assert_eq!(answer.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(answer.message.starts_with("received%20GET"), "{}", answer.message);
}

#[tokio::test]
async fn an_unknown_method_is_named_and_so_is_v3_for_what_was_before() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    for (path, reason) in [
        ("/shop.Shop/Buy", "gRPC reflection lists the methods"),
        ("/grpc.health.v1.Health/Chek", "gRPC reflection lists the methods"),
        ("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", "weir serves v3"),
        ("/pb.lyft.ratelimit.RateLimitService/ShouldRateLimit", "weir serves v3"),
    ] {
        let head = Request::post(format!("http://weir{path}"));
        let head = head.header("content-type", "application/grpc");
        let answer = send(&mut client, head, &[framed_request("ann")]).await.unwrap();
        assert_eq!((answer.http, answer.status.as_deref()), (StatusCode::OK, Some("12")));
        let message = answer.message.replace("%20", " ");
        assert!(message.starts_with(&format!("unknown method {path}: {reason}")), "{message}");
    }
    // The same for services that tonic serves.
    let path = "http://weir/grpc.health.v1.Health/Check";
    let head = Request::post(path).header("content-type", "application/json");
    let answer = send(&mut client, head, &[]).await.unwrap();
    assert_eq!(answer.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for (reason, count) in [("unknown_method", 4), ("content_type", 1), ("http1", 0)] {
        let name = format!("weir_grpc_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(weir.metric(&name), count, "{reason}");
    }
    // Once per address.
    weir.has_said("a call on the gRPC port is not gRPC");
    assert_eq!(weir.said().matches("a call of an unknown gRPC method").count(), 1);
}

/// Sends bytes, and returns all that is received.
fn answer_to(weir: &Weir, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_http_1_client_gets_a_sentence_is_counted_and_logged_once() {
    let weir = setup().start();
    let long = format!("POST {PATH} HTTP/1.1\r\nhost: weir\r\n\r\n{}", "x".repeat(40_000));
    for request in ["GET / HTTP/1.1\r\nhost: weir\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n", &long] {
        let answer = answer_to(&weir, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 505 HTTP Version Not Supported\r\n"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(body.starts_with("this port is for gRPC") && body.lines().count() == 1, "{body}");
    }
    assert_eq!(weir.metric("weir_grpc_refused_total{reason=\"http1\"}"), 3);
    weir.has_said("an HTTP/1 client on the gRPC port");
    assert_eq!(weir.said().matches("an HTTP/1 client on the gRPC port").count(), 1);
}

#[test]
fn an_http_1_client_that_stays_is_disconnected() {
    let weir = setup().start();
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: weir\r\n\r\n").unwrap();
    socket.read_to_end(&mut Vec::new()).unwrap();
    // It sends so little that only the time ends it.
    wait_for("the end of the connection", || socket.write_all(b"x").is_err().then_some(()));
}

#[test]
fn a_preface_may_arrive_in_parts_and_other_bytes_are_no_http_1() {
    let weir = setup().start();
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_nodelay(true).unwrap();
    for byte in preface() {
        socket.write_all(&[byte]).unwrap();
        weir.wait_until_delivered();
    }
    let mut start = [0; 4];
    socket.read_exact(&mut start).unwrap();
    assert_eq!(start[3], 4, "settings");
    // As a client with TLS begins.
    assert!(!answer_to(&weir, b"\x16\x03\x01\x00\x05hello").contains("HTTP/1"));
    assert_eq!(weir.metric("weir_grpc_refused_total{reason=\"http1\"}"), 0);
}

#[tokio::test]
async fn headers_are_accepted_up_to_the_limit() {
    let weir = setup().start();
    let mut client = connect(&weir).await;
    let long = |bytes: usize| head().header("x-long", "x".repeat(bytes));
    let answer = send(&mut client, long(15 << 10), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    let answer = send(&mut client, long(17 << 10), &[framed_request("ann")]).await.unwrap();
    assert_eq!(answer.http.as_u16(), 431);
    // Far larger ones are not even read, and other clients are not affected.
    let answer = send(&mut client, long(100 << 10), &[framed_request("ann")]).await;
    assert!(answer.is_err());
    assert_eq!(code(weir.grpc, request("shop", &[("user", "bob")])).await, Code::Ok);
}

#[test]
fn a_client_that_only_connects_is_disconnected() {
    let weir = setup().env("WEIR__CLIENTS__TIMEOUT", "100ms").start();
    for port in [weir.grpc, weir.http, weir.debug] {
        let mut idle = TcpStream::connect(port).unwrap();
        idle.set_read_timeout(Some(PATIENCE)).unwrap();
        // Possibly HTTP/2 settings, and then the end.
        idle.read_to_end(&mut Vec::new()).unwrap();
    }
}

#[tokio::test]
async fn a_request_that_is_not_completed_times_out() {
    let weir = setup().env("WEIR__CLIENTS__TIMEOUT", "100ms").start();
    let mut client = connect(&weir).await;
    let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
    stream.send_data(framed_request("ann").slice(..7), false).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4");
}

/// Whether the server closes a connection without sending anything.
fn is_refused(mut socket: TcpStream) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    match socket.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_with_open_streams_are_kept_and_newcomers_refused() {
    let weir = setup().env("WEIR__GRPC__MAX_CONNECTIONS", "2").start();
    let mut kept = [connect(&weir).await, connect(&weir).await];
    let mut started = Vec::new();
    for client in &mut kept {
        let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
        stream.send_data(framed_request("ann").slice(..7), false).unwrap();
        // It has been received: a later request is answered.
        let answer = send(client, head(), &[framed_request("bob")]).await.unwrap();
        assert_eq!(answer.status.as_deref(), Some("0"));
        started.push((response, stream));
    }
    assert!(is_refused(TcpStream::connect(weir.grpc).unwrap()));
    assert_eq!(weir.metric(r#"weir_connections_refused_total{listener="grpc"}"#), 1);
    assert_eq!(weir.metric(r#"weir_connections_evicted_total{listener="grpc"}"#), 0);
    for (response, mut stream) in started {
        stream.send_data(framed_request("ann").slice(7..), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    }
}

/// Connects and sends a request; none if the connection is not served.
async fn newcomer(weir: &Weir) -> Option<SendRequest<Bytes>> {
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (client, connection) = h2::client::handshake(socket).await.ok()?;
    tokio::spawn(connection);
    let mut client = client.ready().await.ok()?;
    let answer = send(&mut client, head(), &[framed_request("new")]).await.ok()?;
    (answer.status.as_deref() == Some("0")).then_some(client)
}

/// Returns the first newcomer that is served: there is room only after another connection has been
/// idle long enough and has closed.
async fn until_served(weir: &Weir) -> SendRequest<Bytes> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(client) = newcomer(weir).await {
            return client;
        }
        assert!(Instant::now() < give_up);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newcomers_replace_connections_without_requests_and_then_idle_ones() {
    let weir = setup().env("WEIR__GRPC__MAX_CONNECTIONS", "3").start();
    let mut busy = connect(&weir).await;
    let (response, mut stream) = busy.send_request(head().body(()).unwrap(), false).unwrap();
    stream.send_data(framed_request("ann").slice(..7), false).unwrap();
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (mut idle, connection) = h2::client::handshake(socket).await.unwrap();
    let idle_ended = tokio::spawn(connection);
    let answer = send(&mut idle, head(), &[framed_request("bob")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (silent, connection) = h2::client::handshake(socket).await.unwrap();
    let silent_ended = tokio::spawn(connection);
    let give_up = Instant::now() + PATIENCE;
    while weir.metric(r#"weir_connections{listener="grpc"}"#) < 3 {
        assert!(Instant::now() < give_up);
    }
    // The one without a request is evicted first, with GOAWAY.
    until_served(&weir).await;
    silent_ended.await.unwrap().unwrap();
    assert!(!idle_ended.is_finished());
    // Then the one that has been idle longest.
    let mut recent = until_served(&weir).await;
    until_served(&weir).await;
    idle_ended.await.unwrap().unwrap();
    let answer = send(&mut recent, head(), &[framed_request("recent")]).await.unwrap();
    assert_eq!(answer.status.as_deref(), Some("0"));
    stream.send_data(framed_request("ann").slice(7..), true).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    drop((idle, silent));
}

#[test]
fn a_client_cannot_fill_the_log() {
    let mut weir = setup().start();
    let mut sent = preface();
    for _ in 0..1_000 {
        // The answer to a ping that was never sent.
        sent.extend(frame(6, 1, 0, b"unasked "));
    }
    sent.extend(frame(6, 0, 0, b"the last"));
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&sent).unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"the last") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        received.extend(byte);
    }
    drop(socket);
    weir.signal("INT");
    weir.until_said("stopped").unwrap();
    assert!(weir.said().lines().count() < 100, "{}", weir.said());
}

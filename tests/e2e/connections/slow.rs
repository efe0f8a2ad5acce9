//! Clients that do not complete requests, do not read responses, or do not close.

use tokio::time::timeout;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::*;
use crate::support::api::{channel, descriptor};
use crate::support::wait_for;

/// Sends all but the last of `bytes` bytes of a request. The future resolves to the gRPC status.
fn half(client: &mut SendRequest<Bytes>, bytes: usize) -> impl Future<Output = String> + use<> {
    let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
    let whole = framed(&vec![0; bytes]);
    stream.send_data(whole.slice(..whole.len() - 1), false).unwrap();
    async move {
        let _not_reset = stream;
        response.await.unwrap().headers()["grpc-status"].to_str().unwrap().to_owned()
    }
}

async fn status(client: &mut SendRequest<Bytes>, parts: &[Bytes]) -> Option<String> {
    send(client, head(), parts).await.unwrap().status
}

#[tokio::test]
async fn half_sent_requests_are_refused_beyond_the_memory() {
    let weir = setup()
        .env("WEIR__CLIENTS__TIMEOUT", "1h")
        .env("WEIR__CLIENTS__MAX_BUFFERED", "24MiB")
        .start();
    let large = framed_request(&"x".repeat(200 << 10));
    let in_pieces = [large.slice(..80 << 10), large.slice(80 << 10..)];
    let small = framed_request("ann");
    let small_in_pieces = [small.slice(..7), small.slice(7..)];
    let mut other = connect(&weir).await;
    let mut halves = tokio::task::JoinSet::new();
    let mut attackers = Vec::new();
    for _ in 0..8 {
        assert_eq!(status(&mut other, &in_pieces).await.as_deref(), Some("0"));
        // One connection gets an eighth of the memory.
        let mut client = connect(&weir).await;
        for _ in 0..5 {
            halves.spawn(half(&mut client, 1 << 20));
        }
        assert_eq!(halves.join_next().await.unwrap().unwrap(), "8");
        attackers.push(client);
    }
    // Smaller requests use up the rest.
    let give_up = Instant::now() + PATIENCE;
    while status(&mut other, &in_pieces).await.as_deref() != Some("8") {
        for client in &mut attackers {
            halves.spawn(half(client, 50 << 10));
        }
        assert!(Instant::now() < give_up);
    }
    assert_eq!(status(&mut other, &small_in_pieces).await.as_deref(), Some("0"));
    // There is room again after they disconnect.
    halves.abort_all();
    drop(attackers);
    let give_up = Instant::now() + PATIENCE;
    while status(&mut other, &in_pieces).await.as_deref() != Some("0") {
        assert!(Instant::now() < give_up);
    }
}

/// A request with a large response.
fn request_with_long_response() -> Bytes {
    let descriptors = (0..100).map(|i| descriptor(&[("user", &i.to_string())])).collect();
    framed(
        &RateLimitRequest { domain: "shop".into(), descriptors, ..Default::default() }
            .encode_to_vec(),
    )
}

fn with_long_responses() -> Setup {
    serving(&format!(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: {{ name: {}, unit: year, requests_per_unit: 2 }}\n",
        "x".repeat(500)
    ))
}

/// Connects with this initial window.
pub async fn taking(weir: &Weir, window: u32) -> SendRequest<Bytes> {
    let socket = Socket::connect(weir.grpc).await.unwrap();
    let (client, connection) =
        h2::client::Builder::new().initial_window_size(window).handshake(socket).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

#[tokio::test]
async fn a_response_of_any_size_waits_for_its_client_up_to_the_timeout() {
    let weir = with_long_responses().env("WEIR__CLIENTS__TIMEOUT", "200ms").start();
    for (request, window) in [
        (request_with_long_response(), 1000),
        (framed_request("ann"), 10),
        (framed_request("ann"), 0),
    ] {
        let mut client = taking(&weir, window).await;
        let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
        stream.send_data(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        if window > 0 {
            assert_eq!(body.data().await.unwrap().unwrap().len(), window as usize);
        }
        let reset = timeout(PATIENCE, body.data()).await.expect("an end").unwrap().unwrap_err();
        assert_eq!(reset.reason(), Some(h2::Reason::CANCEL), "{window}");
    }
}

#[tokio::test]
async fn a_response_of_reflection_waits_up_to_the_timeout() {
    let weir = setup().env("WEIR__CLIENTS__TIMEOUT", "200ms").start();
    let mut client = taking(&weir, 10).await;
    let path = "http://weir/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let head = Request::post(path).header("content-type", "application/grpc");
    let (response, mut stream) = client.send_request(head.body(()).unwrap(), false).unwrap();
    // list_services
    stream.send_data(framed(b"\x3a\x00"), false).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap().len(), 10);
    let reset = timeout(PATIENCE, body.data()).await.expect("an end").unwrap().unwrap_err();
    assert_eq!(reset.reason(), Some(h2::Reason::CANCEL));
}

#[tokio::test]
async fn a_large_response_is_sent_in_parts() {
    let weir = with_long_responses().start();
    let mut client = taking(&weir, 1000).await;
    let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
    stream.send_data(request_with_long_response(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut whole = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.unwrap();
        whole.extend_from_slice(&part);
        body.flow_control().release_capacity(part.len()).unwrap();
    }
    let answer = RateLimitResponse::decode(&whole[5..]).unwrap();
    assert_eq!(answer.statuses.len(), 100);
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn long_calls_are_bounded_in_number_and_size() {
    let weir = setup().start();
    let mut health = HealthClient::new(channel(weir.grpc).await);
    let health_request = |service: &str| HealthCheckRequest { service: service.into() };
    let mut watched = Vec::new();
    for _ in 0..100 {
        watched.push(health.watch(health_request("ratelimit")).await.unwrap());
    }
    let refused = health.watch(health_request("ratelimit")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    drop(watched);
    let give_up = Instant::now() + PATIENCE;
    while health.check(health_request("ratelimit")).await.is_err() {
        assert!(Instant::now() < give_up);
    }
    let long = "x".repeat(17 << 10);
    let refused = health.check(health_request(&long)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused}");
}

/// Whether the service no longer accepts connections.
fn is_closed(weir: &Weir) -> bool {
    TcpStream::connect(weir.grpc).is_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_is_completed_while_the_service_stops() {
    let mut weir = setup().env("WEIR__DRAIN__DELAY", "0s").start();
    let mut client = connect(&weir).await;
    let (response, mut stream) = client.send_request(head().body(()).unwrap(), false).unwrap();
    let whole = framed_request("ann");
    stream.send_data(whole.slice(..7), false).unwrap();
    // It has been received: a later request is answered.
    assert_eq!(status(&mut client, &[framed_request("bob")]).await.as_deref(), Some("0"));
    weir.signal("TERM");
    wait_for("the listener to close", || is_closed(&weir).then_some(()));
    stream.send_data(whole.slice(7..), true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    while body.data().await.is_some() {}
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
}

#[test]
fn an_unresponsive_client_does_not_delay_the_end() {
    let mut weir = setup()
        .env("WEIR__DRAIN__DELAY", "0s")
        .env("WEIR__DRAIN__TIMEOUT", "1h")
        .env("WEIR__CLIENTS__TIMEOUT", "200ms")
        .start();
    let mut dead = TcpStream::connect(weir.grpc).unwrap();
    dead.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    // The handshake is complete.
    dead.read_exact(&mut [0; 9]).unwrap();
    weir.signal("TERM");
    assert_eq!(weir.wait_until_ended().code(), Some(0));
}

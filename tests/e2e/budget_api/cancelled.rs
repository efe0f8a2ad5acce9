//! Callers that go away before they are answered: what was reserved for them is returned.

use std::io::{Read, Write};
use std::net::TcpStream;

use prost::Message;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::connections::raw::{self, Frames, frame};
use crate::support::PATIENCE;
use crate::support::redis::proxy::Proxy;

/// The method, scheme, path, authority, content type and `te`, mostly as HPACK literals.
fn header_block(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).unwrap();
    let rest = b"\x01\x05tests\x0f\x10\x10application/grpc\x00\x02te\x08trailers";
    [&b"\x83\x86\x04"[..], &[length], path.as_bytes(), rest].concat()
}

fn call(stream: u32, request: &pb::ReserveRequest) -> Vec<u8> {
    let message = request.encode_to_vec();
    let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
    let message = [&[0], &prefix[..], &message].concat();
    let headers = header_block("/weir.budget.v1.BudgetService/Reserve");
    [frame(1, 4, stream, &headers), frame(0, 1, stream, &message)].concat()
}

/// weir reads the reset together with the call.
#[tokio::test]
async fn a_call_that_is_reset_at_once_leaves_no_reservation() {
    let redis = Server::start();
    for setup in [service(), with_redis(redis.port())] {
        let weir = setup.start();
        let mut client = Client::Grpc(grpc(&weir).await);
        for round in 1..=20 {
            let mut sent = Vec::new();
            for stream in [1, 3, 5] {
                sent.extend(call(stream, &reserve(&["user"], &format!("{round}-{stream}"), 100)));
                sent.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
            }
            // One call without a reset shows that all were read.
            sent.extend(call(7, &reserve(&["user"], &format!("{round}-stays"), 100)));
            let mut socket = raw::open(&weir);
            socket.write_all(&sent).unwrap();
            let mut frames = Frames(&mut socket);
            let end = frames.find(|frame| frame.stream == 7 && frame.flags & 1 == 1);
            assert!(end.is_some(), "the connection was closed");
            let left = 10_000 - 100 * round;
            let is_left = async || client.left("user").await == left;
            wait_until(&format!("{left} are left"), is_left).await;
        }
    }
}

/// The charge is on its way to Redis when the call is cancelled.
#[tokio::test]
async fn a_call_that_is_cancelled_while_redis_decides_leaves_no_reservation() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = with_redis(proxy.port()).env("WEIR__RUNTIME__THREADS", "1").start();
    let channel = channel(weir.grpc).await;
    let client = BudgetServiceClient::new(channel.clone());
    // weir has read what was sent before when it answers.
    let is_read = async || {
        let request = HealthCheckRequest { service: String::new() };
        HealthClient::new(channel.clone()).check(request).await.unwrap();
    };
    let mut left = Client::Grpc(client.clone());
    assert_eq!(left.reserve(&["team"], "stays", 1_000).await.unwrap().0, Code::Ok);
    for round in 0..5 {
        proxy.stall();
        let (mut client, id) = (client.clone(), format!("reset {round}"));
        let call =
            tokio::spawn(async move { client.reserve(reserve(&["team"], &id, 2_000)).await });
        is_read().await;
        call.abort();
        assert!(call.await.is_err(), "it is answered without Redis");
        is_read().await;
        proxy.resume();
        wait_until("it is returned", async || left.left("team").await == 99_000).await;
    }
    let result = |kind: &str, result: &str| {
        weir.metric(&format!(r#"weir_{kind}_total{{domain="llm",rule="team",result="{result}"}}"#))
    };
    let allowed = result("reservations", "allowed");
    assert_eq!(allowed, result("settlements", "cancelled") + 1);
    assert!(allowed > 1, "some are on their way when their calls are cancelled");
}

#[tokio::test]
async fn an_http_client_that_disconnects_leaves_no_reservation() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = with_redis(proxy.port()).start();
    let mut left = Client::Http(weir.http);
    assert_eq!(left.reserve(&["team"], "stays", 1_000).await.unwrap().0, Code::Ok);
    let allowed =
        || weir.metric(r#"weir_reservations_total{domain="llm",rule="team",result="allowed"}"#);
    let mut round = 0;
    // weir may read the end of a connection together with its request, which it does not decide then.
    while allowed() < 4 {
        round += 1;
        assert!(round < 100, "no request is decided");
        proxy.stall();
        let body = body(&["team"], &format!("gone {round}"), Some(2_000)).to_string();
        let mut client = TcpStream::connect(weir.http).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v1/budget/reserve HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\n";
        write!(client, "{head}content-length: {}\r\n\r\n", body.len()).unwrap();
        // weir receives the body.
        let mut interim = [0; 12];
        client.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100");
        client.write_all(body.as_bytes()).unwrap();
        assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
        drop(client);
        assert_eq!(http::get(weir.http, "/healthcheck").status, 200);
        proxy.resume();
        wait_until("it is returned", async || left.left("team").await == 99_000).await;
    }
}

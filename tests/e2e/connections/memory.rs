//! The memory that clients can make the process use. `docs/security.md` states the bound.

use std::thread;

use socket2::{Domain, Socket as RawSocket, Type};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::raw::call;
use super::slow::taking;
use super::*;
use crate::support::api::{channel, descriptor};
use crate::support::redis::Server;
use crate::support::wait_for;

const MIB: usize = 1 << 20;

/// The bound across all connections: less than the default, so that few attackers reach it.
const MAX_BUFFERED: usize = 16 * MIB;

/// The memory of one connection in addition, with 1024 streams.
const CONNECTION: usize = MIB + 1024 * 2048;

const ATTACKERS: usize = 20;
const STREAMS: usize = 1_000;

/// Responses have a few kilobytes.
fn with_names() -> Setup {
    let rules = "domain: shop\ndescriptors:\n  - key: user\n    \
                 rate_limit: { name: a_limit_with_quite_a_long_name_as_some_people_like_them, \
                 unit: year, requests_per_unit: 1000000000 }\n";
    serving(rules)
        .env("WEIR__CLIENTS__MAX_BUFFERED", "16MiB")
        // What attackers hold is not released.
        .env("WEIR__CLIENTS__TIMEOUT", "1h")
}

/// The service with Redis. Requests arrive faster than it answers.
fn with_redis(redis: &Server) -> Setup {
    with_names().env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
}

/// A request of one kilobyte with a response of four.
fn many_descriptors() -> Bytes {
    let descriptors = (0..58).map(|i| descriptor(&[("user", &format!("{i:05}"))])).collect();
    let request = RateLimitRequest { domain: "shop".into(), descriptors, ..Default::default() };
    framed(&request.encode_to_vec())
}

/// Calls that are never completed.
#[derive(Default)]
struct OpenCalls(Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>)>);

impl OpenCalls {
    /// Starts [`STREAMS`] calls with this body on one connection.
    async fn open(&mut self, client: SendRequest<Bytes>, body: &Bytes, is_whole: bool) {
        let mut client = client;
        for _ in 0..STREAMS {
            client = client.ready().await.unwrap();
            let (response, mut stream) =
                client.send_request(head().body(()).unwrap(), false).unwrap();
            stream.send_data(body.clone(), is_whole).unwrap();
            self.0.push((response, stream));
        }
    }
}

/// Waits until the memory of `weir` no longer grows, and returns it.
fn settled(weir: &Weir) -> usize {
    let (mut last, mut quiet_since) = (0, Instant::now());
    wait_for("memory to settle", || {
        let now = weir.resident_bytes();
        if now > last {
            (last, quiet_since) = (now, Instant::now());
        }
        (quiet_since.elapsed() > Duration::from_secs(1)).then_some(last)
    })
}

/// Asserts that well-behaved clients are served while others hold what they can.
async fn assert_serves(weir: &Weir) {
    let whole = framed_request("ann");
    for window in [0xffff, 10] {
        let mut client = taking(weir, window).await;
        for parts in [&[whole.clone()][..], &[whole.slice(..7), whole.slice(7..)]] {
            let (response, mut stream) =
                client.send_request(head().body(()).unwrap(), false).unwrap();
            for (i, part) in parts.iter().enumerate() {
                stream.send_data(part.clone(), i + 1 == parts.len()).unwrap();
            }
            let mut body = response.await.unwrap().into_body();
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        }
    }
    let mut health = HealthClient::new(channel(weir.grpc).await);
    health.check(HealthCheckRequest { service: "ratelimit".into() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_requests_stay_within_the_bound() {
    let weir = with_names().start();
    let before = weir.resident_bytes();
    let half = framed(&[0; 16_000]).slice(..15_900);
    let mut calls = OpenCalls::default();
    for _ in 0..ATTACKERS {
        calls.open(connect(&weir).await, &half, false).await;
    }
    let grown = settled(&weir) - before;
    assert!(grown < MAX_BUFFERED + ATTACKERS * CONNECTION, "{} MiB", grown / MIB);
    assert_serves(&weir).await;
}

async fn assert_unread_responses_stay_within_the_bound(weir: Weir) {
    let before = weir.resident_bytes();
    let mut calls = OpenCalls::default();
    for _ in 0..ATTACKERS {
        calls.open(taking(&weir, 0).await, &many_descriptors(), true).await;
    }
    let grown = settled(&weir) - before;
    assert!(grown < MAX_BUFFERED + ATTACKERS * CONNECTION, "{} MiB", grown / MIB);
    assert_serves(&weir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_stay_within_the_bound() {
    assert_unread_responses_stay_within_the_bound(with_names().start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_responses_stay_within_the_bound_with_redis() {
    let redis = Server::start();
    assert_unread_responses_stay_within_the_bound(with_redis(&redis).start()).await;
}

/// A socket with small buffers that is never read.
fn unread_socket(weir: &Weir) -> TcpStream {
    let socket = RawSocket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&weir.grpc.into()).unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.into()
}

fn assert_blocked_clients_stay_within_the_bound_and_are_closed(setup: Setup) {
    let setup = setup.env("WEIR__CLIENTS__TIMEOUT", "5s");
    let weir = setup.start();
    let before = weir.resident_bytes();
    let body = many_descriptors();
    let attack = |_| {
        let (weir, body) = (&weir, &body);
        move || {
            let mut socket = unread_socket(weir);
            // The largest windows for the connection and its streams.
            let max_window = (1_u32 << 31) - 1;
            let settings = [&[0, 4][..], &max_window.to_be_bytes()].concat();
            let window = (max_window - 0xffff).to_be_bytes();
            let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            let start = [&start[..], &frame(4, 0, 0, &settings), &frame(8, 0, 0, &window)].concat();
            socket.write_all(&start).unwrap();
            let sent = (0..100_000).take_while(|i| socket.write_all(&call(*i, body)).is_ok());
            assert!(sent.count() < 100_000, "the server stops reading");
            socket
        }
    };
    let sockets: Vec<TcpStream> = thread::scope(|scope| {
        let all: Vec<_> = (0..ATTACKERS).map(|i| scope.spawn(attack(i))).collect();
        all.into_iter().map(|attack| attack.join().unwrap()).collect()
    });
    let grown = weir.resident_bytes() - before;
    assert!(grown < MAX_BUFFERED + ATTACKERS * CONNECTION, "{} MiB", grown / MIB);
    wait_for("the connections to close", || {
        (weir.metric(r#"weir_connections{listener="grpc"}"#) == 0).then_some(())
    });
    drop(sockets);
}

#[test]
fn blocked_clients_stay_within_the_bound_and_are_closed() {
    assert_blocked_clients_stay_within_the_bound_and_are_closed(with_names());
}

#[test]
fn blocked_clients_stay_within_the_bound_and_are_closed_with_redis() {
    let redis = Server::start();
    assert_blocked_clients_stay_within_the_bound_and_are_closed(with_redis(&redis));
}

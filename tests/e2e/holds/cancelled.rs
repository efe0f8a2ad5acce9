//! Calls that are cancelled before their answer: what they took is given back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;

use super::*;
use crate::support::PATIENCE;
use crate::support::api::{ask, descriptor, request};
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::weir::{Setup, Weir};

const N: u32 = 100_000;

const RULES: &str = "domain: edge
descriptors:
  - key: service
    value: reports
    descriptors:
      - key: request_id
        rate_limit:
          { algorithm: concurrency, requests_per_unit: 100000, hold_id: request_id, hold_timeout: 1h }
  - key: service
    value: counted
    rate_limit: { algorithm: concurrency, requests_per_unit: 100000, hold_timeout: 1h }
";

/// Counting behind a proxy, with all the time there is.
fn on_redis(port: u16) -> Setup {
    serving(RULES)
        .env("REDIS_URL", format!("127.0.0.1:{port}"))
        .env("WEIR__STORE__BUDGET", "30s")
        .env("WEIR__STORE__REDIS__SLOW_AFTER", "30s")
}

/// How many holds there are, by the id and without.
async fn held(weir: &Weir) -> [u32; 2] {
    let mut looks = request("edge", &[("service", "reports"), ("request_id", "look")]);
    looks.descriptors.push(descriptor(&[("service", "counted")]));
    for descriptor in &mut looks.descriptors {
        descriptor.hits_addend = Some(0);
    }
    let answer = ask(weir.grpc, looks).await.unwrap();
    [0, 1].map(|i| N - answer.statuses[i].limit_remaining)
}

async fn until_held(weir: &Weir, wanted: [u32; 2]) {
    let give_up = std::time::Instant::now() + PATIENCE;
    loop {
        let held = held(weir).await;
        if held == wanted {
            return;
        }
        assert!(std::time::Instant::now() < give_up, "{held:?} are held, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes a hold of either kind.
fn takes(id: &str) -> Vec<u8> {
    let mut takes = request("edge", &[("service", "reports"), ("request_id", id)]);
    takes.descriptors.push(descriptor(&[("service", "counted")]));
    takes.encode_to_vec()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// POST, http, the path and the content type, as literals.
const HEADERS: &[u8] =
    b"\x83\x86\x04\x3c/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit\
    \x01\x05tests\x0f\x10\x10application/grpc\x00\x02te\x08trailers";

fn call(stream: u32, message: &[u8]) -> Vec<u8> {
    let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
    let message = [&[0], &prefix[..], message].concat();
    [frame(1, 4, stream, HEADERS), frame(0, 1, stream, &message)].concat()
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &u32::from(h2::Reason::CANCEL).to_be_bytes())
}

/// A connection on which frames are written as they are.
struct Raw(TcpStream);

impl Raw {
    fn open(weir: &Weir) -> Raw {
        let socket = TcpStream::connect(weir.grpc).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Raw(socket);
        raw.send(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat());
        raw
    }

    fn send(&mut self, frames: &[u8]) {
        self.0.write_all(frames).unwrap();
    }

    /// Returns once all that was sent has been read: a call that needs no store is answered.
    fn until_read(&mut self, stream: u32) {
        let asks = request("nobody", &[("limits", "this")]).encode_to_vec();
        self.send(&call(stream, &asks));
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            self.0.read_exact(&mut payload).unwrap();
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if of == stream && head[4] & 1 == 1 {
                return;
            }
        }
    }
}

/// The reset is read together with the call.
#[tokio::test]
async fn a_call_that_is_reset_at_once_leaves_no_hold() {
    let redis = Server::start();
    for weir in [serving(RULES).start(), on_redis(redis.port()).start()] {
        for round in 0..20 {
            let mut sent = Vec::new();
            for stream in [1, 3, 5, 7, 9] {
                sent.extend(call(stream, &takes(&format!("{round}-{stream}"))));
                sent.extend(reset(stream));
            }
            // One that stays shows that all were read.
            sent.extend(call(11, &takes(&format!("{round}-stays"))));
            let mut raw = Raw::open(&weir);
            raw.send(&sent);
            until_held(&weir, [round + 1; 2]).await;
        }
        let hits = weir.metric(r#"weir_rule_hits_total{domain="edge",rule="service_counted"}"#);
        assert_eq!(hits, 20 * 6, "all were charged at first");
    }
}

/// Redis is asked already, and answers later than the call is cancelled.
#[tokio::test]
async fn a_call_that_is_cancelled_while_redis_is_asked_leaves_no_hold() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = on_redis(proxy.port()).env("WEIR__RUNTIME__THREADS", "1").start();
    let mut resets = Raw::open(&weir);
    resets.send(&call(1, &takes("stays")));
    until_held(&weir, [1; 2]).await;
    proxy.stall();
    // This one is on its way.
    resets.send(&call(3, &takes("reset")));
    resets.until_read(5);
    // These wait for it to return.
    resets.send(&call(7, &takes("reset too")));
    resets.until_read(9);
    let mut ends = Raw::open(&weir);
    ends.send(&call(1, &takes("ends")));
    ends.until_read(3);
    drop(ends);
    resets.send(&[reset(3), reset(7)].concat());
    resets.until_read(11);
    proxy.resume();
    until_held(&weir, [1; 2]).await;
    proxy.stall();
    let mut ends = Raw::open(&weir);
    ends.send(&call(1, &takes("ends on its way")));
    ends.until_read(3);
    // weir asks Redis after it has looked once for more calls: another answer shows that it has.
    ends.until_read(5);
    drop(ends);
    // weir sees the end before Redis answers: only `resets` stays open.
    while weir.metric("weir_grpc_connections") > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.resume();
    // Without an id a connection that ends gives nothing back: its client may do so, as Envoy does.
    until_held(&weir, [1, 2]).await;
}

/// So many clients ask Envoy, and go away while it asks weir. Envoy resets the calls, and never reports
/// the end of their streams.
fn come_and_go(envoy: &Envoy, clients: u64) {
    let calls = || envoy.stat("cluster.weir.upstream_rq_total");
    let resets = || envoy.stat("cluster.weir.http2.tx_reset");
    let before = (calls(), resets());
    let clients: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut client = TcpStream::connect(envoy.address).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
            client
        })
        .collect();
    let count = clients.len() as u64;
    wait_for("Envoy to ask", || (calls() == before.0 + count).then_some(()));
    drop(clients);
    wait_for("Envoy to cancel", || (resets() == before.1 + count).then_some(()));
}

fn until_none_is_held(weir: &Weir) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(until_held(weir, [0; 2]));
}

#[test]
fn clients_that_go_away_while_weir_waits_for_redis_leave_no_hold() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = on_redis(proxy.port()).start();
    let envoy = envoy::before(&weir, &holds(&format!("{SERVICE}, {REQUEST_ID}")));
    assert_eq!(http::get(envoy.address, "/").status, 200);
    proxy.stall();
    come_and_go(&envoy, 50);
    proxy.resume();
    until_none_is_held(&weir);
}

/// weir reads the calls and their resets together, as it does where it is busy.
#[test]
fn clients_that_go_away_while_weir_is_busy_leave_no_hold() {
    // Of more resets that come together HTTP/2 takes the client for an attacker.
    const AT_ONCE: u64 = 15;
    let redis = Server::start();
    for setup in [serving(RULES), on_redis(redis.port())] {
        let weir = setup.start();
        let envoy = envoy::before(&weir, &holds(&format!("{SERVICE}, {REQUEST_ID}")));
        assert_eq!(http::get(envoy.address, "/").status, 200);
        let labels = r#"{domain="edge",rule="service_reports.request_id"}"#;
        let hits = || weir.metric(&format!("weir_rule_hits_total{labels}"));
        for round in 1..=5 {
            weir.signal("STOP");
            come_and_go(&envoy, AT_ONCE);
            weir.signal("CONT");
            wait_for("all to be charged", || (hits() == 1 + round * AT_ONCE).then_some(()));
        }
        until_none_is_held(&weir);
    }
}

//! Calls that are cancelled before they are answered: their hits are released.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;

use super::*;
use crate::connections::raw::{self, Frames, frame};
use crate::support::api::{ask, descriptor, request};
use crate::support::redis::Server;
use crate::support::redis::proxy::Proxy;
use crate::support::weir::Setup;
use crate::support::{PATIENCE, wait_until};

/// A limit that no test reaches.
const N: u32 = 100_000;

/// A service that counts in the Redis at `port`, with generous time limits.
fn with_redis(port: u16) -> Setup {
    serving(&rules(N)).env("REDIS_URL", format!("127.0.0.1:{port}"))
}

/// Returns the number of holds by ID and without.
async fn held(weir: &Weir) -> [u32; 2] {
    let mut looks = request("edge", &[("service", "reports"), ("request_id", "look")]);
    looks.descriptors.push(descriptor(&[("service", "counted")]));
    for descriptor in &mut looks.descriptors {
        descriptor.hits_addend = Some(0);
    }
    let answer = ask(weir.grpc, looks).await.unwrap();
    [0, 1].map(|i| N - answer.statuses[i].limit_remaining)
}

async fn wait_until_held(weir: &Weir, wanted: [u32; 2]) {
    wait_until(&format!("{wanted:?} are held"), async || held(weir).await == wanted).await;
}

/// A request for one hold of either kind.
fn hold_request(id: &str) -> Vec<u8> {
    let mut request = request("edge", &[("service", "reports"), ("request_id", id)]);
    request.descriptors.push(descriptor(&[("service", "counted")]));
    request.encode_to_vec()
}

/// The method, scheme, path, authority, content type and `te`, mostly as HPACK literals.
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

/// A connection that sends frames as they are given.
struct Raw(TcpStream);

impl Raw {
    fn open(weir: &Weir) -> Raw {
        Raw(raw::open(weir))
    }

    fn send(&mut self, frames: &[u8]) {
        self.0.write_all(frames).unwrap();
    }

    /// Waits until weir has read everything sent before: a call that needs no store is answered.
    fn wait_until_read(&mut self, stream: u32) {
        let unlimited = request("nobody", &[("limits", "this")]).encode_to_vec();
        self.send(&call(stream, &unlimited));
        let mut frames = Frames(&mut self.0);
        let end = frames.find(|frame| frame.stream == stream && frame.flags & 1 == 1);
        assert!(end.is_some(), "the connection was closed");
    }
}

/// weir reads the reset together with the call.
#[tokio::test]
async fn a_call_that_is_reset_at_once_leaves_no_hold() {
    let redis = Server::start();
    for weir in [serving(&rules(N)).start(), with_redis(redis.port()).start()] {
        for round in 0..20 {
            let mut sent = Vec::new();
            for stream in [1, 3, 5, 7, 9] {
                sent.extend(call(stream, &hold_request(&format!("{round}-{stream}"))));
                sent.extend(reset(stream));
            }
            // One call without a reset shows that all were read.
            sent.extend(call(11, &hold_request(&format!("{round}-stays"))));
            let mut raw = Raw::open(&weir);
            raw.send(&sent);
            wait_until_held(&weir, [round + 1; 2]).await;
        }
        let hits = weir.metric(r#"weir_rule_hits_total{domain="edge",rule="service_counted"}"#);
        assert_eq!(hits, 20 * 6, "all were charged");
    }
}

/// The charge is on its way to Redis when the call is cancelled.
#[tokio::test]
async fn a_call_that_is_cancelled_while_redis_decides_leaves_no_hold() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = with_redis(proxy.port()).env("WEIR__RUNTIME__THREADS", "1").start();
    let mut resets = Raw::open(&weir);
    resets.send(&call(1, &hold_request("stays")));
    wait_until_held(&weir, [1; 2]).await;
    proxy.stall();
    // This charge is on its way to Redis.
    resets.send(&call(3, &hold_request("reset")));
    resets.wait_until_read(5);
    // These charges wait for the next round trip.
    resets.send(&call(7, &hold_request("reset too")));
    resets.wait_until_read(9);
    let mut ends = Raw::open(&weir);
    ends.send(&call(1, &hold_request("ends")));
    ends.wait_until_read(3);
    drop(ends);
    resets.send(&[reset(3), reset(7)].concat());
    resets.wait_until_read(11);
    proxy.resume();
    wait_until_held(&weir, [1; 2]).await;
    proxy.stall();
    let mut ends = Raw::open(&weir);
    ends.send(&call(1, &hold_request("ends on its way")));
    ends.wait_until_read(3);
    // weir sends charges to Redis only after it has looked for further calls: a second answer shows
    // that it has.
    ends.wait_until_read(5);
    drop(ends);
    // weir notices the end before Redis answers: only `resets` stays open.
    while weir.metric(r#"weir_connections{listener="grpc"}"#) > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.resume();
    // Without an ID, the end of a connection releases nothing: the client may do so, as Envoy does.
    wait_until_held(&weir, [1, 2]).await;
}

/// Connects clients to Envoy that disconnect while Envoy waits for weir. Envoy resets the calls, and
/// does not report the end of their streams.
fn connect_and_disconnect(envoy: &Envoy, clients: u64) {
    let calls = || envoy.stat("cluster.weir.upstream_rq_total");
    let resets = || envoy.stat("cluster.weir.http2.tx_reset");
    let before = (calls(), resets());
    let clients: Vec<TcpStream> = (0..clients)
        .map(|_| {
            let mut client = TcpStream::connect(envoy.address).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nx-hold: reports\r\n\r\n").unwrap();
            client
        })
        .collect();
    let count = clients.len() as u64;
    wait_for("Envoy calls weir", || (calls() == before.0 + count).then_some(()));
    drop(clients);
    wait_for("Envoy cancels the calls", || (resets() == before.1 + count).then_some(()));
    // Envoy counts a reset before it writes it. Its only thread for traffic has written them all when it
    // answers another client.
    let mut other = TcpStream::connect(envoy.address).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(b"not HTTP\r\n\r\n").unwrap();
    assert!(other.read(&mut [0]).unwrap() > 0, "Envoy answers with an error");
}

/// Sends a request with a hold through Envoy, and waits until its end has released it: Envoy reports the
/// end only after the client has its response, and would count that call as another's.
fn send_one(envoy: &Envoy, weir: &Weir) {
    assert_eq!(http::get_with(envoy.address, "/", &[("x-hold", "reports")]).status, 200);
    wait_until_none_is_held(weir);
}

fn wait_until_none_is_held(weir: &Weir) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(wait_until_held(weir, [0; 2]));
}

#[test]
fn clients_that_disconnect_while_weir_waits_for_redis_leave_no_hold() {
    let redis = Server::start();
    let proxy = Proxy::start(redis.port());
    let weir = with_redis(proxy.port()).start();
    // Requests with the header take a hold; weir answers others without Redis.
    let hold = "{ request_headers: { header_name: x-hold, descriptor_key: service } }, \
         { request_headers: { header_name: x-request-id, descriptor_key: request_id } }";
    let unlimited = "{ actions: [{ generic_key: { descriptor_value: unlimited } }] }";
    let envoy =
        envoy::in_front_of(&weir, &format!("rate_limits: [ {}, {unlimited} ]", holds(hold)));
    send_one(&envoy, &weir);
    proxy.stall();
    connect_and_disconnect(&envoy, 50);
    // weir has read the resets when it answers what Envoy sent after them. It would release nothing for
    // calls that it answers before it reads their resets.
    assert_eq!(http::get(envoy.address, "/").status, 200);
    proxy.resume();
    wait_until_none_is_held(&weir);
}

/// weir reads the calls and their resets together, as it does when it is busy.
#[test]
fn clients_that_disconnect_while_weir_is_busy_leave_no_hold() {
    // More resets at once would look like an attack.
    const AT_ONCE: u64 = 15;
    let redis = Server::start();
    for setup in [serving(&rules(N)), with_redis(redis.port())] {
        let weir = setup.start();
        let envoy = envoy_with_holds(&weir, BY_REQUEST_ID);
        send_one(&envoy, &weir);
        let labels = r#"{domain="edge",rule="service_reports.request_id"}"#;
        let hits = || weir.metric(&format!("weir_rule_hits_total{labels}"));
        for round in 1..=5 {
            weir.signal("STOP");
            connect_and_disconnect(&envoy, AT_ONCE);
            weir.wait_until_delivered();
            weir.signal("CONT");
            wait_for("all are charged", || (hits() == 1 + round * AT_ONCE).then_some(()));
        }
        wait_until_none_is_held(&weir);
    }
}

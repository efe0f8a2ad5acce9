//! Pings, the maximum age of connections, and calls that wait, on paused time.

use std::time::Duration;

use h2::client::{self, SendRequest};
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::service::Routes;

use super::*;
use crate::net::{ConnectionCounts, ConnectionLimits, Connections};
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::rls::grpc::calls::SHOULD_RATE_LIMIT;
use crate::rls::grpc::{Grpc, ReadScheduler};
use crate::rls::service::{RateLimit, ResponseOptions};
use crate::trace::{Ends, Sampler};
use weir_common::clock::SystemClock;
use weir_controls::ActiveRules;
use weir_limiter::Limiter;
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::conformance::fakes::{Fake, Gated};
use weir_store::memory::MemoryStore;

const AGE: Duration = Duration::from_secs(1_000);
const GRACE: Duration = Duration::from_secs(500);
const STREAMS: u32 = 8;

/// A connection in memory, from the client's side.
struct Client {
    requests: SendRequest<Bytes>,
    /// Ends with the connection.
    driver: JoinHandle<Result<(), h2::Error>>,
    opened: Instant,
    close: watch::Sender<bool>,
}

async fn connect() -> Client {
    connect_to(MemoryStore::new(SystemClock::new(), 1_000)).await
}

async fn connect_to(store: impl Store) -> Client {
    // A request may take forever to arrive.
    let (here, opened, close) = serve(store, Duration::MAX);
    let (requests, connection) = client::handshake(here).await.unwrap();
    let driver = tokio::spawn(connection);
    Client { requests: requests.ready().await.unwrap(), driver, opened, close }
}

/// Serves a connection. Returns the client's side, and when and how it was opened and closes.
fn serve(store: impl Store, timeout: Duration) -> (DuplexStream, Instant, watch::Sender<bool>) {
    let text = "{domain: d, descriptors: [{key: a, rate_limit: {rate: 9/s}}]}".into();
    let file = RuleFile { name: "test.yaml".into(), text };
    let (rules, problems) = RuleSet::compile(&[file], &weir_rules::RuleOptions::default(), None);
    assert_eq!(problems, []);
    let limiter = Arc::new(Limiter::new(store, Default::default()));
    let service =
        RateLimit::new(limiter, Arc::new(ActiveRules::of(rules)), ResponseOptions::default());
    let limits = Limits {
        max_message: 1 << 20,
        max_streams: STREAMS,
        max_buffered: 1 << 20,
        timeout,
        max_age: AGE,
        max_age_grace: GRACE,
    };
    let grpc = Arc::new(Grpc::new(service, Routes::default(), limits, Sampler::default()));
    let (here, there) = duplex(1 << 16);
    let (close, closed) = watch::channel(false);
    let limits = ConnectionLimits {
        listener: "grpc",
        setting: "grpc.max_connections",
        max: 1,
        overflow: 0,
        min_idle: Duration::ZERO,
    };
    let handle = Connections::new(limits, ConnectionCounts::default()).register();
    let opened = Instant::now();
    tokio::spawn(async move {
        let io = ReadScheduler::default().throttle(there);
        grpc.serve(io, &handle, Ends::default(), closed).await;
    });
    (here, opened, close)
}

impl Client {
    /// Starts a call whose message does not arrive until the stream is used.
    fn start_call(&mut self) -> (client::ResponseFuture, SendStream<Bytes>) {
        let head = http::Request::post(format!("http://weir{SHOULD_RATE_LIMIT}"))
            .header("content-type", "application/grpc");
        self.requests.send_request(head.body(()).unwrap(), false).unwrap()
    }

    fn call(&mut self) -> client::ResponseFuture {
        let entries = vec![Entry { key: "a".into(), value: "x".into() }];
        let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
        let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 1 };
        let message = request.encode_to_vec();
        let framed = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat();
        let (response, mut stream) = self.start_call();
        stream.send_data(framed.into(), true).unwrap();
        response
    }

    /// Waits until the client has been asked to leave.
    async fn until_asked_to_leave(&mut self) {
        while poll_fn(|cx| self.requests.poll_ready(cx)).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn grpc_status(mut body: RecvStream) -> String {
    while let Some(data) = body.data().await {
        data.unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or_default();
    trailers.get("grpc-status").map(|status| status.to_str().unwrap().into()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn idle_connections_close_at_their_age_give_or_take_ten_percent() {
    let mut ages = Vec::new();
    for _ in 0..20 {
        let client = connect().await;
        client.driver.await.unwrap().unwrap();
        ages.push(client.opened.elapsed());
        assert!(!*client.close.borrow());
    }
    ages.sort();
    assert!(ages[0] >= AGE.mul_f64(0.9) && ages[19] <= AGE.mul_f64(1.1), "{ages:?}");
    assert!(ages[19] - ages[0] > AGE.mul_f64(0.02), "no jitter: {ages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_is_disconnected() {
    let store = MemoryStore::new(SystemClock::new(), 1_000);
    let (mut here, opened, _close) = serve(store, Duration::from_secs(10));
    here.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // Reads the server's frames, and answers none.
    here.read_to_end(&mut Vec::new()).await.unwrap();
    // A ping comes after 30 to 60 seconds.
    let open = opened.elapsed().as_secs();
    assert!((40..=70).contains(&open), "{open}");
}

#[tokio::test(start_paused = true)]
async fn calls_in_progress_have_the_grace_to_end() {
    let mut client = connect().await;
    let (response, mut stream) = client.start_call();
    client.until_asked_to_leave().await;
    tokio::time::sleep(GRACE / 2).await;
    assert!(!client.driver.is_finished());
    // A message that is too short: it is answered, with an error.
    stream.send_data(Bytes::from_static(&[0]), true).unwrap();
    let response = response.await.unwrap();
    let status = response.headers().get("grpc-status").cloned();
    let status = match status {
        Some(status) => status.to_str().unwrap().to_owned(),
        None => grpc_status(response.into_body()).await,
    };
    assert_ne!(status, "");
    client.driver.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_that_outlast_the_grace_are_cut_off() {
    let mut client = connect().await;
    let (response, _stream) = client.start_call();
    client.until_asked_to_leave().await;
    let old = client.opened.elapsed();
    assert!(response.await.is_err());
    let cut_off = client.opened.elapsed() - old;
    assert!((GRACE - Duration::from_secs(2)..=GRACE).contains(&cut_off), "{cut_off:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_replaces_the_grace() {
    let mut client = connect().await;
    let (_response, _stream) = client.start_call();
    client.until_asked_to_leave().await;
    client.close.send_replace(true);
    // With the timeout unlimited, a drained connection waits for its calls.
    tokio::time::sleep(GRACE * 2).await;
    assert!(!client.driver.is_finished());
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_streams_are_dropped_before_they_are_charged() {
    let memory = MemoryStore::new(SystemClock::new(), 1_000);
    let gated = Arc::new(Gated { inner: memory, release: Semaphore::new(0) });
    let store = Fake::new(gated.clone());
    let mut client = connect_to(store.clone()).await;
    let calls = |client: &mut Client| (0..STREAMS).map(|_| client.call()).collect::<Vec<_>>();
    let settle = || tokio::time::sleep(Duration::from_millis(1));
    let waiting = calls(&mut client);
    settle().await;
    assert_eq!(store.asked(), STREAMS as usize);
    // The client resets them, but they still wait for the store.
    drop(waiting);
    settle().await;
    for dropped in calls(&mut client) {
        assert!(dropped.await.is_err());
    }
    assert_eq!(store.asked(), 0);
    gated.release.add_permits(100);
    settle().await;
    assert_eq!(client.call().await.unwrap().status(), 200);
    assert_eq!(store.asked(), 1);
}

#[test]
fn the_maximum_age_has_a_jitter_of_ten_percent() {
    let age = |random| jittered(Duration::from_secs(100), random);
    assert_eq!(age(0.0), Some(Duration::from_secs(90)));
    assert_eq!(age(0.5), Some(Duration::from_secs(100)));
    assert_eq!(jittered(Duration::MAX, 0.0), None);
}

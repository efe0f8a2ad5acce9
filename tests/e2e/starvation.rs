//! Clients that use up connections, descriptors, time or memory. Health and newcomers are answered
//! nevertheless.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use crate::support::api::{code, request};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{PATIENCE, http, wait_for};

/// The timeout of probes of Kubernetes and Envoy Gateway.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

fn setup() -> Setup {
    serving(
        "domain: shop\ndescriptors:\n  - key: user\n    \
         rate_limit: { unit: year, requests_per_unit: 2 }\n",
    )
}

/// Runs one attack at a time: all of them at once would slow the machine down, and health with it. For the same
/// reason, what measures how soon health is answered runs without any other test.
static ATTACKS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ATTACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Probes health during an attack, and asserts that it is answered in time. One late answer is
/// tolerated: the machine may be slow.
fn assert_healthy(weir: &Weir) {
    let probe = |_| {
        let start = Instant::now();
        let answer = http::ask(weir.http, "GET", "/healthcheck", &[], b"");
        let took = start.elapsed();
        assert_eq!(answer.unwrap_or_else(|e| panic!("after {took:?}: {e}")).status, 200);
        thread::sleep(Duration::from_millis(20));
        took
    };
    let took: Vec<Duration> = (0..10).map(probe).collect();
    let late = took.iter().filter(|took| **took >= PROBE_TIMEOUT).count();
    assert!(late <= 1, "health took {took:?}");
}

/// Asserts that a new gRPC connection is served.
fn assert_newcomer_served(weir: &Weir) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(code(weir.grpc, request("shop", &[("user", "ann")])));
    assert_eq!(code, Code::Ok);
}

/// Threads that repeat something until this is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn start(threads: usize, round: impl Fn() + Clone + Send + 'static) -> Attack {
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let spawn = |_| {
            let (stop, rounds, round) = (stop.clone(), rounds.clone(), round.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    round();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..threads).map(spawn).collect();
        Attack { stop, rounds, threads }
    }

    fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A failed assertion of the test itself is more useful.
            let _ = thread.join();
        }
    }
}

/// Opens connections, each of which stops at some point of a request.
fn open_slow(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    const PARTS: [&[u8]; 3] = [
        b"",
        b"GET /healthcheck HTTP/1.1\r\nhost: te",
        b"POST /json HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n{\"domain\"",
    ];
    let open = |i: usize| {
        let mut slow = TcpStream::connect(to).unwrap();
        // It may have been closed already.
        let _ = slow.write_all(PARTS[i % PARTS.len()]);
        slow
    };
    (0..count).map(open).collect()
}

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn slow_http_requests_do_not_delay_health() {
    let _alone = alone();
    let weir = setup()
        .env("WEIR__HTTP__MAX_CONNECTIONS", "32")
        .env("WEIR__CLIENTS__TIMEOUT", "1h")
        .start();
    let _slow = open_slow(weir.http, 200);
    assert_healthy(&weir);
    // New ones replace those that are closed.
    let to = weir.http;
    let _attack = Attack::start(1, move || drop(open_slow(to, 50)));
    assert_healthy(&weir);
    assert!(weir.metric(r#"weir_connections_evicted_total{listener="http"}"#) > 100);
}

/// A body that is slow to parse: one request with many entries.
fn large_json() -> String {
    let entry = r#"{"key":"some_key","value":"some_value"}"#;
    let entries = [entry; 20_000].join(",");
    format!(r#"{{"domain":"shop","descriptors":[{{"entries":[{entries}]}}]}}"#)
}

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn large_json_does_not_delay_health() {
    let _alone = alone();
    let weir = setup().start();
    let (to, body) = (weir.http, Arc::new(large_json()));
    assert_eq!(http::post(weir.http, "/json", body.as_bytes()).status, 200);
    let attack = Attack::start(10, move || {
        let answer = http::ask(to, "POST", "/json", &[], body.as_bytes()).unwrap();
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    });
    wait_for("the attack", || (attack.rounds() >= 10).then_some(()));
    assert_healthy(&weir);
    // Small requests overtake large ones.
    let start = Instant::now();
    let small = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", small).status, 200);
    assert!(start.elapsed() < PROBE_TIMEOUT, "{:?}", start.elapsed());
}

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn health_is_answered_while_all_connections_have_requests_in_progress() {
    let _alone = alone();
    let weir = setup().env("WEIR__HTTP__MAX_CONNECTIONS", "3").start();
    // The slowest body of one megabyte.
    let entries = [r#"{"key":"a"}"#; 80_000].join(",");
    let body = format!(r#"{{"domain":"shop","descriptors":[{{"entries":[{entries}]}}]}}"#);
    let (to, body) = (weir.http, Arc::new(body));
    let attack = Attack::start(6, move || {
        // The connection may be refused.
        let _ = http::ask(to, "POST", "/json", &[], body.as_bytes());
    });
    wait_for("the attack", || (attack.rounds() >= 6).then_some(()));
    assert_healthy(&weir);
}

#[test]
fn large_bodies_share_memory_and_small_ones_are_free() {
    let weir = setup()
        .env("WEIR__GRPC__MAX_MESSAGE", "64KiB")
        .env("WEIR__CLIENTS__MAX_BUFFERED", "128KiB")
        .start();
    // Each exceeds the free bytes by 48 KiB.
    let body = format!("{}{}", " ".repeat(40 << 10), "x");
    let head = format!("POST /json HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", 60 << 10);
    let halves: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut half = TcpStream::connect(weir.http).unwrap();
            half.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
            half
        })
        .collect();
    let refused = || http::post(weir.http, "/json", &body).status == 503;
    wait_for("the halves to be received", || refused().then_some(()));
    let small = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    assert_eq!(http::post(weir.http, "/json", small).status, 200);
    drop(halves);
    // Invalid, and no longer refused.
    wait_for("room", || (http::post(weir.http, "/json", &body).status == 400).then_some(()));
}

/// The preface of HTTP/2 and a SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn idle_grpc_connections_leave_descriptors_to_others() {
    let _alone = alone();
    let weir = setup().max_files(128).start();
    let open = |i: usize| {
        let mut idle = TcpStream::connect(weir.grpc).unwrap();
        if i.is_multiple_of(2) {
            // It may have been closed already.
            let _ = idle.write_all(PREFACE);
        }
        idle
    };
    let _idle: Vec<TcpStream> = (0..400).map(open).collect();
    assert_healthy(&weir);
    assert_newcomer_served(&weir);
    assert!(weir.metric(r#"weir_connections_evicted_total{listener="grpc"}"#) > 100);
    assert_eq!(http::get(weir.debug, "/status").status, 200);
}

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn health_is_answered_when_no_descriptors_are_left() {
    let _alone = alone();
    // Little more than the service itself needs.
    let weir = setup().env("WEIR__RUNTIME__THREADS", "1").max_files(64).start();
    let _idle: Vec<_> = (0..200).map(|_| TcpStream::connect(weir.grpc).unwrap()).collect();
    let _slow = open_slow(weir.http, 50);
    assert_healthy(&weir);
    assert_newcomer_served(&weir);
    let said = weir.said();
    let failures = said.matches("cannot accept a connection").count();
    // None if evicted connections close in time; else one line per listener, however many failures.
    assert!(failures <= 2, "{said}");
}

#[test]
fn health_comes_back_when_clients_that_took_all_descriptors_have_gone() {
    let _alone = alone();
    // Hardly what the service itself needs.
    let weir = setup().env("WEIR__RUNTIME__THREADS", "1").max_files(40).start();
    let clients = |to| (0..60).filter_map(move |_| TcpStream::connect(to).ok());
    let grpc: Vec<_> = clients(weir.grpc).collect();
    let slow = [open_slow(weir.http, 20), open_slow(weir.debug, 20)];
    drop((grpc, slow));
    wait_for("health", || weir.is_healthy().then_some(()));
    assert_newcomer_served(&weir);
}

/// Rules with several megabytes of metrics.
fn many_rules() -> Setup {
    let rule = |i| {
        format!(
            "  - key: {}{i}\n    rate_limit: {{ unit: year, requests_per_unit: 2 }}\n",
            "long".repeat(25)
        )
    };
    let rules: String = (0..3_000).map(rule).collect();
    serving(&format!("domain: shop\ndescriptors:\n{rules}"))
}

/// A client that requests metrics and does not read them.
fn reader(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&to.into()).unwrap();
    let mut reader = TcpStream::from(socket);
    reader.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    reader
}

#[test]
#[ignore = "measures times: scripts/test runs it alone"]
fn slow_readers_of_metrics_delay_no_one_and_share_renderings() {
    let _alone = alone();
    let weir = many_rules().env("WEIR__HTTP__MAX_CONNECTIONS", "64").start();
    let page = http::get(weir.http, "/metrics").body.len();
    assert!(page > 2_000_000, "{page}");
    let before = weir.resident_bytes();
    // Almost as many as the limit.
    let readers: Vec<TcpStream> = (0..60).map(|_| reader(weir.http)).collect();
    assert_healthy(&weir);
    for mut reader in &readers {
        // Each receives a part of its response.
        reader.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(reader.read(&mut [0; 100]).unwrap(), 100);
    }
    let after = weir.resident_bytes();
    let grown = after.saturating_sub(before);
    assert!(grown < 10 * page, "{grown} bytes for 60 readers of {page} bytes");
    let newcomers: Vec<TcpStream> = (0..60).map(|_| reader(weir.http)).collect();
    assert_healthy(&weir);
    drop((readers, newcomers));
}

#[test]
fn a_response_has_a_deadline_however_steadily_it_is_read() {
    let weir = many_rules().env("WEIR__CLIENTS__TIMEOUT", "300ms").start();
    let mut reader = reader(weir.http);
    reader.set_read_timeout(Some(PATIENCE)).unwrap();
    let give_up = Instant::now() + PATIENCE;
    let mut received = 0;
    let ended = loop {
        assert!(Instant::now() < give_up, "{received} bytes received and no end");
        match reader.read(&mut [0; 1 << 10]) {
            Ok(0) => break None,
            Ok(bytes) => received += bytes,
            Err(error) => break Some(error.kind()),
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(matches!(ended, None | Some(ErrorKind::ConnectionReset)), "{ended:?}");
    assert!(received < 2_000_000, "{received}");
}

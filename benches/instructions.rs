//! Counts the instructions of a request, which detects regressions even on a busy machine.
//!
//! `cargo bench --package weir-benches --bench instructions` runs each case under valgrind and compares it with
//! `benches/instructions.txt`; `-- update` rewrites that file. An increase of more than 1 % fails the
//! run. A decrease of more than 1 % asks for an update, so that the improvement is kept.

use std::net::Ipv4Addr;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::service::Routes;
use weir::net::{self, Connections};
use weir::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::rls::grpc::{Grpc, Limits, ReadScheduler};
use weir::rls::service::{Descriptors, RateLimit, RequestView, ResponseOptions, encode_framed};
use weir::trace::{Ends, Sampler};
use weir_common::clock::SystemClock;
use weir_common::entry::OwnedEntry;
use weir_controls::{Action, ActiveRules, Control};
use weir_limiter::{Holds, Limiter};
use weir_rules::source::Selection;
use weir_rules::{Loaded, RuleSet};
use weir_store::memory::MemoryStore;
use weir_top::Top;

const RULES: &str = "domain: bench
descriptors:
  - key: one
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: none
    rate_limit: { unit: year, requests_per_unit: 0 }
  - key: four
    rate_limits:
      - { unit: day, requests_per_unit: 4000000000 }
      - { unit: week, requests_per_unit: 4000000000 }
      - { unit: month, requests_per_unit: 4000000000 }
      - { unit: year, requests_per_unit: 4000000000 }
";

/// A domain of its own: a rule that names a value lengthens every look-up of its level.
const ADDRESS_RULES: &str = "domain: addresses
descriptors:
  - key: named
    value: 203.0.113.7
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: named
    network: [10.0.0.0/8, 192.0.2.0/24, 2001:db8::/32]
    rate_limit: { unlimited: true }
  - key: within
    network: [203.0.113.0/24, 192.0.2.0/24, 2001:db8::/32]
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: listed
    values_file: listed.txt
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: ipv6
    network: [203.0.113.0/24, 192.0.2.0/24, 2001:db8::/32]
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
  - key: grouped
    network: [203.0.113.0/24, 192.0.2.0/24, 2001:db8::/32]
    group: { v4: 28 }
    rate_limit: { unit: year, requests_per_unit: 4000000000 }
";

/// The value of most cases about addresses: a rule names it, a network has it, and a list of many does.
const ADDRESS: &str = "203.0.113.7";

/// The lines of the list.
const LISTED: u32 = 1_000_000;

/// The relative change that fails the run: more than chance and system libraries cause.
const TOLERANCE: f64 = 0.01;

/// Hash tables and sketches are seeded at random, which changes the counts of cases with top keys by up to
/// 0.7 %. So a count that is too high is taken again, and the lowest of this many is compared.
const TRIES: usize = 4;

const KEYS: usize = 100;

/// The requests of the longer run.
const MANY_REQUESTS: usize = 9_600;
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// The name of each case, and the descriptors of its requests.
const CASES: [(&str, &[&str]); 24] = [
    ("decide: one limit", &["one"]),
    ("decide: one limit, over", &["none"]),
    ("decide: three descriptors of four limits", &["four", "four", "four"]),
    ("serve: one at a time", &["one"]),
    ("serve: sixteen at a time", &["one"]),
    ("serve: traceparent, tracing off", &["one"]),
    ("serve: traceparent not sampled, tracing on", &["one"]),
    ("serve: B3 headers, tracing off", &["one"]),
    ("serve: B3 headers not sampled, tracing on", &["one"]),
    ("serve: no context, not sampled, tracing on", &["one"]),
    ("decide: one limit, top keys", &["one"]),
    ("decide: one limit, over, top keys", &["none"]),
    ("decide: one limit, near it, top keys", &["one"]),
    ("decide: one limit, new keys", &["one"]),
    ("decide: one limit, new keys, top keys", &["one"]),
    ("serve: one at a time, top keys", &["one"]),
    ("decide: one limit, one control", &["one"]),
    ("decide: one limit, 10 000 controls", &["one"]),
    ("decide: blocked, 10 000 controls", &["blocked"]),
    ("decide: one limit, a value beside networks", &["named"]),
    ("decide: one limit, by network", &["within"]),
    ("decide: one limit, by a list of 1 000 000", &["listed"]),
    ("decide: one limit, by network, IPv6", &["ipv6"]),
    ("decide: one limit, by network, a port and a group", &["grouped"]),
];

/// The headers of a caller that does not record its trace.
const TRACEPARENT: &[u8] =
    b"\x00\x0btraceparent\x3700-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const B3: &[u8] = b"\x00\x0cx-b3-traceid\x204bf92f3577b34da6a3ce929d0e0e4736\
    \x00\x0bx-b3-spanid\x1000f067aa0ba902b7\x00\x0cx-b3-sampled\x010";

type Service = RateLimit<MemoryStore<SystemClock>>;

/// Returns blocks of the first descriptors with the key `blocked`, and of others that are not asked for.
fn controls(count: usize) -> Vec<Arc<Control>> {
    let control = |number| Control {
        id: format!("{number}"),
        domain: "bench".into(),
        entries: vec![OwnedEntry { key: "blocked".into(), value: format!("value 0 {number:03}") }],
        except: Vec::new(),
        exact: false,
        text: false,
        action: Action::Block,
        until: Some(u64::MAX),
        reason: String::new(),
        by: String::new(),
        at: 0,
    };
    (0..count).map(|number| Arc::new(control(number))).collect()
}

/// Loads the rules, with a list of this many lines beside them, and one more.
fn rules(listed: u32) -> RuleSet {
    let directory = tempfile::tempdir().expect("a directory");
    // Spread over all addresses, as those of a block list are.
    let spread = |number: u32| Ipv4Addr::from_bits(number.wrapping_mul(2_654_435_761));
    let lines: String = (0..listed).map(|number| format!("{}\n", spread(number))).collect();
    let list = format!("{ADDRESS}\n{lines}");
    for (name, text) in
        [("bench.yaml", RULES), ("addresses.yaml", ADDRESS_RULES), ("listed.txt", &list)]
    {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    let loaded =
        Loaded::read(&Selection::of(directory.path()), &weir_rules::RuleOptions::default(), None);
    assert!(loaded.problems.is_empty(), "{}", loaded.render(loaded.problems.iter()));
    loaded.rules
}

fn service(case: usize) -> Service {
    // To read the list takes a while.
    let rules = rules(if CASES[case].1 == ["listed"] { LISTED } else { 0 });
    let store = MemoryStore::new(SystemClock::new(), 1_000_000);
    // With a ratio of 0 every admission is near its limit.
    let near_limit_ratio = if case == 12 { 0.0 } else { 0.8 };
    let options = weir_limiter::LimiterOptions {
        near_limit_ratio,
        ..weir_limiter::LimiterOptions::default()
    };
    let top = matches!(case, 10 | 11 | 12 | 14 | 15).then(|| {
        let options =
            weir_top::TopOptions { entries: 1024, redact: Vec::new(), threads: 2, share: false };
        Arc::new(Top::new(options, Arc::new(SystemClock::new())))
    });
    let limiter = Arc::new(Limiter::new(store, options).with_top(top));
    let rules = Arc::new(ActiveRules::of(rules));
    rules.set_controls(controls(match case {
        16 => 1,
        17 | 18 => 10_000,
        _ => 0,
    }));
    RateLimit::new(
        limiter,
        rules,
        ResponseOptions {
            store_timeout: Some(Duration::from_secs(1)),
            ..ResponseOptions::default()
        },
    )
}

fn messages(descriptors: &[&str], keys: usize) -> Vec<Vec<u8>> {
    let address = match descriptors {
        ["named" | "within" | "listed"] => Some(ADDRESS),
        ["ipv6"] => Some("2001:db8::7"),
        ["grouped"] => Some("203.0.113.7:4711"),
        _ => None,
    };
    let message = |number: usize| {
        let descriptors = descriptors.iter().enumerate().map(|(i, key)| {
            let value = address.map_or_else(|| format!("value {i} {number:03}"), str::to_owned);
            let entries = vec![Entry { key: (*key).into(), value }];
            RateLimitDescriptor { entries, ..Default::default() }
        });
        let domain = if address.is_some() { "addresses" } else { "bench" }.into();
        let request =
            RateLimitRequest { domain, descriptors: descriptors.collect(), hits_addend: 0 };
        request.encode_to_vec()
    };
    (0..keys).map(message).collect()
}

/// Decodes requests, decides, and encodes responses.
fn decide(service: &Service, messages: &[Vec<u8>], requests: usize) {
    for message in messages.iter().cycle().take(requests) {
        let mut texts = Vec::new();
        let (mut view, mut descriptors) = (RequestView::default(), Descriptors::new());
        let sent = service.decode(message, &mut view, &mut texts, &mut descriptors);
        let (mut request, mut holds) = (sent.expect("a good request").request, Holds::default());
        let answer = service.decide(&mut request, None, &mut holds, encode_framed).now_or_never();
        let Some(Ok(_)) = std::hint::black_box(answer) else { panic!("an answer") };
    }
}

/// Serves requests on a connection in memory, without system calls.
fn serve(
    (service, sampler): (Service, Sampler),
    messages: &[Vec<u8>],
    requests: usize,
    in_flight: usize,
    trace_headers: &[u8],
) {
    let headers = [HEADERS, trace_headers].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let limits = Limits {
            max_message: 1 << 20,
            max_streams: 1024,
            max_buffered: 64 << 20,
            timeout: Duration::from_secs(10),
            max_age: Duration::from_secs(24 * 60 * 60),
            max_age_grace: Duration::from_secs(60 * 60),
        };
        let grpc = Grpc::new(service, Routes::default(), limits, sampler);
        let grpc = Arc::new(grpc);
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let (close, closed) = tokio::sync::watch::channel(false);
        let limits = net::ConnectionLimits {
            listener: "grpc",
            setting: "grpc.max_connections",
            max: 1,
            overflow: 0,
            min_idle: Duration::from_secs(1),
        };
        let handle = Connections::new(limits, net::ConnectionCounts::default()).register();
        tokio::spawn(async move {
            let io = ReadScheduler::default().throttle(server);
            grpc.serve(io, &handle, Ends::default(), closed).await;
        });
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame(4, 0, 0, &[], &mut out);
        // Flow control for all responses.
        frame(8, 0, 0, &((1_u32 << 31) - (1 << 20)).to_be_bytes(), &mut out);
        let mut messages = messages.iter().cycle();
        let (mut stream, mut answered) = (1, 0);
        let mut answers = Answers::default();
        while answered < requests {
            for _ in 0..in_flight {
                let Some(message) = messages.next() else { return };
                frame(1, 4, stream, &headers, &mut out);
                let length = (message.len() as u32).to_be_bytes();
                frame(0, 1, stream, &[&[0], &length[..], message].concat(), &mut out);
                stream += 2;
            }
            client.write_all(&out).await.expect("a write");
            out.clear();
            answered += in_flight;
            while answers.ended < answered {
                let read = client.read_buf(&mut answers.bytes).await.expect("a read");
                assert!(read > 0, "the connection was closed");
                answers.count();
            }
        }
        drop(close);
    });
}

/// POST, http, the path, the authority, application/grpc and te: trailers; all but the first two as
/// literals, which need no dynamic table.
const HEADERS: &[u8] =
    b"\x83\x86\x04\x3c/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit\
    \x01\x05bench\x0f\x10\x10application/grpc\x00\x02te\x08trailers";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Received frames. Those that end a stream count.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    ended: usize,
}

impl Answers {
    fn count(&mut self) {
        let mut at = 0;
        while let Some([a, b, c, kind, flags]) = self.bytes.get(at..at + 5) {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if self.bytes.len() < at + 9 + length {
                break;
            }
            assert!(*kind != 3 && *kind != 7, "a stream or the connection failed");
            self.ended += usize::from(*kind == 1 && flags & 1 > 0);
            at += 9 + length;
        }
        self.bytes.drain(..at);
    }
}

fn run(case: usize, requests: usize) {
    let keys = if matches!(case, 13 | 14) { MANY_REQUESTS } else { KEYS };
    let messages = messages(CASES[case].1, keys);
    match case {
        3..10 | 15 => {
            // Without a caller, all but one in a million are not recorded.
            let sampler = [Sampler::default(), Sampler::new(1e-6)];
            let sampler = sampler[usize::from(matches!(case, 6 | 8 | 9))];
            let in_flight = if case == 4 { 16 } else { 1 };
            let headers: &[u8] = match case {
                5 | 6 => TRACEPARENT,
                7 | 8 => B3,
                _ => &[],
            };
            serve((service(case), sampler), &messages, requests, in_flight, headers);
        }
        _ => decide(&service(case), &messages, requests),
    }
}

/// Returns the number of instructions of a whole process.
fn count(case: usize, requests: usize) -> Result<u64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(own)
        .args(["run", &case.to_string(), &requests.to_string()])
        .output()
        .map_err(|error| format!("cannot run valgrind ({error}): install it"))?;
    let output = String::from_utf8_lossy(&ran.stderr);
    let refs =
        output.lines().find_map(|line| line.split_once("I   refs:").or(line.split_once("I refs:")));
    refs.filter(|_| ran.status.success())
        .and_then(|(_, number)| number.trim().replace(',', "").parse().ok())
        .ok_or_else(|| format!("valgrind failed:\n{output}"))
}

/// Returns the number of instructions of one request after warm-up.
fn measure(case: usize) -> Result<u64, String> {
    let (few, many) = (1_600, MANY_REQUESTS);
    Ok((count(case, many)? - count(case, few)?) / (many - few) as u64)
}

fn compare(update: bool) -> Result<bool, String> {
    let baseline = std::fs::read_to_string(BASELINE).unwrap_or_default();
    let before = |name| {
        let line = baseline.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|number| number.parse::<u64>().ok())
    };
    let mut written = String::new();
    let mut good = true;
    for (case, (name, _)) in CASES.iter().enumerate() {
        let mut now = measure(case)?;
        let is_high =
            |now| before(name).is_some_and(|it| now as f64 > it as f64 * (1.0 + TOLERANCE));
        for _ in 1..TRIES {
            if is_high(now) {
                now = now.min(measure(case)?);
            }
        }
        written += &format!("{name}: {now}\n");
        let Some(before) = before(name) else {
            println!("{name}: {now} instructions, not in the file yet");
            good &= update;
            continue;
        };
        let change = now as f64 / before as f64 - 1.0;
        println!("{name}: {now} instructions, before {before} ({:+.1} %)", change * 100.0);
        if change > TOLERANCE {
            println!(
                "  more than 1 % above the file: reduce it, or justify it and run with `-- update`"
            );
            good &= update;
        } else if change < -TOLERANCE {
            println!(
                "  more than 1 % below the file: run with `-- update` to keep the improvement"
            );
        }
    }
    if update {
        std::fs::write(BASELINE, written).map_err(|error| format!("{BASELINE}: {error}"))?;
    }
    Ok(good)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["run", case, requests] => match (case.parse(), requests.parse()) {
            (Ok(case @ 0..24), Ok(requests)) => {
                run(case, requests);
                ExitCode::SUCCESS
            }
            _ => ExitCode::from(64),
        },
        [] | ["update"] => match compare(!args.is_empty()) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo bench --package weir-benches --bench instructions [-- update]");
            ExitCode::from(64)
        }
    }
}

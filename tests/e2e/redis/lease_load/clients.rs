//! Clients that send as fast as they get answers, and record each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::api::descriptor;

/// Microseconds since the Unix epoch, by the clock that Redis reads too.
pub type Micros = u64;

/// The value of most requests.
pub const HOT: u16 = 0;

/// The values that have the other requests, those with a low number most of them.
const VALUES: u64 = 1_000;

/// The hits of one request in 250; all others have one.
const MANY: u32 = 100;

/// How long the load stays at a replica if it jumps.
const STAY: Micros = 50_000;

/// How long a client waits for an answer, and how long it avoids a replica that gave none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const AVOIDED: Micros = 50_000;

/// Where the load goes.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Each client stays at a replica.
    Steady,
    /// All clients go to the next replica together, again and again.
    Jumping,
}

/// The answer to one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The index of the rule.
    pub rule: u8,
    pub value: u16,
    pub replica: u8,
    pub hits: u32,
    pub sent: Micros,
    pub answered: Micros,
    pub admitted: bool,
}

/// All that a load has sent.
#[derive(Debug)]
pub struct Outcome {
    pub samples: Vec<Sample>,
    pub requests: u64,
    /// Requests without a decision.
    pub failed: u64,
}

/// A load that runs until it is [stopped](Load::stop).
#[derive(Debug)]
pub struct Load {
    runtime: Runtime,
    clients: Vec<JoinHandle<Vec<Sample>>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rules: &'static [&'static str],
    replicas: Mutex<Vec<SocketAddr>>,
    target: Target,
    stopped: AtomicBool,
    requests: AtomicU64,
    failed: AtomicU64,
}

/// The time.
pub fn now() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as Micros
}

/// The text of a value.
pub fn name_of(value: u16) -> String {
    if value == HOT { "hot".into() } else { format!("v{value}") }
}

impl Load {
    /// Sends requests in the domain `load` with a descriptor for each of `rules`, or for one of them.
    pub fn start(
        rules: &'static [&'static str],
        replicas: Vec<SocketAddr>,
        clients: usize,
        target: Target,
    ) -> Load {
        let shared = Arc::new(Shared {
            rules,
            replicas: Mutex::new(replicas),
            target,
            stopped: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let client = |number| runtime.spawn(send(shared.clone(), number));
        let clients = (0..clients).map(client).collect();
        Load { runtime, clients, shared }
    }

    /// Sends what went to a replica to another one that takes its place.
    pub fn replace(&self, replica: usize, by: SocketAddr) {
        self.shared.replicas.lock().unwrap()[replica] = by;
    }

    /// Stops the load and waits for outstanding answers.
    pub fn stop(self) -> Outcome {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for client in self.clients {
            samples.append(&mut self.runtime.block_on(client).expect("the client ran to its end"));
        }
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (requests, failed) = (count(&self.shared.requests), count(&self.shared.failed));
        Outcome { samples, requests, failed }
    }
}

impl Shared {
    /// Chooses where a client sends to.
    fn place(&self, client: usize, now: Micros, avoided: Option<usize>) -> (usize, SocketAddr) {
        let replicas = self.replicas.lock().unwrap();
        let preferred = match self.target {
            Target::Steady => client,
            Target::Jumping => (now / STAY) as usize,
        };
        let preferred = preferred % replicas.len();
        let at = if avoided == Some(preferred) { preferred + 1 } else { preferred };
        let at = at % replicas.len();
        (at, replicas[at])
    }
}

async fn send(shared: Arc<Shared>, number: usize) -> Vec<Sample> {
    let mut random = Random(number as u64);
    let mut clients = HashMap::new();
    let mut samples = Vec::new();
    // The replica that failed last, and until when it is avoided.
    let mut failed = None;
    while !shared.stopped.load(Ordering::Relaxed) {
        let sent = now();
        let avoided = failed.filter(|(_, until)| sent < *until).map(|(replica, _)| replica);
        let (replica, address) = shared.place(number, sent, avoided);
        let client = clients.entry(address).or_insert_with(|| connect(address));
        let (rules, value, hits) = random.request(shared.rules.len());
        let request = RateLimitRequest {
            domain: "load".into(),
            descriptors: rules
                .clone()
                .map(|rule| descriptor(&[(shared.rules[rule], &name_of(value))]))
                .collect(),
            hits_addend: hits,
        };
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let sent = now();
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.should_rate_limit(request)).await;
        let answered = now();
        match answer {
            Ok(Ok(answer)) => {
                let statuses = &answer.get_ref().statuses;
                samples.extend(rules.zip(statuses).map(|(rule, status)| Sample {
                    rule: rule as u8,
                    value,
                    replica: replica as u8,
                    hits,
                    sent,
                    answered,
                    admitted: status.code() == Code::Ok,
                }));
            }
            _ => {
                shared.failed.fetch_add(1, Ordering::Relaxed);
                clients.remove(&address);
                failed = Some((replica, answered + AVOIDED));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
    samples
}

fn connect(to: SocketAddr) -> RateLimitServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).expect("an address");
    RateLimitServiceClient::new(endpoint.connect_timeout(ANSWER_TIMEOUT).connect_lazy())
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Chooses the rules, the value and the hits of a request.
    fn request(&mut self, rules: usize) -> (std::ops::Range<usize>, u16, u32) {
        let one = (self.next() % rules as u64) as usize;
        let rules = if self.next().is_multiple_of(4) { one..one + 1 } else { 0..rules };
        let value = match self.next() % 8 {
            // The number k has one request in k · (k + 1), about.
            0 => (VALUES / (self.next() % VALUES + 1)) as u16,
            _ => HOT,
        };
        let hits = if self.next().is_multiple_of(250) { MANY } else { 1 };
        (rules, value, hits)
    }
}

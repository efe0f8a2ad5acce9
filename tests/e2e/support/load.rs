//! Requests at a steady rate, whatever becomes of those before, and how each was answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::time::{Interval, interval_at, timeout};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::api::channel;

/// Who waits longer than that is taken to wait for ever.
const HANGS: Duration = Duration::from_secs(3);

/// As many connections share the load.
const CONNECTIONS: u32 = 8;

/// A load that goes on until it is [stopped](Load::stop).
#[derive(Debug)]
pub struct Load {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

/// One request and what came of it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which of the requests it was.
    pub which: usize,
    pub sent: Instant,
    pub took: Duration,
    pub got: Got,
}

/// How a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    Ok,
    OverLimit,
    Failed(String),
    /// Not at all.
    Hung,
}

impl Load {
    /// Asks `to` each of `requests` so many times a second, each time all of them at once: what
    /// the machine does to one, it does to the others.
    pub fn start(to: SocketAddr, rate: u32, requests: &[RateLimitRequest]) -> Load {
        Load::begin(to, rate, requests, None)
    }

    /// As [`start`](Self::start), of callers who say in `grpc-timeout` how long they wait.
    pub fn waiting(
        to: SocketAddr,
        rate: u32,
        requests: &[RateLimitRequest],
        timeout: Duration,
    ) -> Load {
        Load::begin(to, rate, requests, Some(timeout))
    }

    fn begin(
        to: SocketAddr,
        rate: u32,
        requests: &[RateLimitRequest],
        timeout: Option<Duration>,
    ) -> Load {
        let stopped = Arc::new(AtomicBool::new(false));
        let samples = Arc::default();
        let all: Arc<[RateLimitRequest]> = requests.into();
        let thread = thread::spawn({
            let (stopped, samples) = (stopped.clone(), Arc::clone(&samples));
            move || run(to, rate, &all, timeout, &stopped, &samples)
        });
        Load { stopped, thread, samples }
    }

    /// What was sent from then on and is answered.
    pub fn since(&self, from: Instant) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap();
        // Whoever was answered so long before was sent before; the rest need not be looked at.
        let recent = samples.iter().rev().take_while(|sample| sample.sent + HANGS >= from);
        recent.filter(|sample| sample.sent >= from).cloned().collect()
    }

    /// Waits for what is still on its way; all that came.
    pub fn stop(self) -> Vec<Sample> {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load ran to its end");
        std::mem::take(&mut self.samples.lock().unwrap())
    }
}

fn run(
    to: SocketAddr,
    rate: u32,
    requests: &Arc<[RateLimitRequest]>,
    timeout: Option<Duration>,
    stopped: &Arc<AtomicBool>,
    samples: &Arc<Mutex<Vec<Sample>>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connections = tokio::task::JoinSet::new();
        let gap = Duration::from_secs(1) / rate;
        for i in 0..CONNECTIONS {
            let client = RateLimitServiceClient::new(channel(to).await);
            // A tick that comes late is made up for: the load is not to shrink where weir is slow.
            let ticks = interval_at((Instant::now() + gap * i).into(), gap * CONNECTIONS);
            let (requests, stopped, samples) = (requests.clone(), stopped.clone(), samples.clone());
            connections.spawn(send(client, ticks, requests, timeout, stopped, samples));
        }
        connections.join_all().await;
    });
}

/// Sends on one connection at every tick, and waits for the last answers.
async fn send(
    client: RateLimitServiceClient<tonic::transport::Channel>,
    mut ticks: Interval,
    requests: Arc<[RateLimitRequest]>,
    waits: Option<Duration>,
    stopped: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
) {
    let mut sent = tokio::task::JoinSet::new();
    while !stopped.load(Ordering::Relaxed) {
        ticks.tick().await;
        for (which, request) in requests.iter().cloned().enumerate() {
            let (mut client, samples) = (client.clone(), samples.clone());
            sent.spawn(async move {
                let sent = Instant::now();
                let mut request = tonic::Request::new(request);
                if let Some(waits) = waits {
                    request.set_timeout(waits);
                }
                let got = match timeout(HANGS, client.should_rate_limit(request)).await {
                    Ok(Ok(answer)) => match answer.get_ref().overall_code() {
                        Code::OverLimit => Got::OverLimit,
                        _ => Got::Ok,
                    },
                    Ok(Err(status)) => Got::Failed(status.to_string()),
                    Err(_) => Got::Hung,
                };
                let took = sent.elapsed();
                samples.lock().unwrap().push(Sample { which, sent, took, got });
            });
        }
        while sent.try_join_next().is_some() {}
    }
    sent.join_all().await;
}

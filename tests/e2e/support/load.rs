//! Requests at a steady rate, independent of earlier answers, and the outcome of each.

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
use super::wait_for;

/// A request without an answer for this long counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(3);

/// The number of connections that share the load.
const CONNECTIONS: u32 = 8;

/// A load that runs until it is [stopped](Load::stop).
#[derive(Debug)]
pub struct Load {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    samples: Arc<Mutex<Vec<Sample>>>,
}

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The index of the request.
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
    /// No answer.
    Hung,
}

impl Load {
    /// Sends each of `requests` to `to`, `rate` times per second, all of them at the same moment: a
    /// pause of the machine affects them alike.
    pub fn start(to: SocketAddr, rate: u32, requests: &[RateLimitRequest]) -> Load {
        Load::begin(to, rate, requests, None)
    }

    /// As [`start`](Self::start), with a `grpc-timeout`.
    pub fn with_timeout(
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

    /// Returns the requests sent since `from` that have an outcome.
    pub fn since(&self, from: Instant) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap();
        // Samples are ordered by outcome, which follows within `HUNG_AFTER`.
        let recent = samples.iter().rev().take_while(|sample| sample.sent + HUNG_AFTER >= from);
        recent.filter(|sample| sample.sent >= from).cloned().collect()
    }

    /// Waits until that many requests that are sent from now on have an outcome.
    pub fn wait_for_outcomes(&self, count: usize) {
        let from = Instant::now();
        wait_for("requests have outcomes", || (self.since(from).len() >= count).then_some(()));
    }

    /// Stops the load and waits for outstanding answers. Returns all requests.
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
            // Late ticks are made up for, so that the load does not fall when weir is slow.
            let ticks = interval_at((Instant::now() + gap * i).into(), gap * CONNECTIONS);
            let (requests, stopped, samples) = (requests.clone(), stopped.clone(), samples.clone());
            connections.spawn(send(client, ticks, requests, timeout, stopped, samples));
        }
        connections.join_all().await;
    });
}

/// Sends on one connection at every tick, then waits for the last answers.
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
                let got = match timeout(HUNG_AFTER, client.should_rate_limit(request)).await {
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

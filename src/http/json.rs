//! `/json`: the API's messages in Protobuf's JSON form.
//!
//! Bodies are received on the listener's thread, within a budget. Decisions are made on a thread of
//! their own, and large bodies are parsed on a third, so that no body delays health or a decision.

mod codec;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::budget::{self, BufferBudget, BufferPermit, FREE_BYTES};
use super::serve::Limits;
use crate::connections::ConnectionHandle;
use crate::limiter::RequestError;
use crate::metrics::{Histogram, MetricFamily, MetricSink, MetricSource};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::service::RateLimit;
use crate::store::Store;
use crate::threads;
use crate::throttle::Throttle;

/// Bytes of messages that wait for the store at a time. In memory each takes a multiple.
const DECIDING_BYTES: usize = 2 << 20;

/// The shortest interval between two log lines about responses that cannot be encoded.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Sends requests to the thread that decides them.
#[derive(Debug)]
pub struct Json {
    jobs: mpsc::UnboundedSender<Job>,
    budget: BufferBudget,
    max_body: usize,
    /// The timeout of receiving a body.
    timeout: Duration,
    stats: Arc<JsonStats>,
}

/// The latencies of requests.
#[derive(Debug)]
pub struct JsonStats {
    durations: Histogram,
}

/// The bounds of latencies, in microseconds.
const LATENCY_BOUNDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 10_000_000,
];

const REQUESTS: MetricFamily =
    MetricFamily::counter("json_requests", "Requests to /json that were answered", &[]);
const DURATION: MetricFamily = MetricFamily::histogram(
    "json_request_duration_seconds",
    "Time from receiving the head of a request to /json to its response",
    &[],
);

impl JsonStats {
    #[expect(clippy::new_without_default, reason = "as for the other statistics")]
    pub fn new() -> JsonStats {
        JsonStats { durations: Histogram::new(LATENCY_BOUNDS, 1e6) }
    }
}

impl MetricSource for JsonStats {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let durations = self.durations.snapshot();
        sink.counter(REQUESTS, durations.count());
        sink.histogram(DURATION, &durations);
    }
}

/// A body to be decided. A connection has at most one in progress.
#[derive(Debug)]
struct Job {
    body: Vec<u8>,
    permit: BufferPermit,
    reply: oneshot::Sender<Response>,
}

impl Json {
    /// Starts the thread, which also runs `background`.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn start<S: Store + 'static>(
        rate_limit: RateLimit<S>,
        limits: &Limits,
        background: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Json> {
        #[expect(clippy::disallowed_methods, reason = "a connection has one job at a time")]
        let (jobs, mut accepted) = mpsc::unbounded_channel();
        let worker = JsonWorker {
            rate_limit,
            deciding: Semaphore::new(DECIDING_BYTES),
            throttle: Throttle::new(LOG_INTERVAL),
        };
        threads::start("weir-json", || async move {
            tokio::spawn(background);
            let worker = Arc::new(worker);
            while let Some(job) = accepted.recv().await {
                tokio::spawn(worker.clone().work(job));
            }
        })?;
        // One body has room, whatever the setting.
        let budget = BufferBudget::new(limits.max_buffered.max(2 * limits.max_body));
        let stats = Arc::new(JsonStats::new());
        Ok(Json { jobs, budget, max_body: limits.max_body, timeout: limits.timeout, stats })
    }
}

impl Json {
    /// The latencies of its requests.
    pub fn stats(&self) -> &Arc<JsonStats> {
        &self.stats
    }
}

/// Answers 200 within the limits, 429 over them and 400 for any error, as the reference does; and
/// 413 for a body that is too large, 408 for one that is too slow, 503 if there is no room for it.
pub(super) async fn answer(
    State(json): State<Arc<Json>>,
    connection: Option<Extension<Arc<ConnectionHandle>>>,
    body: Body,
) -> Response {
    let started = Instant::now();
    let mut permit = json.budget.permit();
    let read = budget::read(body, json.max_body, &mut permit);
    let body = match tokio::time::timeout(json.timeout, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(status)) => return status.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    if let Some(Extension(connection)) = connection {
        // The client is no longer waited for.
        connection.set_busy(true);
    }
    let (reply, answered) = oneshot::channel();
    let _ = json.jobs.send(Job { body, permit, reply });
    let response = answered.await.unwrap_or_else(|_| internal_error());
    json.stats.durations.record(started.elapsed().as_micros() as u64);
    response
}

#[derive(Debug)]
struct JsonWorker<S> {
    rate_limit: RateLimit<S>,
    deciding: Semaphore,
    throttle: Throttle,
}

impl<S: Store> JsonWorker<S> {
    async fn work(self: Arc<Self>, job: Job) {
        let Job { body, permit, reply } = job;
        let (message, reply) = if body.len() <= FREE_BYTES {
            (codec::decode(&body), reply)
        } else {
            // One body at a time; the budget bounds how many wait. Their clients may be gone.
            let parse = move || match reply.is_closed() {
                true => (Err("the client disconnected".to_owned()), reply),
                false => (codec::decode(&body), reply),
            };
            let Ok(parsed) = tokio::task::spawn_blocking(parse).await else { return };
            parsed
        };
        let answer = match message {
            Ok(message) => self.decide(&message, permit).await,
            Err(error) => bad_request(&error),
        };
        // The client may have disconnected.
        let _ = reply.send(answer);
    }

    async fn decide(&self, message: &[u8], permit: BufferPermit) -> Response {
        let size = u32::try_from(message.len().min(DECIDING_BYTES)).unwrap_or(u32::MAX);
        let Ok(_permit) = self.deciding.acquire_many(size).await else { return internal_error() };
        let request = match self.rate_limit.decode(message) {
            Ok(request) => request,
            Err(error) => return bad_request(&error),
        };
        match self.rate_limit.answer(&request, None).await {
            Ok(response) => self.respond(&response, permit),
            // Errors that the reference does not have are explained.
            Err(
                error @ (RequestError::BadDescriptor(..) | RequestError::TooManyDescriptors(..)),
            ) => {
                tracing::debug!(%error, "invalid request to /json");
                plain(StatusCode::BAD_REQUEST, format!("{error}\n"))
            }
            Err(error) => bad_request(&error),
        }
    }

    fn respond(&self, response: &RateLimitResponse, permit: BufferPermit) -> Response {
        let status = match response.overall_code() {
            Code::Ok => StatusCode::OK,
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
            Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
        };
        match codec::encode(response) {
            Ok(body) => send(status, body, permit),
            Err(error) => {
                if let Some(suppressed) = self.throttle.pass() {
                    tracing::error!(%error, suppressed, "cannot encode a response as JSON");
                }
                internal_error()
            }
        }
    }
}

/// Returns a response that holds its permit until it is sent.
fn send(status: StatusCode, body: Vec<u8>, mut permit: BufferPermit) -> Response {
    struct BudgetedBody {
        body: Vec<u8>,
        _permit: BufferPermit,
    }
    impl AsRef<[u8]> for BudgetedBody {
        fn as_ref(&self) -> &[u8] {
            &self.body
        }
    }
    if !permit.grow_to(body.len()) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let body = Bytes::from_owner(BudgetedBody { body, _permit: permit });
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

fn plain(status: StatusCode, text: impl IntoResponse) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

fn bad_request(error: &dyn std::fmt::Display) -> Response {
    tracing::debug!(%error, "invalid request to /json");
    plain(StatusCode::BAD_REQUEST, "Bad Request\n")
}

fn internal_error() -> Response {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n")
}

//! `/json`: the API's messages in Protobuf's JSON form.
//!
//! Bodies are received on the listener's thread, within a budget. All else happens on a thread of
//! its own, large bodies being parsed on another, so that no body delays health or a decision.

mod codec;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

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
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::service::RateLimit;
use crate::store::Store;
use crate::threads;
use crate::throttle::Throttle;

/// Bytes of requests that wait for the store at a time, at most. In memory each takes a multiple.
const DECIDING_BYTES: usize = 2 << 20;

/// What `/json` answers by: the way to the thread that does it.
#[derive(Debug)]
pub struct Json {
    jobs: mpsc::UnboundedSender<Job>,
    budget: BufferBudget,
    max_body: usize,
    /// How long a body may take to arrive.
    timeout: Duration,
}

/// A body and the way back. At most one a connection is under way.
#[derive(Debug)]
struct Job {
    body: Vec<u8>,
    permit: BufferPermit,
    reply: oneshot::Sender<Response>,
}

impl Json {
    /// Starts the thread, which does `begin` first.
    pub fn start<S: Store + 'static>(
        rate_limit: RateLimit<S>,
        limits: &Limits,
        begin: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Json> {
        #[expect(clippy::disallowed_methods, reason = "a connection has one job at a time")]
        let (jobs, mut accepted) = mpsc::unbounded_channel();
        let worker = JsonWorker {
            rate_limit,
            deciding: Semaphore::new(DECIDING_BYTES),
            throttle: Throttle::new(Duration::from_secs(10)),
        };
        threads::start("weir-json", || async move {
            tokio::spawn(begin);
            let worker = Arc::new(worker);
            while let Some(job) = accepted.recv().await {
                tokio::spawn(worker.clone().work(job));
            }
        })?;
        // Whatever the setting, one body has room.
        let budget = BufferBudget::new(limits.max_buffered.max(2 * limits.max_body));
        Ok(Json { jobs, budget, max_body: limits.max_body, timeout: limits.timeout })
    }
}

/// 200 where the request is within its limits, 429 where it is over, 400 for any error, as the
/// reference answers. What the reference has no answer for: 413 for a body that is too large, 408
/// for one that is too slow, and 503 where there is no room for one more.
pub(super) async fn answer(
    State(json): State<Arc<Json>>,
    connection: Option<Extension<Arc<ConnectionHandle>>>,
    body: Body,
) -> Response {
    let mut permit = json.budget.permit();
    let read = budget::read(body, json.max_body, &mut permit);
    let body = match tokio::time::timeout(json.timeout, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(status)) => return status.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    if let Some(Extension(connection)) = connection {
        // From now on it is not the client that is waited for.
        connection.set_busy(true);
    }
    let (reply, answered) = oneshot::channel();
    let _ = json.jobs.send(Job { body, permit, reply });
    answered.await.unwrap_or_else(|_| internal_error())
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
            // One at a time; the budget bounds how many wait. Nobody waits for some any more.
            let parse = move || {
                let gone = || Err("the client is gone".to_owned());
                (if reply.is_closed() { gone() } else { codec::decode(&body) }, reply)
            };
            let Ok(parsed) = tokio::task::spawn_blocking(parse).await else { return };
            parsed
        };
        let answer = match message {
            Ok(message) => self.decide(&message, permit).await,
            Err(error) => bad_request(&error),
        };
        // The client may be gone.
        let _ = reply.send(answer);
    }

    async fn decide(&self, message: &[u8], permit: BufferPermit) -> Response {
        let size = u32::try_from(message.len().min(DECIDING_BYTES)).unwrap_or(u32::MAX);
        let Ok(_permit) = self.deciding.acquire_many(size).await else { return internal_error() };
        let sent = match self.rate_limit.decode(message) {
            Ok(sent) => sent,
            Err(error) => return bad_request(&error),
        };
        match self.rate_limit.answer(&sent, None).await {
            Ok(response) => {
                let status = match response.overall_code() {
                    Code::Ok => StatusCode::OK,
                    Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
                    Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
                };
                match codec::encode(&response) {
                    Ok(body) => send(status, body, permit),
                    Err(error) => {
                        if let Some(suppressed) = self.throttle.pass() {
                            tracing::error!(%error, suppressed, "cannot write a response as JSON");
                        }
                        internal_error()
                    }
                }
            }
            // What the reference never refuses says what is wrong with it.
            Err(
                error @ (RequestError::BadDescriptor(..) | RequestError::TooManyDescriptors(..)),
            ) => {
                tracing::debug!(%error, "bad request to /json");
                plain(StatusCode::BAD_REQUEST, format!("{error}\n"))
            }
            Err(error) => bad_request(&error),
        }
    }
}

/// An answer that holds its permit until it is sent.
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
    tracing::debug!(%error, "bad request to /json");
    plain(StatusCode::BAD_REQUEST, "Bad Request\n")
}

fn internal_error() -> Response {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n")
}

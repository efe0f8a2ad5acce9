//! Serves clients over HTTP: `/json` (Envoy's ShouldRateLimit) and `/v1/budget` (reserve hits ahead, then settle their
//! real number or cancel them), with Protobuf messages as JSON; also probes and `/metrics`.
//!
//! Bodies are received on the listener's thread, within the memory for them. Decisions are made on a thread of
//! their own, and large bodies are parsed on a third, so that no body delays a probe or a decision.

mod failure;
mod method;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::failure::Failure;
pub use self::failure::JsonErrors;
pub use self::method::JsonStats;
use self::method::Method;
use super::metrics::{self, MetricsPages};
use super::probes::{HEALTHCHECK, healthcheck, probes};
use crate::health::Health;
use crate::http::buffer_memory::{self, BufferMemory, BufferPermit, FREE_BYTES};
use crate::http::operators::Access;
use crate::http::{Limits, Peer};
use crate::net::ConnectionHandle;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use crate::proto::weir::budget::v1 as pb;
use crate::rls::service::{
    BudgetCall, BudgetRequest, BudgetResponse, Descriptors, HoldGuard, RateLimit, RequestView,
    encode_message,
};
use crate::trace::{RequestTrace, Sampler};
use pb::reserve_response::Code as ReserveCode;
use weir_api::json;
use weir_common::threads;
use weir_common::throttle::Throttle;
use weir_limiter::Holds;
use weir_store::Store;

/// Bytes of messages that wait for the store at a time. In memory each takes a multiple.
const DECIDING_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub struct JsonOptions {
    pub limits: Limits,
    /// How requests to `/json` without a decision are answered.
    pub errors: JsonErrors,
    pub sampler: Sampler,
    /// Whose write token may settle and cancel.
    pub access: Arc<Access>,
}

/// Sends requests to the thread that decides them.
#[derive(Debug)]
pub struct Json {
    options: JsonOptions,
    jobs: mpsc::UnboundedSender<Job>,
    memory: BufferMemory,
    pub stats: Arc<JsonStats>,
}

/// Returns the router for `/json`, `/v1/budget`, probes and, if it is given, `/metrics`.
pub fn router(json: Json, health: Arc<Health>, metrics: Option<Arc<MetricsPages>>) -> Router {
    let json = Arc::new(json);
    let budget = Method::BUDGET.into_iter().fold(Router::new(), |router, method| {
        router.route(method.path(), post(answer).with_state((json.clone(), method)))
    });
    let decide = Method::ShouldRateLimit;
    let router = budget
        .route(decide.path(), any(answer).with_state((json, decide)))
        .route(HEALTHCHECK, any(healthcheck).with_state(health.clone()))
        .merge(probes(health));
    match metrics {
        Some(metrics) => router.route("/metrics", get(metrics::answer).with_state(metrics)),
        None => router,
    }
}

/// A body to be decided. A connection has at most one in progress.
#[derive(Debug)]
struct Job {
    caller: RequestHead,
    body: Vec<u8>,
    permit: BufferPermit,
    reply: oneshot::Sender<(Response, HoldGuard)>,
}

/// What is known of a request before its body.
#[derive(Debug)]
struct RequestHead {
    method: Method,
    /// Whether the caller has the token with which it may settle and cancel.
    may_settle: bool,
    errors: JsonErrors,
    trace: RequestTrace,
    client: Option<SocketAddr>,
}

impl Json {
    /// Starts the thread, which also runs `background`.
    pub fn start<S: Store>(
        rate_limit: RateLimit<S>,
        options: JsonOptions,
        background: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Json> {
        #[expect(clippy::disallowed_methods, reason = "a connection has one job at a time")]
        let (jobs, mut accepted) = mpsc::unbounded_channel();
        let worker = JsonWorker {
            rate_limit,
            deciding: Semaphore::new(DECIDING_BYTES),
            throttle: Throttle::default(),
        };
        threads::start("weir-json", || async move {
            tokio::spawn(background);
            let worker = Arc::new(worker);
            while let Some(job) = accepted.recv().await {
                tokio::spawn(worker.clone().work(job));
            }
        })?;
        // One body has room, whatever the setting.
        let Limits { max_body, max_buffered, .. } = options.limits;
        let memory = BufferMemory::new(max_buffered.max(2 * max_body));
        Ok(Json { options, jobs, memory, stats: Arc::default() })
    }
}

/// Answers 200 within the limits, 429 over them and, unless failures are to be detailed, 400 for any
/// error, as the reference does; and 413 for a body that is too large, 408 for one that is too slow,
/// 503 if there is no room for it.
///
/// Failures to reserve, settle and cancel are always detailed.
async fn answer(State((json, method)): State<(Arc<Json>, Method)>, request: Request) -> Response {
    let started = Instant::now();
    let (head, body) = request.into_parts();
    let ends = head.extensions.get::<Peer>().map(|peer| peer.ends()).unwrap_or_default();
    let trace = json.options.sampler.start_json(method.path(), &head.headers, &ends);
    let ids = trace.ids();
    let (may_settle, errors) = match method {
        Method::ShouldRateLimit => (false, json.options.errors),
        _ => (json.options.access.has_write_token(&head.headers), JsonErrors::Detailed),
    };
    let caller = RequestHead { method, may_settle, errors, trace, client: ends.client };
    let response = receive(&json, head.extensions.get(), caller, body).await;
    json.stats.record(method, started.elapsed(), ids);
    response
}

/// Receives the body, and has the thread decide it.
async fn receive(
    json: &Json,
    connection: Option<&Arc<ConnectionHandle>>,
    mut caller: RequestHead,
    body: Body,
) -> Response {
    let errors = caller.errors;
    let Limits { max_body, timeout, .. } = json.options.limits;
    let mut permit = json.memory.permit();
    let body = match buffer_memory::read(body, max_body, timeout, &mut permit).await {
        Ok(body) => body,
        Err(status) => {
            caller.trace.end_http(status.as_u16());
            return Failure::Body(status).respond(errors);
        }
    };
    if let Some(connection) = connection {
        // The client is no longer waited for.
        connection.set_busy(true);
    }
    let (reply, answered) = oneshot::channel();
    let _ = json.jobs.send(Job { caller, body, permit, reply });
    let Ok((response, guard)) = answered.await else { return Failure::Internal.respond(errors) };
    guard.keep();
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
        let Job { mut caller, body, permit, reply } = job;
        let name = caller.method.request();
        let (message, reply) = if body.len() <= FREE_BYTES {
            (json::decode_message(name, &body), reply)
        } else {
            // One body at a time; their memory bounds how many wait. Their clients may be gone.
            let parse = move || match reply.is_closed() {
                true => (Err("the client disconnected".to_owned()), reply),
                false => (json::decode_message(name, &body), reply),
            };
            let Ok(parsed) = threads::run_blocking(parse).await else { return };
            parsed
        };
        let mut holds = Holds::default();
        let answer = match message {
            Ok(message) => {
                let mut deciding = pin!(self.decide(&caller, &message, permit, &mut holds));
                poll_fn(|context| {
                    let _entered = caller.trace.enter();
                    deciding.as_mut().poll(context)
                })
                .await
            }
            Err(error) => Err(Failure::Invalid(error)),
        };
        let answer = answer.unwrap_or_else(|failure| {
            let _entered = caller.trace.enter();
            failure.log(caller.method.path());
            if let Failure::Invalid(error) = &failure {
                self.rate_limit.count_unreadable(caller.client, error);
            }
            failure.respond(caller.errors)
        });
        caller.trace.end_http(answer.status().as_u16());
        // The client may have disconnected: then the guard releases what it holds.
        let _ = reply.send((answer, HoldGuard::new(&self.rate_limit, holds)));
    }

    async fn decide(
        &self,
        caller: &RequestHead,
        message: &[u8],
        permit: BufferPermit,
        holds: &mut Holds,
    ) -> Result<Response, Failure> {
        let size = u32::try_from(message.len().min(DECIDING_BYTES)).unwrap_or(u32::MAX);
        let _permit = self.deciding.acquire_many(size).await.map_err(|_| Failure::Internal)?;
        let (status, body) = match caller.method {
            Method::ShouldRateLimit => self.should_rate_limit(caller, message).await?,
            Method::Reserve => {
                let response = self.budget::<pb::ReserveRequest>(caller, message, holds).await?;
                (status(response.code() == ReserveCode::OverLimit), whole(&response))
            }
            Method::Settle => {
                let response = self.budget::<pb::SettleRequest>(caller, message, holds).await?;
                (StatusCode::OK, whole(&response))
            }
            Method::Cancel => {
                let response = self.budget::<pb::CancelRequest>(caller, message, holds).await?;
                (StatusCode::OK, whole(&response))
            }
        };
        let body = body.map_err(|error| {
            if let Some(suppressed) = self.throttle.pass() {
                tracing::error!(%error, suppressed, "cannot encode a response as JSON");
            }
            Failure::Internal
        })?;
        let body = buffer_memory::response(body, permit);
        let body = body.ok_or(Failure::Body(StatusCode::SERVICE_UNAVAILABLE))?;
        Ok((status, [(CONTENT_TYPE, "application/json")], body).into_response())
    }

    async fn should_rate_limit(
        &self,
        caller: &RequestHead,
        message: &[u8],
    ) -> Result<(StatusCode, Result<Vec<u8>, String>), Failure> {
        let (mut texts, mut view) = (Vec::new(), RequestView::default());
        let mut descriptors = Descriptors::new();
        let decoded = self.rate_limit.decode(message, &mut view, &mut texts, &mut descriptors);
        let decoded = decoded.map_err(|error| Failure::Invalid(error.to_string()))?;
        let span = caller.trace.span();
        let mut request = weir_limiter::Request { span, ..decoded.request };
        let mut holds = Holds::default();
        let decided = self.rate_limit.decide(&mut request, None, &mut holds, encode_message).await;
        let response = decided.map_err(Failure::Request)?;
        let status = status(response.overall_code() == Code::OverLimit);
        Ok((status, json::encode(&response)))
    }

    async fn budget<R: BudgetRequest>(
        &self,
        caller: &RequestHead,
        message: &[u8],
        holds: &mut Holds,
    ) -> Result<R::Response, Failure> {
        let request = R::decode(message).map_err(|error| Failure::Invalid(error.to_string()))?;
        let RequestHead { may_settle, ref trace, .. } = *caller;
        let call = BudgetCall { timeout: None, may_settle, span: trace.span().cloned() };
        self.rate_limit.budget(&request, &call, holds).await.map_err(Failure::Request)
    }
}

fn status(over_limit: bool) -> StatusCode {
    if over_limit { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK }
}

fn whole<R: BudgetResponse>(response: &R) -> Result<Vec<u8>, String> {
    json::encode_whole(R::NAME, response)
}

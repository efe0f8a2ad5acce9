//! `/v1` of the debug port: what operators see and change at run time. `docs/reference/openapi.json` describes it.
//!
//! Every answer is JSON, except rule files, and every error is `{"error":"…","help":"…"}`.

mod controls;
mod history;
mod names;
mod rules;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod top;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;

use self::status::LastStatus;
use super::Sources;
use super::access::{Access, is_write};
use super::debug::JSON;
use super::error::ApiError;
use super::history::History;
use super::query::Query;
use crate::http::budget::{self, BufferBudget};
use crate::http::page::Page;
use weir_common::threads::run_for_client;
use weir_controls::Snapshot;
use weir_rules::truncated;
use weir_store::{Operations, States};

const OPENAPI: &str = include_str!("../../../docs/reference/openapi.json");

/// Memory for large request bodies and answers across all clients.
const MAX_BUFFERED_BYTES: usize = 32 << 20;

pub(super) struct Api<S> {
    sources: Arc<Sources<S>>,
    last_status: LastStatus,
    history: Arc<History>,
    controls_page: Arc<Page>,
    rules_page: Arc<Page>,
    yaml_page: Arc<Page>,
    buffers: BufferBudget,
    /// The timeout of receiving a body.
    timeout: Duration,
}

pub(super) type Answer = Result<Response, ApiError>;

/// Returns the router of `/v1`, with paths below that.
pub fn v1<S: States + Operations + 'static>(
    sources: Arc<Sources<S>>,
    access: Arc<Access>,
    history: Arc<History>,
    timeout: Duration,
) -> Router {
    let Sources { limiter, rules, controls, .. } = &*sources;
    let api = Arc::new(Api {
        controls_page: controls::page(controls.clone()),
        rules_page: rules::page(rules.clone(), limiter.denials().redaction().clone()),
        yaml_page: super::debug::rules_yaml(rules.clone()),
        buffers: BufferBudget::new(MAX_BUFFERED_BYTES),
        last_status: LastStatus::default(),
        sources,
        history,
        timeout,
    });
    Router::new()
        .route("/audit", get(controls::list_audit::<S>))
        .route("/controls", get(controls::list::<S>).post(controls::write::<S>))
        .route(
            "/controls/{id}",
            get(controls::show::<S>).put(controls::write::<S>).delete(controls::delete::<S>),
        )
        .route("/count", get(state::count::<S>))
        .route("/explain", get(state::explain::<S>))
        .route("/history", get(history::show::<S>))
        .route("/openapi.json", get(openapi))
        .route("/rules", get(rules::list::<S>))
        .route("/status", get(status::show::<S>))
        .route("/state", get(state::show::<S>).delete(state::reset::<S>))
        .route("/top", get(top::list::<S>))
        .with_state(api)
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        // Around all of the above: what is added below it would be open to everyone.
        .layer(from_fn_with_state(access, guard))
}

impl<S> Api<S> {
    fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.sources.rules.load().clone().ok_or_else(|| {
            let help = "wait until rules are loaded; /status shows their errors";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no rules are loaded", help)
        })
    }

    /// Returns a value as the answer; a small one, because this thread serves other requests, too.
    fn answer(&self, value: &impl Serialize) -> Answer {
        self.answer_text(JSON, json(value)?)
    }

    pub fn answer_text(&self, content_type: &'static str, body: Vec<u8>) -> Answer {
        let body = budget::response(body, self.buffers.permit()).ok_or_else(|| {
            let error = "there are too many large answers that are not read";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error, "try again, or ask for less")
        })?;
        Ok(([(CONTENT_TYPE, content_type)], body).into_response())
    }
}

/// Returns as JSON what `make` returns. Both happen in the background: thousands of keys, rules or changes
/// take longer than other requests of this thread may wait.
async fn to_json<T: Serialize>(
    make: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<Vec<u8>, ApiError> {
    let json = run_for_client(move || make().and_then(|value| json(&value)));
    json.await.unwrap_or_else(|_| Err(ApiError::internal()))
}

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, ApiError> {
    let mut json = serde_json::to_vec(value).map_err(|_| ApiError::internal())?;
    json.push(b'\n');
    Ok(json)
}

/// Answers requests that may be answered, with their [`Caller`](super::access::Caller) for handlers.
async fn guard(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let checked = access.check(&request);
    let is_typed = !is_write(request.method()) || is_json(request.headers());
    let mut response = match checked {
        Ok(_) if !is_typed => {
            // Forms of other pages cannot send it.
            let help = "send the header `Content-Type: application/json`, also without a body";
            let error = "a write needs a content type";
            ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, help).into_response()
        }
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case(JSON))
}

async fn openapi(uri: Uri) -> Answer {
    Query::read(&uri, &[])?;
    Ok(([(CONTENT_TYPE, JSON)], Bytes::from_static(OPENAPI.as_bytes())).into_response())
}

async fn unknown_path(uri: Uri) -> ApiError {
    let error = format!("there is no /v1{}", truncated(uri.path(), 100));
    ApiError::new(StatusCode::NOT_FOUND, error, "GET /v1/openapi.json lists all paths")
}

async fn wrong_method(method: Method) -> ApiError {
    let error = format!("this path has no method {}", truncated(method.as_str(), 20));
    let help = "use one of those in the header `Allow`";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error, help)
}

/// Does a write to its end, also if the client disconnects before that.
async fn finish(write: impl Future<Output = Answer> + Send + 'static) -> Answer {
    tokio::spawn(write).await.unwrap_or_else(|_| Err(ApiError::internal()))
}

//! What all paths of `/v1` share: the check of the caller, the data that they read, and their answers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::http::buffer_memory::{self, BufferMemory};
use crate::http::operators::access::{Access, is_write};
use crate::http::operators::debug::JSON;
use crate::http::operators::error::ApiError;
use crate::http::operators::history::History;
use crate::http::operators::sources::Sources;
use crate::http::page::Page;
use weir_common::threads::run_for_client;
use weir_controls::Snapshot;

pub(super) struct Api<S> {
    pub sources: Arc<Sources<S>>,
    pub history: Arc<History>,
    pub controls_page: Arc<Page>,
    pub rules_page: Arc<Page>,
    pub yaml_page: Arc<Page>,
    pub buffers: BufferMemory,
    /// The timeout of receiving a body.
    pub timeout: Duration,
}

pub(super) type Answer = Result<Response, ApiError>;

impl<S> Api<S> {
    pub fn snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.sources.rules.load().clone().ok_or_else(|| {
            let help = "wait until rules are loaded; /status shows their errors";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no rules are loaded", help)
        })
    }

    /// Returns a value as the answer; a small one, because this thread serves other requests, too.
    pub fn answer(&self, value: &impl Serialize) -> Answer {
        self.answer_text(JSON, json(value)?)
    }

    pub fn answer_text(&self, content_type: &'static str, body: Vec<u8>) -> Answer {
        let body = buffer_memory::response(body, self.buffers.permit()).ok_or_else(|| {
            let error = "there are too many large answers that are not read";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error, "try again, or ask for less")
        })?;
        Ok(([(CONTENT_TYPE, content_type)], body).into_response())
    }
}

/// Returns as JSON what `make` returns. Both happen in the background: thousands of keys, rules or changes
/// take longer than other requests of this thread may wait.
pub(super) async fn to_json<T: Serialize>(
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

/// Answers requests that may be answered, with their [`Caller`](crate::http::operators::access::Caller) for handlers.
pub(super) async fn guard(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
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

/// Does a write to its end, also if the client disconnects before that.
pub(super) async fn finish(write: impl Future<Output = Answer> + Send + 'static) -> Answer {
    tokio::spawn(write).await.unwrap_or_else(|_| Err(ApiError::internal()))
}

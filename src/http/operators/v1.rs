//! `/v1` of the debug port: the JSON API for operators, which `docs/reference/openapi.json` describes.
//!
//! Every answer is JSON, except rule files, and every error is `{"error":"…","help":"…"}`.

mod api;
mod controls;
mod history;
mod quotas;
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
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;

use self::api::{Answer, Api, guard};
use self::status::LastStatus;
use super::access::Access;
use super::debug::{JSON, YAML, rules_page};
use super::error::ApiError;
use super::history::History;
use super::query::Query;
use super::sources::Sources;
use crate::http::buffer_memory::BufferMemory;
use weir_common::truncate::truncated;
use weir_rules::YAML_HEADER;
use weir_store::{Operations, States};

const OPENAPI: &str = include_str!("../../../docs/reference/openapi.json");

/// Memory for large request bodies and answers across all clients.
const MAX_BUFFERED_BYTES: usize = 32 << 20;

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
        yaml_page: rules_page(rules.clone(), YAML, |rules| rules.to_yaml(), YAML_HEADER),
        buffers: BufferMemory::new(MAX_BUFFERED_BYTES),
        sources,
        history,
        timeout,
    });
    let status = (api.clone(), Arc::<LastStatus>::default());
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
        .route("/quotas", get(quotas::list::<S>))
        .route("/rules", get(rules::list::<S>))
        .route("/status", get(status::show::<S>).with_state(status))
        .route("/state", get(state::show::<S>).delete(state::reset::<S>))
        .route("/top", get(top::list::<S>))
        .with_state(api)
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        // Around all of the above: what is added below it would be open to everyone.
        .layer(from_fn_with_state(access, guard))
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

//! HTTP: `/json`, health, metrics, the debug pages, and `/v1` for operators.

mod access;
mod budget;
mod debug;
pub mod error;
mod events;
mod index;
mod json;
mod metrics;
mod page;
pub mod query;
mod serve;
pub mod v1;
mod write_timeout;

pub use access::{Access, AccessOptions};
pub use debug::{DebugPages, debug};
pub use events::{Ends as EventEnds, EventSources, MAX_SUBSCRIBERS, events};
pub use json::{Json, JsonErrors, JsonStats};
pub(crate) use json::{decode_json, encode_json};
pub use metrics::{MetricsPages, metrics};
pub use serve::{Limits, MAX_OVERFLOW_CONNECTIONS, serve};
pub use v1::{V1, v1};

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};

use crate::health::Health;

/// Whether the service is ready, as the reference reports it.
const HEALTHCHECK: &str = "/healthcheck";
/// Whether the process serves at all.
const LIVEZ: &str = "/livez";
/// Whether the service is ready; if not, why.
const READYZ: &str = "/readyz";

/// The only paths that are served to connections beyond the limit.
const PROBES: [&str; 3] = [HEALTHCHECK, LIVEZ, READYZ];

/// Returns the router for `/json`, probes and `/metrics`.
pub fn main(json: Json, health: Arc<Health>, metrics: Arc<MetricsPages>) -> Router {
    Router::new()
        .route("/json", any(json::answer).with_state(Arc::new(json)))
        .route(HEALTHCHECK, any(healthcheck).with_state(health.clone()))
        .merge(probes(health))
        .route("/metrics", get(metrics::answer).with_state(metrics))
}

/// Returns the router for the probes that are not the reference's.
fn probes(health: Arc<Health>) -> Router {
    Router::new().route(LIVEZ, any(async || "ok\n")).route(READYZ, any(readyz).with_state(health))
}

async fn healthcheck(State(health): State<Arc<Health>>) -> Response {
    match health.is_serving() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Lists what keeps the service from being ready, one reason a line.
async fn readyz(State(health): State<Arc<Health>>) -> Response {
    let reasons = health.reasons();
    if reasons.is_empty() {
        return "ok\n".into_response();
    }
    let lines: String = reasons.iter().map(|reason| format!("{reason}\n")).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

//! The probes: `/livez`, whether the process serves; `/readyz`, and `/healthcheck` as in envoyproxy/ratelimit (the
//! reference), whether it is ready.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use crate::health::Health;

/// Whether the service is ready, as the reference reports it.
pub(super) const HEALTHCHECK: &str = "/healthcheck";
/// Whether the process serves at all.
const LIVEZ: &str = "/livez";
/// Whether the service is ready; if not, why.
const READYZ: &str = "/readyz";

/// The only paths that are served to connections beyond `max_connections`.
pub(super) const PROBES: [&str; 3] = [HEALTHCHECK, LIVEZ, READYZ];

/// Returns the router for the probes that are not the reference's.
pub(super) fn probes(health: Arc<Health>) -> Router {
    Router::new().route(LIVEZ, any(async || "ok\n")).route(READYZ, any(readyz).with_state(health))
}

pub(super) async fn healthcheck(State(health): State<Arc<Health>>) -> Response {
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
    let lines: String = reasons.iter().map(|reason| format!("{}\n", reason.text())).collect();
    (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
}

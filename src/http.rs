//! HTTP: `/json`, health, metrics, and the debug pages.

mod budget;
mod json;
mod metrics;
mod page;
mod serve;
mod write_timeout;

pub use json::Json;
pub use metrics::{MetricsPages, metrics};
pub use serve::{Limits, MAX_OVERFLOW_CONNECTIONS, serve};

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};

use self::page::Page;
use crate::health::Health;
use crate::loader::Loader;
use crate::service::Rules;

/// The only path that is served to connections beyond the limit.
const HEALTH: &str = "/healthcheck";

/// Returns the router for `/json`, `/healthcheck` and `/metrics`.
pub fn main(json: Json, health: Arc<Health>, metrics: Arc<MetricsPages>) -> Router {
    Router::new()
        .route("/json", any(json::answer).with_state(Arc::new(json)))
        .route(HEALTH, any(healthcheck).with_state(health))
        .route("/metrics", get(metrics::answer).with_state(metrics))
}

/// Returns the debug router for `/rlconfig`, `/status` and `/metrics`; any other path lists them.
pub fn debug(rules: Rules, loader: Arc<Loader>, metrics: Arc<MetricsPages>) -> Router {
    let rlconfig = Page::new("text/plain; charset=utf-8", move || {
        rules.load_full().map(|rules| rules.dump()).unwrap_or_default()
    });
    let status = Page::new("application/json", move || format!("{:#}\n", loader.status()));
    Router::new()
        .route("/rlconfig", get(page::answer).with_state(rlconfig))
        .route("/status", get(page::answer).with_state(status))
        .route("/metrics", get(metrics::answer).with_state(metrics))
        .fallback(get(|| async {
            "/metrics: metrics, for Prometheus\n\
             /rlconfig: print out the currently loaded configuration for debugging\n\
             /status: the active rules, and the errors of rules that were not applied\n"
        }))
}

async fn healthcheck(State(health): State<Arc<Health>>) -> Response {
    match health.is_serving() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

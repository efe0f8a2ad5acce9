//! HTTP: the API as JSON, health, metrics, and what is loaded.

mod json;
mod patient;
mod serve;

pub use serve::{Limits, serve};

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};

use crate::health::Health;
use crate::loader::Loader;
use crate::service::{RateLimit, Rules};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;

/// `/json`, `/healthcheck` and `/metrics`. A body over `max_body` bytes is refused, and one that
/// takes longer than `timeout` to arrive.
pub fn main<S: Store + 'static>(
    rate_limit: RateLimit<S>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    max_body: usize,
    timeout: Duration,
) -> Router {
    let json = json::Json { rate_limit, max_body, timeout };
    Router::new()
        .route("/json", any(json::answer::<S>).with_state(Arc::new(json)))
        .route("/healthcheck", any(healthcheck).with_state(health))
        .route("/metrics", get(scrape).with_state(metrics))
}

/// `/rlconfig`, `/status` and `/metrics`; every other path lists them.
pub fn debug(rules: Rules, loader: Arc<Loader>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/rlconfig", get(rlconfig).with_state(rules))
        .route("/status", get(status).with_state(loader))
        .route("/metrics", get(scrape).with_state(metrics))
        .fallback(get(|| async {
            "/metrics: counts, for Prometheus\n\
             /rlconfig: print out the currently loaded configuration for debugging\n\
             /status: what rules are in force, and what is wrong with those that are not\n"
        }))
}

async fn healthcheck(State(health): State<Arc<Health>>) -> Response {
    match health.is_serving() {
        true => "OK".into_response(),
        false => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.encode()).into_response()
}

async fn status(State(loader): State<Arc<Loader>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, format!("{:#}\n", loader.status())).into_response()
}

async fn rlconfig(State(rules): State<Rules>) -> String {
    rules.load().as_ref().map(|rules| rules.dump()).unwrap_or_default()
}

//! What clients use: `/json` and `/v1/budget`, beside probes and `/metrics`.

mod json;

pub use self::json::{Json, JsonErrors, JsonStats};

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

use self::json::Method;
use super::metrics::{self, MetricsPages};
use super::probes::{HEALTHCHECK, healthcheck, probes};
use crate::health::Health;

/// Returns the router for `/json`, `/v1/budget`, probes and, if it is given, `/metrics`.
pub fn router(json: Json, health: Arc<Health>, metrics: Option<Arc<MetricsPages>>) -> Router {
    let json = Arc::new(json);
    let budget = Method::BUDGET.into_iter().fold(Router::new(), |router, method| {
        router.route(method.path(), post(json::answer).with_state((json.clone(), method)))
    });
    let decide = Method::ShouldRateLimit;
    let router = budget
        .route(decide.path(), any(json::answer).with_state((json, decide)))
        .route(HEALTHCHECK, any(healthcheck).with_state(health.clone()))
        .merge(probes(health));
    match metrics {
        Some(metrics) => router.route("/metrics", get(metrics::answer).with_state(metrics)),
        None => router,
    }
}

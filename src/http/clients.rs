//! What clients use: `/json`, beside probes and `/metrics`.

mod json;

pub use self::json::{Json, JsonErrors, JsonStats};
pub(crate) use self::json::{decode_json, encode_json};

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get};

use super::metrics::{self, MetricsPages};
use super::probes::{HEALTHCHECK, healthcheck, probes};
use crate::health::Health;

/// Returns the router for `/json`, probes and, if it is given, `/metrics`.
pub fn router(json: Json, health: Arc<Health>, metrics: Option<Arc<MetricsPages>>) -> Router {
    let router = Router::new()
        .route("/json", any(json::answer).with_state(Arc::new(json)))
        .route(HEALTHCHECK, any(healthcheck).with_state(health.clone()))
        .merge(probes(health));
    match metrics {
        Some(metrics) => router.route("/metrics", get(metrics::answer).with_state(metrics)),
        None => router,
    }
}

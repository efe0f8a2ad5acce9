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

/// Returns the router for `/json`, probes and `/metrics`.
pub fn router(json: Json, health: Arc<Health>, metrics: Arc<MetricsPages>) -> Router {
    Router::new()
        .route("/json", any(json::answer).with_state(Arc::new(json)))
        .route(HEALTHCHECK, any(healthcheck).with_state(health.clone()))
        .merge(probes(health))
        .route("/metrics", get(metrics::answer).with_state(metrics))
}

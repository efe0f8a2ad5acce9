//! The page of metrics that Prometheus scrapes, in the format that the client prefers.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, HeaderMap, HeaderValue, VARY};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::page::{self, Page};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::prometheus::{PrometheusWriter, TextFormat, preferred_format};

/// The metrics as pages, which all listeners share: each is rendered once for concurrent clients.
pub struct MetricsPages {
    prometheus: Arc<Page>,
    open_metrics: Arc<Page>,
}

impl MetricsPages {
    pub fn new(metrics: Arc<Metrics>) -> Arc<MetricsPages> {
        let page = |format: TextFormat| {
            let metrics = metrics.clone();
            Page::new(format.content_type(), move || render(&metrics, format))
        };
        Arc::new(MetricsPages {
            prometheus: page(TextFormat::Prometheus),
            open_metrics: page(TextFormat::OpenMetrics),
        })
    }
}

/// Renders all metrics.
fn render(metrics: &Metrics, format: TextFormat) -> String {
    let mut writer = PrometheusWriter::new(format);
    metrics.collect(&mut writer);
    writer.finish()
}

/// Returns a router that serves the page at `path`, and nothing else.
pub fn metrics(pages: Arc<MetricsPages>, path: String) -> Router {
    // Not a route, whose syntax the path would have to follow.
    Router::new().fallback(get(move |uri: Uri, headers: HeaderMap| async move {
        match uri.path().trim_start_matches('/') == path.trim_start_matches('/') {
            true => answer(State(pages), headers).await,
            false => StatusCode::NOT_FOUND.into_response(),
        }
    }))
}

/// Serves the page.
pub(super) async fn answer(State(pages): State<Arc<MetricsPages>>, headers: HeaderMap) -> Response {
    // Several headers of one name mean the same as one with commas between them.
    let accept: Vec<&str> =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let page = match preferred_format(&accept.join(",")) {
        TextFormat::Prometheus => &pages.prometheus,
        TextFormat::OpenMetrics => &pages.open_metrics,
    };
    let mut response = page::answer(State(page.clone())).await;
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

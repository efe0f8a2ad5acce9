//! The page of metrics that Prometheus scrapes, in the format that the client prefers.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, HeaderMap, HeaderValue, VARY};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::page::{self, Page};
use weir_telemetry::metrics::Metrics;
use weir_telemetry::prometheus::{PrometheusWriter, TextFormat, accepts_text, preferred_format};
use weir_telemetry::reference::page::ReferencePage;

/// The metrics as pages, which all listeners share: each is rendered once for concurrent clients.
pub struct MetricsPages {
    prometheus: Arc<Page>,
    open_metrics: Arc<Page>,
    /// Whether `prometheus` has more metrics, so that clients get it if they accept it at all.
    prefers_prometheus: bool,
}

impl MetricsPages {
    /// Pages with all metrics, and if `reference` is given with the statistics of envoyproxy/ratelimit, by its names.
    pub fn new(metrics: Arc<Metrics>, reference: Option<Arc<ReferencePage>>) -> Arc<MetricsPages> {
        let prefers_prometheus = reference.is_some();
        let page = |format: TextFormat, reference: Option<Arc<ReferencePage>>| {
            let metrics = metrics.clone();
            let render = move || render(&metrics, reference.as_deref(), format);
            Page::new(format.content_type(), render)
        };
        Arc::new(MetricsPages {
            prometheus: page(TextFormat::Prometheus, reference),
            // Its counters end in `_total`, which the reference's do not.
            open_metrics: page(TextFormat::OpenMetrics, None),
            prefers_prometheus,
        })
    }

    fn choose(&self, accept: &str) -> &Arc<Page> {
        match preferred_format(accept) {
            TextFormat::OpenMetrics if !(self.prefers_prometheus && accepts_text(accept)) => {
                &self.open_metrics
            }
            _ => &self.prometheus,
        }
    }
}

fn render(metrics: &Metrics, reference: Option<&ReferencePage>, format: TextFormat) -> String {
    let mut writer = PrometheusWriter::new(format);
    metrics.collect(&mut writer);
    if let Some(reference) = reference {
        reference.write(|sink| metrics.collect(sink), &mut writer);
        // The reference's process has it, and dashboards show it.
        let help =
            "Share of CPU time for garbage collection; always 0, as weir has no garbage collector";
        writer.named_family("go_memstats_gc_cpu_fraction", help, "gauge");
        writer.line("", &[], 0.0);
    }
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

pub(super) async fn answer(State(pages): State<Arc<MetricsPages>>, headers: HeaderMap) -> Response {
    // Several headers of one name mean the same as one with commas between them.
    let accept: Vec<&str> =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let page = pages.choose(&accept.join(","));
    let mut response = page::answer(State(page.clone())).await;
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

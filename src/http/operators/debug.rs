//! The router of the debug port: status, rules, log level, runbooks, metrics and probes; `/v1` and the web page.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::access::{Access, OperatorChange};
use super::index;
use super::problems::{Problem, problems};
use super::query::parameters;
use super::sources::Sources;
use super::store_state::StoreState;
use crate::http::metrics::{self, MetricsPages};
use crate::http::page::{self, Page};
use crate::http::probes::probes;
use crate::rls::service::Rules;
use crate::{COMMIT, VERSION};
use weir_rules::RuleSet;
use weir_store::{Operations, Store};
use weir_telemetry::log::{ActiveLevels, LogLevels};

const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";

/// The answer of `/rules` while no rules are loaded.
pub(super) const NO_RULES: &str = "{\"rules\":[]}\n";

/// The pages with a line of help for each, sorted. That of `/rlconfig` is the one of envoyproxy/ratelimit.
const INDEX: &str = "\
/livez: ok, whatever the state of rules and store
/log_level: the levels that are logged; PUT /log_level?level=info,h2=debug changes them
/metrics: metrics, for Prometheus
/readyz: whether the service is ready; if not, why
/rlconfig: print out the currently loaded configuration for debugging
/rules: the active rules as JSON, with all limits and the place of each in its file
/runbooks: what to do about alerts and problems; /runbooks/NAME about one
/status: version, rules, store, controls, certificates and health, as JSON
/v1/openapi.json: the API to see and change what is limited: state, counts, top keys, controls
";

/// What `/runbooks` shows, in Markdown.
const RUNBOOKS: &str = include_str!("../../../docs/operations.md");

pub struct DebugPages<S> {
    pub sources: Arc<Sources<S>>,
    pub metrics: Arc<MetricsPages>,
    /// The levels of the log; none if the log of the process is not weir's.
    pub log_levels: Option<ActiveLevels>,
    pub access: Arc<Access>,
}

/// Returns the router of the debug port. Any unknown path lists its pages, as in the reference, but
/// those below `/v1`; `/` shows browsers a page.
pub fn debug<S: Store + Operations + 'static>(pages: DebugPages<S>, v1: Router) -> Router {
    let pages = Arc::new(pages);
    let Sources { rules, health, .. } = &*pages.sources;
    let rlconfig = rules_page(rules.clone(), TEXT, |rules| rules.dump(), "");
    let rules = rules_page(rules.clone(), JSON, |rules| rules.to_json(&|_| None), NO_RULES);
    let of_status = pages.clone();
    let status = Page::new(JSON, move || format!("{:#}\n", status(&of_status)));
    Router::new()
        .route("/log_level", get(show_levels).put(change_levels).with_state(pages.clone()))
        .route("/metrics", get(metrics::answer).with_state(pages.metrics.clone()))
        .route("/rlconfig", get(page::answer).with_state(rlconfig))
        .route("/rules", get(page::answer).with_state(rules))
        .route("/runbooks", get(async || RUNBOOKS))
        .route("/runbooks/{name}", get(async |Path(name): Path<String>| runbook(&name)))
        .route("/status", get(page::answer).with_state(status))
        .nest("/v1", v1)
        // Also here, because this port is never encrypted: for probes in the container.
        .merge(probes(health.clone()))
        .route("/", get(async |headers: HeaderMap| index::answer(&headers, INDEX.into_response())))
        .fallback(get(async || INDEX))
}

/// Returns the runbook of an alert, or all of them if there is none of this name.
pub(super) fn runbook(name: &str) -> String {
    let section = RUNBOOKS.split_once(&format!("\n### {name}\n"));
    let text = section.and_then(|(_, rest)| rest.split("\n##").next());
    text.map_or_else(|| RUNBOOKS.to_owned(), |text| format!("{name}\n{text}\n"))
}

/// A page about the active rules; `without` is shown if there are none.
pub(super) fn rules_page(
    rules: Rules,
    content_type: &'static str,
    show: impl Fn(&RuleSet) -> String + Send + Sync + 'static,
    without: &'static str,
) -> Arc<Page> {
    Page::new(content_type, move || {
        rules.load_full().map_or_else(|| without.to_owned(), |rules| show(&rules))
    })
}

/// Adds the state of the process and the store to that of the rules.
fn status<S: Store + Operations>(pages: &DebugPages<S>) -> Value {
    let Sources { limiter, loader, health, controls, identities, .. } = &*pages.sources;
    let mut status = loader.status();
    let reasons = health.reasons();
    status["version"] = VERSION.into();
    status["commit"] = COMMIT.into();
    status["uptime_seconds"] = pages.sources.started.elapsed().as_secs().into();
    status["not_serving_because"] = reasons.iter().map(|reason| reason.text()).collect();
    let store = StoreState::read(limiter.store());
    let problems = problems(&pages.sources, &store);
    status["store"] = store.to_json(problems.iter().any(Problem::is_of_store));
    status["problems"] = json!(problems);
    status["controls"] = json!({
        "share_error": controls.share_error().map(|error| error.to_string()),
        "missing": controls.damaged_files().count(),
    });
    status["tls"] = identities.to_json();
    status["log_level"] = pages.log_levels.as_ref().map(|levels| levels.get().to_string()).into();
    status
}

async fn show_levels<S>(State(pages): State<Arc<DebugPages<S>>>) -> Response {
    match &pages.log_levels {
        Some(levels) => format!("{}\n", levels.get()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Applies the levels of the query, `?level=info,h2=debug`.
///
/// Who may write to `/v1` may change them. No content type is needed for that: a change is a PUT, which
/// a web page cannot make a browser send to another origin.
async fn change_levels<S>(State(pages): State<Arc<DebugPages<S>>>, request: Request) -> Response {
    let caller = match pages.access.check(&request) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(active) = &pages.log_levels else { return StatusCode::NOT_FOUND.into_response() };
    let level = parameters(request.uri()).find(|(name, _)| name == "level");
    let level = percent_decode_str(level.map_or("", |(_, level)| level)).decode_utf8_lossy();
    match level.parse::<LogLevels>() {
        Ok(levels) => {
            let (from, to) = (active.get().to_string(), levels.to_string());
            active.set(levels);
            tracing::warn!(from, to, "log level changed");
            let subject = format!("{from} to {to}");
            let (subject, action) = (&subject, "set log level");
            let change = OperatorChange { by: "", action, subject, shown: subject };
            caller.audit(&pages.sources.log, &change);
            format!("{to}\n").into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("?level=…: {error}\n")).into_response(),
    }
}

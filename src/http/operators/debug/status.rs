//! `/status`: version, rules, store, controls, certificates and health, as JSON or text.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde_json::{Value, json};

use super::{DebugPages, JSON, TEXT};
use crate::http::operators::problems::{ProblemSources, problems};
use crate::http::page::{self, Page};
use crate::version::{COMMIT, VERSION};
use weir_common::escape::escape;
use weir_store::{BackendStatus, StoreStatus};

pub(super) struct StatusPages {
    json: Arc<Page>,
    text: Arc<Page>,
}

impl StatusPages {
    pub fn new(pages: &Arc<DebugPages>) -> StatusPages {
        let (for_json, for_text) = (pages.clone(), pages.clone());
        StatusPages {
            json: Page::new(JSON, move || format!("{:#}\n", status(&for_json))),
            text: Page::new(TEXT, move || as_text(&status(&for_text))),
        }
    }
}

pub(super) async fn answer(
    State(pages): State<Arc<StatusPages>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let page =
        if wants_text(uri.query().unwrap_or_default(), accept) { &pages.text } else { &pages.json };
    page::answer(State(page.clone())).await
}

/// Returns whether a client wants text: it says so, or it is a browser. Programs get JSON.
fn wants_text(query: &str, accept: &str) -> bool {
    match query.split('&').find_map(|part| part.strip_prefix("format=")) {
        Some(format) => format == "text",
        None => accept.contains("text/") && !accept.contains("json"),
    }
}

/// Adds the state of the process and the store to that of the rules.
fn status(pages: &DebugPages) -> Value {
    let mut status = pages.loader.status();
    let reasons = pages.health.reasons();
    status["version"] = VERSION.into();
    status["commit"] = COMMIT.into();
    status["uptime_seconds"] = pages.started.elapsed().as_secs().into();
    status["not_serving_because"] = reasons.iter().map(ToString::to_string).collect();
    let store = (pages.store)();
    let DebugPages { loader, controls, identities, .. } = pages;
    let sources = ProblemSources { loader, controls, identities, store: &store };
    status["problems"] = json!(problems(&sources));
    status["store"] = store_json(&store.status);
    status["controls"] = json!({
        "share_error": pages.controls.share_error().map(|error| error.to_string()),
        "missing": pages.controls.missing(),
    });
    status["tls"] = pages.identities.to_json();
    status["log_level"] = pages.log_levels.as_ref().map(|it| it.get().to_string()).into();
    status
}

/// Returns the state of the store, as the event `status` has it, too.
pub(in crate::http) fn store_json(store: &StoreStatus) -> Value {
    json!({
        "backends": store.backends.iter().map(backend_status).collect::<Vec<_>>(),
        "on_failure": store.failures.as_ref().map(|failures| failures.on_failure),
        "failing": store.failures.as_ref().is_some_and(|failures| failures.is_failing),
        "degraded_charges": store.failures.as_ref().map(|failures| {
            let counts = failures.degraded.iter();
            counts.map(|(policy, count)| ((*policy).to_owned(), (*count).into())).collect::<serde_json::Map<_, _>>()
        }),
    })
}

fn backend_status(backend: &BackendStatus) -> Value {
    let mut status = json!({ "instance": backend.instance, "kind": backend.kind });
    if let Some(keys) = backend.keys {
        status["keys"] = keys.into();
    }
    if let Some(address) = &backend.address {
        status["address"] = address.as_str().into();
    }
    if let Some(saved) = &backend.saved {
        status["sync_age_seconds"] = saved.sync_age.as_secs_f64().into();
        status["not_saved_because"] = saved.not_saved_because.as_deref().into();
        status["files_lost"] = saved.files_lost.into();
    } else if backend.address.is_some() {
        status["connections"] = backend.connections.into();
        status["connections_down"] = backend.connections_down.into();
        status["connections_slow"] = backend.connections_slow.into();
        status["down_because"] = backend.down_because.map(|why| why.to_string()).into();
        status["breaker"] = breaker(backend).into();
    }
    status
}

/// A connection that is down or slow fails its charges at once: its circuit breaker is open.
fn breaker(backend: &BackendStatus) -> &'static str {
    match backend.connections_down + backend.connections_slow {
        0 => "closed",
        open if open < backend.connections => "partly open",
        _ => "open",
    }
}

/// Returns a line for each value: `store.failing: false`.
fn as_text(status: &Value) -> String {
    let mut out = String::new();
    // First what is looked for first; then the rest.
    let first =
        ["serving", "not_serving_because", "problems", "version", "commit", "uptime_seconds"];
    let object = status.as_object();
    let ordered = first.into_iter().chain(
        object
            .into_iter()
            .flat_map(|it| it.keys())
            .map(String::as_str)
            .filter(|key| !first.contains(key)),
    );
    for key in ordered {
        add_lines(&mut out, key, &status[key]);
    }
    out
}

fn add_lines(out: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| add_lines(out, &format!("{name}.{key}"), value));
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                add_lines(out, &format!("{name}[{i}]"), item);
            }
        }
        // Errors of rules are several lines.
        Value::String(text) if text.contains('\n') => {
            let _ = writeln!(out, "{name}:");
            for line in text.lines() {
                let _ = writeln!(out, "    {}", escape(line));
            }
        }
        Value::String(text) => drop(writeln!(out, "{name}: {}", escape(text))),
        Value::Null => drop(writeln!(out, "{name}: none")),
        other => drop(writeln!(out, "{name}: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_and_clients_that_accept_text_get_text() {
        let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
        for (query, accept, text) in [
            ("", "*/*", false),
            ("", "", false),
            ("", "application/json", false),
            ("", "application/json, text/plain, */*", false),
            ("", "text/plain", true),
            ("", browser, true),
            ("format=json", browser, false),
            ("a=b&format=text", "application/json", true),
        ] {
            assert_eq!(wants_text(query, accept), text, "{query} {accept}");
        }
    }

    #[test]
    fn text_has_a_line_for_each_value() {
        let status = json!({
            "a": { "b": [1, { "c": "x\u{1b}" }], "none": null },
            "refused": { "problems": "one\ntwo" },
            "serving": true,
        });
        let wanted = "serving: true\nnot_serving_because: none\nproblems: none\nversion: none\n\
                      commit: none\nuptime_seconds: none\na.b[0]: 1\na.b[1].c: x\\u001b\na.none: none\n\
                      refused.problems:\n    one\n    two\n";
        assert_eq!(as_text(&status), wanted);
    }

    #[test]
    fn the_breaker_is_that_of_the_connections() {
        let backend = |connections, connections_down, connections_slow| {
            let rest = BackendStatus::default();
            breaker(&BackendStatus { connections, connections_down, connections_slow, ..rest })
        };
        assert_eq!(
            [
                backend(0, 0, 0),
                backend(3, 0, 0),
                backend(3, 1, 0),
                backend(3, 0, 2),
                backend(3, 2, 1)
            ],
            ["closed", "closed", "partly open", "partly open", "open"]
        );
    }
}

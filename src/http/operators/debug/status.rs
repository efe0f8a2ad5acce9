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
    status["store"] = store.to_json();
    status["controls"] = json!({
        "share_error": pages.controls.share_error().map(|error| error.to_string()),
        "missing": pages.controls.damaged_files().count(),
    });
    status["tls"] = pages.identities.to_json();
    status["log_level"] = pages.log_levels.as_ref().map(|it| it.get().to_string()).into();
    status
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
}

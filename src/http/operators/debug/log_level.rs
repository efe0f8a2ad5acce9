//! `/log_level`: shows the levels that are logged, and changes them.
//!
//! Who may write to `/v1` may change them. No content type is needed for that: a change is a PUT, which
//! a web page cannot make a browser send to another origin.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::DebugPages;
use crate::http::operators::access::OperatorChange;
use weir_telemetry::log::LogLevels;

pub(super) async fn show<S>(State(pages): State<Arc<DebugPages<S>>>) -> Response {
    match &pages.log_levels {
        Some(levels) => format!("{}\n", levels.get()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Applies the levels of the query, `?level=info,h2=debug`.
pub(super) async fn change<S>(
    State(pages): State<Arc<DebugPages<S>>>,
    request: Request,
) -> Response {
    let caller = match pages.access.check(&request) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(active) = &pages.log_levels else { return StatusCode::NOT_FOUND.into_response() };
    let query = request.uri().query().unwrap_or_default();
    let level = query.split('&').find_map(|part| part.strip_prefix("level=")).unwrap_or_default();
    match decoded(level).parse::<LogLevels>() {
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

/// Decodes the characters of levels that clients may encode.
fn decoded(level: &str) -> String {
    [("%2C", ","), ("%2c", ","), ("%3D", "="), ("%3d", "="), ("%3A", ":"), ("%3a", ":")]
        .into_iter()
        .fold(level.to_owned(), |level, (encoded, plain)| level.replace(encoded, plain))
}

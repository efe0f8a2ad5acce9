//! `/log_level`: shows the levels that are logged, and changes them.
//!
//! Only clients on this machine can change them, also if the port is open to others. A change is a
//! PUT, which a web page cannot make a browser send to another origin.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::DebugPages;
use crate::http::serve::Peer;
use crate::telemetry::log::LogLevels;

pub(super) async fn show(State(pages): State<Arc<DebugPages>>) -> Response {
    match &pages.log_levels {
        Some(levels) => format!("{}\n", levels.get()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Applies the levels of the query, `?level=info,h2=debug`.
pub(super) async fn change(
    State(pages): State<Arc<DebugPages>>,
    peer: Option<Extension<Peer>>,
    uri: Uri,
) -> Response {
    if !peer.is_some_and(|Extension(peer)| peer.is_local()) {
        let text = "the log level can be changed from the same machine only: use 127.0.0.1\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let Some(active) = &pages.log_levels else { return StatusCode::NOT_FOUND.into_response() };
    let query = uri.query().unwrap_or_default();
    let level = query.split('&').find_map(|part| part.strip_prefix("level=")).unwrap_or_default();
    match decoded(level).parse::<LogLevels>() {
        Ok(levels) => {
            let (from, to) = (active.get().to_string(), levels.to_string());
            active.set(levels);
            tracing::warn!(from, to, "log level changed");
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

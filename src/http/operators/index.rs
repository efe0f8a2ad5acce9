//! `/` of the debug port: a list of its pages, or for browsers the web page that shows what happens now and
//! changes controls (blocks, allows and limits that operators set at run time).
//!
//! The page is one HTML file without anything from clients; its script reads `/v1`. Texts that clients
//! choose never become markup: the script only sets texts, and the content security policy refuses any
//! other script, style or request, and, with trusted types, any parsing of HTML.

#[cfg(test)]
mod tests;

use axum::http::HeaderMap;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

use weir_common::random::random_bytes;

/// Stands for the nonce in [`PAGE`].
const NONCE: &str = "{nonce}";

const PAGE: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<meta name=\"color-scheme\" content=\"light dark\">\n",
    "<title>weir</title>\n<link rel=\"icon\" href=\"",
    // Two bars, part of the right one refused.
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%237ea2ee' d='M2 7h5v8H2zM9 1h5v14H9z'/%3E%3Cpath fill='%23c2410c' d='M9 9h5v6H9z'/%3E%3C/svg%3E",
    "\">\n<style nonce=\"{nonce}\">\n",
    include_str!("../../../crates/replay/src/html/style.css"),
    include_str!("index/page.css"),
    include_str!("index/views.css"),
    "</style></head><body>\n",
    include_str!("index/body.html"),
    include_str!("index/views.html"),
    include_str!("index/dialogs.html"),
    "<script type=\"module\" nonce=\"{nonce}\">\n",
    include_str!("../../../crates/replay/src/html/elements.js"),
    include_str!("index/dom.js"),
    include_str!("index/text.js"),
    include_str!("index/network.js"),
    include_str!("index/descriptor.js"),
    include_str!("index/views.js"),
    include_str!("index/connection.js"),
    include_str!("index/rules.js"),
    include_str!("../../../crates/replay/src/html/plot.js"),
    include_str!("index/plot.js"),
    include_str!("index/history.js"),
    include_str!("index/events.js"),
    include_str!("index/problems.js"),
    include_str!("index/keys.js"),
    include_str!("index/controls.js"),
    include_str!("index/editor.js"),
    include_str!("index/rule_view.js"),
    include_str!("index/explained.js"),
    include_str!("index/key_view.js"),
    include_str!("index/all_rules.js"),
    include_str!("index/search.js"),
    include_str!("index/service.js"),
    include_str!("index/main.js"),
    "</script>\n</body></html>\n",
);

/// Nothing but the page's own script and style, and requests to this port.
const POLICY: &str = "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Answers browsers with the page, and others with `list`, the pages of the port.
pub(super) fn answer(headers: &HeaderMap, list: Response) -> Response {
    let shown = if wants_html(headers) { page().into_response() } else { list };
    ([(VARY, "accept")], shown).into_response()
}

fn page() -> impl IntoResponse {
    // A new one for each response, so that no text that gets into the page can name it.
    let nonce = format!("{:032x}", u128::from_be_bytes(random_bytes()));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, POLICY.replace(NONCE, &nonce)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, PAGE.replace(NONCE, &nonce))
}

/// Returns whether a client names HTML, as browsers do.
fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let media_type = |range: &str| range.split(';').next().unwrap_or_default().trim().to_owned();
    accept
        .flat_map(|value| value.split(','))
        .any(|range| media_type(range).eq_ignore_ascii_case("text/html"))
}

use axum::http::{HeaderName, HeaderValue};
use http_body::Body as _;

use super::*;
use crate::http::operators::problems::VARYING_KINDS;

fn with_accept(accept: &str) -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())])
}

#[test]
fn browsers_get_the_page_and_others_the_list() {
    for (accept, is_html) in [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
        ("application/json, TEXT/HTML;q=0.5", true),
        ("*/*", false),
        ("text/*", false),
        ("text/plain", false),
        ("text/htmlx", false),
        ("", false),
    ] {
        assert_eq!(wants_html(&with_accept(accept)), is_html, "{accept}");
    }
    assert!(!wants_html(&HeaderMap::new()));
}

#[tokio::test]
async fn every_page_has_a_nonce_of_its_own_which_its_policy_names() {
    let mut nonces = Vec::new();
    for _ in 0..2 {
        let response = answer(&with_accept("text/html"), Response::default());
        let header = |name: HeaderName| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header(CONTENT_SECURITY_POLICY);
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header(X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(header(REFERRER_POLICY), "no-referrer");
        assert_eq!(header(VARY), "accept");
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        assert_eq!(nonce.len(), 32);
        assert_eq!(policy.matches(&format!("'nonce-{nonce}'")).count(), 2);
        let size = response.body().size_hint().exact().unwrap();
        let page = axum::body::to_bytes(response.into_body(), size as usize).await.unwrap();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert_eq!(page.matches(&format!(" nonce=\"{nonce}\">")).count(), 2);
        assert!(!page.contains(NONCE));
        nonces.push(nonce);
    }
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn the_page_loads_nothing_and_has_no_inline_handlers() {
    for what in [
        "src=",
        "@import",
        "url(",
        "style=\"",
        "innerHTML",
        "insertAdjacentHTML",
        "eval(",
        "Storage",
        "document.cookie",
    ] {
        assert!(!PAGE.contains(what), "{what}");
    }
    let schemes = PAGE.matches("://").count();
    // The namespaces of SVG.
    assert_eq!(schemes, PAGE.matches("http://www.w3.org/2000/svg").count());
    for handler in [" onclick", " onload", " onerror"] {
        assert!(!PAGE.to_ascii_lowercase().contains(&format!("{handler}=\"")), "{handler}");
    }
}

#[test]
fn the_page_knows_the_kinds_of_problems_whose_errors_vary() {
    let kinds = VARYING_KINDS.map(|kind| format!("'{kind}'")).join(", ");
    assert!(PAGE.contains(&format!("const VARYING_KINDS = [{kinds}];")), "{kinds}");
}

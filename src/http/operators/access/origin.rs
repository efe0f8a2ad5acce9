//! Refuses requests to the operators' API that a foreign web page makes a browser send, by `Host`, `Origin` and
//! `Sec-Fetch-Site`.

use std::net::IpAddr;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};

use crate::http::operators::error::ApiError;

/// What a browser adds to requests; a page cannot change it.
const FETCH_SITE: &str = "sec-fetch-site";

/// Checks that a request names an allowed host, and that no page of another origin sends it. Fails with 403.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Result<(), ApiError> {
    let forbidden = |error, help| Err(ApiError::new(StatusCode::FORBIDDEN, error, help));
    let mut hosts = headers.get_all(HOST).iter();
    let named = match (hosts.next().map(|host| host.to_str()), hosts.next()) {
        (Some(Ok(named)), None) => named,
        _ => return forbidden("the request does not name one host", "send one header `Host`"),
    };
    // A request line with a whole URL names a host, too.
    let by_url = uri.authority().map(|authority| authority.as_str());
    if !std::iter::once(named).chain(by_url).all(|named| is_allowed(named, allowed)) {
        let help = "use localhost or a loopback address, or add the host to debug.allowed_hosts";
        return forbidden("the request names a host that is not allowed", help);
    }
    let is_own = |origin: &str| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(named))
    };
    let mut origins = headers.get_all(ORIGIN).iter();
    // Browsers send no `Origin` with some requests of other pages, but this.
    let is_of_page = |site: &str| ["same-origin", "none"].contains(&site);
    let mut sites = headers.get_all(FETCH_SITE).iter();
    if !origins.all(|origin| origin.to_str().is_ok_and(is_own))
        || !sites.all(|site| site.to_str().is_ok_and(is_of_page))
    {
        let help = "use the page of weir itself, or a program that is not a browser";
        return forbidden("a web page of another origin sent the request", help);
    }
    Ok(())
}

/// Returns whether clients may reach the port by this authority, at any port: it may be forwarded from another one.
fn is_allowed(authority: &str, allowed: &[String]) -> bool {
    host(authority).is_some_and(|host| {
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
            || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    })
}

/// Returns the host of an authority, without the brackets of an IPv6 address.
fn host(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let digits = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(digits);
    is_port.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_without_ports() {
        for (authority, expected) in [
            ("localhost", Some("localhost")),
            ("localhost:6070", Some("localhost")),
            ("[::1]", Some("::1")),
            ("[::1]:6070", Some("::1")),
            ("127.0.0.1:", Some("127.0.0.1")),
            ("::1", None),
            ("localhost:80:80", None),
            ("localhost:x", None),
            ("[::1]x", None),
            ("[::1", None),
            ("user@localhost", Some("user@localhost")),
        ] {
            assert_eq!(host(authority), expected, "{authority}");
        }
    }

    #[test]
    fn only_loopback_and_the_named_hosts_are_allowed() {
        let allowed = ["weir.example".to_owned(), "10.0.0.7".to_owned(), "fd00::7".to_owned()];
        for good in [
            "localhost:6070",
            "LocalHost",
            "127.0.0.1:6070",
            "127.8.9.1",
            "[::1]:6070",
            "[::ffff:127.0.0.1]",
            "Weir.Example:443",
            "10.0.0.7:6070",
            "[fd00::7]:6070",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            ":6070",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "weir.example.evil.example",
            "localhost@evil.example",
            "user@localhost",
            "0.0.0.0",
            "10.0.0.8",
            "[::ffff:10.0.0.8]",
            "2130706433",
            "127.1",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}

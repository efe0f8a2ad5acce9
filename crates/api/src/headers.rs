//! The headers of responses, which describe the limits of a request.

use crate::proto::envoy::config::core::v3::HeaderValue;
use weir_limiter::RequestDecision;

/// Which headers responses carry.
#[derive(Clone, Debug, Default)]
pub struct HeaderOptions {
    /// The names of the three rate-limit headers; none turns them off.
    pub names: Option<HeaderNames>,
    /// Whether denials carry `Retry-After`.
    pub retry_after: bool,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy`, the structured fields of
    /// draft-ietf-httpapi-ratelimit-headers-10.
    pub ratelimit_fields: bool,
}

/// The names of the rate-limit headers.
#[derive(Clone, Debug)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// Returns the headers that describe the most relevant status. None if no limit applied.
pub fn headers(options: &HeaderOptions, decision: &RequestDecision<'_>) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    let mut header = |key: &str, value: String| {
        headers.push(HeaderValue { key: key.to_owned(), value, raw_value: Default::default() });
    };
    let blocked = options.retry_after.then(|| decision.blocked_seconds()).flatten();
    if let Some(wait) = blocked {
        header("Retry-After", wait.to_string());
    }
    let Some((status, limit)) = decision.shown() else { return headers };
    let reset = status.reset_seconds();
    let (quota, window) = limit.quota();
    if let Some(HeaderNames { limit: name, remaining, reset: reset_name }) = &options.names {
        header(name, quota.to_string());
        header(remaining, status.remaining.to_string());
        header(reset_name, reset.to_string());
    }
    if options.ratelimit_fields {
        let name = policy_name(limit.name);
        let policy = match window {
            Some(window) => format!("{name};q={quota};w={window}"),
            None => format!("{name};q={quota};qu=\"concurrent-requests\""),
        };
        header("RateLimit-Policy", policy);
        header("RateLimit", format!("{name};r={};t={reset}", status.remaining));
    }
    if options.retry_after && decision.over_limit && status.over_limit && blocked.is_none() {
        header("Retry-After", reset.to_string());
    }
    headers
}

/// Returns a limit's name as the string of a structured field: printable ASCII only.
fn policy_name(name: &str) -> String {
    let name = if name.is_empty() { "default" } else { name };
    let mut out = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use weir_limit::{SECOND, Unit};
    use weir_limiter::{Burst, ShownLimit, Status};

    fn header_lines(
        options: &HeaderOptions,
        limit: ShownLimit<'_>,
        over_limit: bool,
    ) -> Vec<String> {
        let status = Status {
            over_limit,
            limit: Some(limit),
            remaining: if over_limit { 0 } else { 7 },
            reset_after: 42 * SECOND,
            ..Default::default()
        };
        let decision = RequestDecision { over_limit, statuses: [status].into_iter().collect() };
        let headers = headers(options, &decision);
        headers.into_iter().map(|header| format!("{}: {}", header.key, header.value)).collect()
    }

    const LIMIT: ShownLimit<'_> = ShownLimit {
        name: "",
        requests_per_unit: 10,
        unit: Some(Unit::Minute),
        unit_multiplier: 15,
        burst: None,
    };

    #[test]
    fn the_quota_of_a_bucket_is_its_burst() {
        let names = HeaderNames { limit: "l".into(), remaining: "r".into(), reset: "t".into() };
        let options = HeaderOptions {
            names: Some(names),
            ratelimit_fields: true,
            ..HeaderOptions::default()
        };
        let burst = Burst { hits: 20, seconds: NonZeroU32::new(1_800).unwrap() };
        assert_eq!(
            header_lines(&options, ShownLimit { burst: Some(burst), ..LIMIT }, false),
            [
                "l: 20",
                "r: 7",
                "t: 42",
                "RateLimit-Policy: \"default\";q=20;w=1800",
                "RateLimit: \"default\";r=7;t=42",
            ]
        );
    }

    #[test]
    fn the_structured_fields_have_the_policy_and_what_remains() {
        let options = HeaderOptions { ratelimit_fields: true, ..HeaderOptions::default() };
        assert_eq!(
            header_lines(&options, LIMIT, false),
            ["RateLimit-Policy: \"default\";q=10;w=900", "RateLimit: \"default\";r=7;t=42"]
        );
        let named = ShownLimit { name: "a \"b\\ü", unit: None, ..LIMIT };
        assert_eq!(
            header_lines(&options, named, true),
            [
                "RateLimit-Policy: \"a \\\"b\\\\?\";q=10;qu=\"concurrent-requests\"",
                "RateLimit: \"a \\\"b\\\\?\";r=0;t=42",
            ]
        );
    }

    #[test]
    fn only_denials_carry_retry_after() {
        let options = HeaderOptions { retry_after: true, ..HeaderOptions::default() };
        assert_eq!(header_lines(&options, LIMIT, true), ["Retry-After: 42"]);
        assert!(header_lines(&options, LIMIT, false).is_empty());
        assert!(header_lines(&HeaderOptions::default(), LIMIT, true).is_empty());
    }
}

//! The HTTP headers in weir's responses to Envoy: the limit, what remains, when to retry. `weir test` makes them too.

use std::sync::Arc;

use crate::proto::envoy::config::core::v3::HeaderValue;
use weir_common::clock::Clock;
use weir_limit::SECOND;
use weir_limiter::{RequestDecision, ShownLimit, Status};

#[derive(Clone, Debug, Default)]
pub struct HeaderOptions {
    /// The names of the headers with limit, remaining hits and reset; none turns them off.
    pub names: Option<HeaderNames>,
    /// The wall clock for a reset header with a Unix time; none: it has the seconds from now.
    pub reset_clock: Option<Arc<dyn Clock>>,
    /// Whether denials carry `Retry-After`.
    pub retry_after: bool,
    /// Whether responses carry `RateLimit` and `RateLimit-Policy`, the structured fields of
    /// draft-ietf-httpapi-ratelimit-headers-10.
    pub ratelimit_fields: bool,
}

#[derive(Clone, Debug)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// Returns the headers for the most relevant of the descriptors' statuses; without any limit, no headers.
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
    if let Some(HeaderNames { limit: name, remaining, reset: reset_name }) = &options.names {
        header(name, limit.quota().0.to_string());
        header(remaining, status.remaining.to_string());
        let reset = match options.reset_clock.as_deref() {
            None => reset,
            Some(clock) => clock.now().saturating_add(status.until_reset()).div_ceil(SECOND),
        };
        header(reset_name, reset.to_string());
    }
    if options.ratelimit_fields {
        let (policies, name) = policies(status, limit);
        header("RateLimit-Policy", policies);
        header("RateLimit", format!("{name};r={};t={reset}", status.remaining));
    }
    if options.retry_after && decision.over_limit && status.over_limit && blocked.is_none() {
        header("Retry-After", reset.to_string());
    }
    headers
}

/// Returns the policies of the limits of the rule that `status` shows, and the name of the policy of `shown`.
fn policies<'s>(status: &Status<'s>, shown: &ShownLimit<'s>) -> (String, String) {
    let mut limits: Vec<ShownLimit<'s>> = status.limits().collect();
    let shown_at = match limits.iter().position(|limit| limit == shown) {
        Some(at) => at,
        // A client sent the limit, or all limits of the rule are in shadow mode.
        None => {
            limits = vec![*shown];
            0
        }
    };
    let (mut names, mut policies) = (Vec::new(), Vec::new());
    for limit in &limits {
        let text = policy_text(limit.name);
        let mut name = format!("\"{text}\"");
        // Names may be missing, repeated, or equal in ASCII.
        let mut number = 1;
        while names.contains(&name) {
            number += 1;
            name = format!("\"{text}-{number}\"");
        }
        policies.push(match limit.quota() {
            (quota, Some(window)) => format!("{name};q={quota};w={window}"),
            (quota, None) => format!("{name};q={quota};qu=\"concurrent-requests\""),
        });
        names.push(name);
    }
    (policies.join(", "), names.swap_remove(shown_at))
}

/// Returns a limit's name as it is within the quotes of a structured field: printable ASCII only.
fn policy_text(name: &str) -> String {
    let name = if name.is_empty() { "default" } else { name };
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use weir_common::clock::ManualClock;
    use weir_limit::Unit;
    use weir_limiter::Burst;
    use weir_rules::source::RuleFile;
    use weir_rules::{RuleOptions, RuleSet};

    fn header_lines(
        options: &HeaderOptions,
        limit: ShownLimit<'_>,
        over_limit: bool,
    ) -> Vec<String> {
        status_lines(options, Status { over_limit, limit: Some(limit), ..status() })
    }

    fn status_lines(options: &HeaderOptions, status: Status<'_>) -> Vec<String> {
        let over_limit = status.over_limit;
        let status = Status { remaining: if over_limit { 0 } else { 7 }, ..status };
        let decision = RequestDecision { over_limit, statuses: [status].into_iter().collect() };
        let headers = headers(options, &decision);
        headers.into_iter().map(|header| format!("{}: {}", header.key, header.value)).collect()
    }

    fn status<'s>() -> Status<'s> {
        Status { reset_after: 42 * SECOND, ..Status::default() }
    }

    fn names() -> HeaderNames {
        HeaderNames { limit: "l".into(), remaining: "r".into(), reset: "t".into() }
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
        let options = HeaderOptions {
            names: Some(names()),
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
    fn the_policy_has_every_limit_of_the_rule_under_a_name_of_its_own() {
        let text = "domain: d
descriptors:
  - key: user
    descriptors:
      - key: id
        rate_limits:
          - { unit: second, requests_per_unit: 10 }
          - { unit: minute, requests_per_unit: 20, name: ü }
          - { unit: hour, requests_per_unit: 30 }
          - { unit: hour, requests_per_unit: 25, shadow_mode: true }
          - { unit: day, requests_per_unit: 50, name: ä }
          - { algorithm: concurrency, requests_per_unit: 9, hold_id: id }
";
        let file = RuleFile { name: "test.yaml".into(), text: text.into() };
        let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
        let rule = rules.rules().next();
        assert!(rule.is_some(), "{problems:?}");
        let options = HeaderOptions { ratelimit_fields: true, ..HeaderOptions::default() };
        let policy = r#"RateLimit-Policy: "default";q=10;w=1, "?";q=20;w=60, "default-2";q=30;w=3600, "?-2";q=50;w=86400, "default-3";q=9;qu="concurrent-requests""#;
        let status = Status { rule, ..status() };
        let names = ["default", "?", "default-2", "?-2", "default-3"];
        assert_eq!(status.limits().count(), names.len());
        for (limit, name) in status.limits().zip(names) {
            let lines = status_lines(&options, Status { limit: Some(limit), ..status });
            assert_eq!(lines, [policy, &format!("RateLimit: \"{name}\";r=7;t=42")]);
        }
        // A limit that is not among them, such as one that a client sent.
        assert_eq!(
            status_lines(&options, Status { limit: Some(LIMIT), ..status }),
            ["RateLimit-Policy: \"default\";q=10;w=900", "RateLimit: \"default\";r=7;t=42"]
        );
    }

    #[test]
    fn only_the_reset_header_has_unix_time() {
        let clock = Arc::new(ManualClock::new(1_000 * SECOND));
        let options = HeaderOptions {
            names: Some(names()),
            reset_clock: Some(clock.clone()),
            retry_after: true,
            ratelimit_fields: true,
        };
        for (now, reset) in [(0, 42), (1_000 * SECOND, 1_042), (1_000 * SECOND + 1, 1_043)] {
            clock.set(now);
            assert_eq!(
                header_lines(&options, LIMIT, true),
                [
                    "l: 10",
                    "r: 0",
                    &format!("t: {reset}"),
                    "RateLimit-Policy: \"default\";q=10;w=900",
                    "RateLimit: \"default\";r=0;t=42",
                    "Retry-After: 42",
                ]
            );
        }
        clock.set(1_000 * SECOND);
        let denied = Status { over_limit: true, limit: Some(LIMIT), ..status() };
        let lines = status_lines(&options, Status { retry_after: Some(SECOND / 2), ..denied });
        assert_eq!(lines[2], "t: 1001", "after a denial it is the end of the wait");
    }

    #[test]
    fn only_denials_carry_retry_after() {
        let options = HeaderOptions { retry_after: true, ..HeaderOptions::default() };
        assert_eq!(header_lines(&options, LIMIT, true), ["Retry-After: 42"]);
        assert!(header_lines(&options, LIMIT, false).is_empty());
        assert!(header_lines(&HeaderOptions::default(), LIMIT, true).is_empty());
    }
}

//! Converts a decision to the API's response.

use super::{HeaderNames, Options, metadata};
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use pb::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};
use weir_limit::Unit;
use weir_limiter::{Request, RequestDecision, ShownLimit, Status};

/// Returns the response to `request`.
pub(super) fn encode(
    request: &Request<'_>,
    decision: &RequestDecision<'_>,
    options: &Options,
) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        overall_code: code(decision.over_limit),
        statuses: decision.statuses.iter().map(status).collect(),
        ..extras(request, decision, options)
    }
}

/// Returns what a response carries in addition to its codes and statuses.
pub(super) fn extras(
    request: &Request<'_>,
    decision: &RequestDecision<'_>,
    options: &Options,
) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        response_headers_to_add: headers(options, decision),
        dynamic_metadata: options.dynamic_metadata.then(|| metadata::encode(request, decision)),
        ..Default::default()
    }
}

pub(super) fn code(over_limit: bool) -> i32 {
    if over_limit { Code::OverLimit.into() } else { Code::Ok.into() }
}

fn status(status: &Status<'_>) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.over_limit),
        current_limit: status.limit.as_ref().map(current_limit),
        limit_remaining: status.remaining,
        duration_until_reset: reset_seconds(status).map(|seconds| prost_types::Duration {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
    }
}

/// Returns the time of reset in whole seconds, if there is one: that of the limit, or of the control that
/// blocks.
#[inline]
pub(super) fn reset_seconds(status: &Status<'_>) -> Option<u64> {
    let seconds = status.reset_seconds();
    (status.limit.is_some() || seconds > 0).then_some(seconds)
}

/// Returns the API's number of a limit's unit.
pub(super) fn unit(limit: &ShownLimit<'_>) -> i32 {
    use rate_limit::Unit as ApiUnit;
    let unit = match limit.unit {
        None => ApiUnit::Unknown,
        Some(Unit::Second) => ApiUnit::Second,
        Some(Unit::Minute) => ApiUnit::Minute,
        Some(Unit::Hour) => ApiUnit::Hour,
        Some(Unit::Day) => ApiUnit::Day,
        Some(Unit::Week) => ApiUnit::Week,
        Some(Unit::Month) => ApiUnit::Month,
        Some(Unit::Year) => ApiUnit::Year,
    };
    unit.into()
}

fn current_limit(limit: &ShownLimit<'_>) -> RateLimit {
    RateLimit {
        name: limit.name.to_owned(),
        requests_per_unit: limit.requests_per_unit,
        unit: unit(limit),
        // The reference omits a multiplier of 1, too.
        unit_multiplier: (limit.unit_multiplier != 1).then_some(limit.unit_multiplier),
    }
}

/// Returns the headers that describe the most relevant status. None if no limit applied.
pub fn headers(options: &Options, decision: &RequestDecision<'_>) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    if options.retry_after
        && let Some(wait) = decision.blocked_seconds()
    {
        let (key, value) = ("Retry-After".to_owned(), wait.to_string());
        headers.push(HeaderValue { key, value, raw_value: Default::default() });
    }
    let is_blocked = !headers.is_empty();
    let Some((status, limit)) = decision.shown() else { return headers };
    let mut header = |key: &str, value: String| {
        headers.push(HeaderValue { key: key.to_owned(), value, raw_value: Default::default() });
    };
    let reset = status.reset_seconds();
    if let Some(HeaderNames { limit: name, remaining, reset: reset_name }) = &options.headers {
        header(name, limit.requests_per_unit.to_string());
        header(remaining, status.remaining.to_string());
        header(reset_name, reset.to_string());
    }
    if options.ratelimit_fields {
        let name = policy_name(limit.name);
        let quota = limit.requests_per_unit;
        let policy = match limit.unit {
            Some(unit) => {
                let window = unit.seconds() * u64::from(limit.unit_multiplier);
                format!("{name};q={quota};w={window}")
            }
            None => format!("{name};q={quota};qu=\"concurrent-requests\""),
        };
        header("RateLimit-Policy", policy);
        header("RateLimit", format!("{name};r={};t={reset}", status.remaining));
    }
    if options.retry_after && decision.over_limit && status.over_limit && !is_blocked {
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
    use super::*;
    use weir_limit::SECOND;

    fn header_lines(options: &Options, limit: ShownLimit<'_>, over_limit: bool) -> Vec<String> {
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
    };

    #[test]
    fn the_structured_fields_have_the_policy_and_what_remains() {
        let options = Options { ratelimit_fields: true, ..Options::default() };
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
        let options = Options { retry_after: true, ..Options::default() };
        assert_eq!(header_lines(&options, LIMIT, true), ["Retry-After: 42"]);
        assert!(header_lines(&options, LIMIT, false).is_empty());
        assert!(header_lines(&Options::default(), LIMIT, true).is_empty());
    }
}

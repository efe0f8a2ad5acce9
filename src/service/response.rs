//! A decision as the API's response.

use super::{HeaderNames, Options, metadata};
use crate::limit::Unit;
use crate::limiter::{Decision, ShownLimit, Status};
use crate::proto::envoy::config::core::v3::HeaderValue;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use pb::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};

/// The response to `request`.
pub(super) fn encode(
    request: &pb::RateLimitRequest,
    decision: &Decision<'_>,
    options: &Options,
) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        overall_code: code(decision.over_limit),
        statuses: decision.statuses.iter().map(status).collect(),
        response_headers_to_add: match &options.headers {
            Some(names) => headers(names, decision),
            None => Vec::new(),
        },
        dynamic_metadata: options.dynamic_metadata.then(|| metadata::encode(request, decision)),
        ..Default::default()
    }
}

fn code(over_limit: bool) -> i32 {
    if over_limit { Code::OverLimit.into() } else { Code::Ok.into() }
}

fn status(status: &Status<'_>) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.over_limit),
        current_limit: status.limit.as_ref().map(current_limit),
        limit_remaining: status.remaining,
        duration_until_reset: status.limit.is_some().then(|| prost_types::Duration {
            seconds: i64::try_from(status.reset_seconds).unwrap_or(i64::MAX),
            nanos: 0,
        }),
    }
}

fn current_limit(limit: &ShownLimit<'_>) -> RateLimit {
    use rate_limit::Unit as Sent;
    let unit = match limit.unit {
        None => Sent::Unknown,
        Some(Unit::Second) => Sent::Second,
        Some(Unit::Minute) => Sent::Minute,
        Some(Unit::Hour) => Sent::Hour,
        Some(Unit::Day) => Sent::Day,
        Some(Unit::Week) => Sent::Week,
        Some(Unit::Month) => Sent::Month,
        Some(Unit::Year) => Sent::Year,
    };
    RateLimit {
        name: limit.name.to_owned(),
        requests_per_unit: limit.requests_per_unit,
        unit: unit.into(),
        // One is what an absent multiplier means, and what the reference leaves absent.
        unit_multiplier: (limit.unit_multiplier != 1).then_some(limit.unit_multiplier),
    }
}

/// The limit, the hits still allowed and the seconds until the reset, of the status that the
/// decision shows. None where no limit applied.
fn headers(names: &HeaderNames, decision: &Decision<'_>) -> Vec<HeaderValue> {
    let Some((status, limit)) = decision.shown() else { return Vec::new() };
    let header = |key: &String, value: String| HeaderValue {
        key: key.clone(),
        value,
        raw_value: Default::default(),
    };
    vec![
        header(&names.limit, limit.requests_per_unit.to_string()),
        header(&names.remaining, status.remaining.to_string()),
        header(&names.reset, status.reset_seconds.to_string()),
    ]
}

//! Converts a decision to the API's response.

use super::{Options, metadata};
use crate::proto::envoy::service::ratelimit::v3 as pb;
use pb::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};
use weir_api::headers::headers;
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
        response_headers_to_add: headers(&options.headers, decision),
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

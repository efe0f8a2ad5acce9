//! The wait that a response over the limit advertises.

use std::time::Duration;

use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

/// No bound on the wait for a request.
pub(super) const UNBOUNDED: Duration = Duration::MAX;

/// The wait where a server advertises none at all: its times are whole seconds.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Returns the wait until a retry: that of the header `Retry-After`, else the longest time until a
/// limit resets that the request is over. None if the response has neither.
pub(super) fn advertised(response: &RateLimitResponse) -> Option<Duration> {
    let headers = &response.response_headers_to_add;
    let header = headers.iter().find(|header| header.key.eq_ignore_ascii_case("retry-after"));
    let retry_after = header.and_then(|header| match header.value.is_empty() {
        true => std::str::from_utf8(&header.raw_value).ok()?.trim().parse().ok(),
        false => header.value.trim().parse().ok(),
    });
    let wait = retry_after.map(Duration::from_secs).or_else(|| {
        let over = response.statuses.iter().filter(|status| status.code() == Code::OverLimit);
        let resets = over.filter_map(|status| status.duration_until_reset);
        resets.map(|reset| Duration::try_from(reset).unwrap_or_default()).max()
    });
    wait.map(|wait| wait.max(MIN_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::config::core::v3::HeaderValue;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;

    fn status(code: Code, reset: Option<i64>) -> DescriptorStatus {
        let duration_until_reset =
            reset.map(|seconds| prost_types::Duration { seconds, nanos: 500_000_000 });
        DescriptorStatus { code: code.into(), duration_until_reset, ..Default::default() }
    }

    fn response(statuses: Vec<DescriptorStatus>, retry_after: Option<&str>) -> RateLimitResponse {
        let headers = retry_after.map(|value| HeaderValue {
            key: "Retry-After".to_owned(),
            value: value.to_owned(),
            ..Default::default()
        });
        RateLimitResponse {
            statuses,
            response_headers_to_add: headers.into_iter().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_longest_reset_of_a_denial_counts_and_the_header_first() {
        let statuses = || {
            vec![
                status(Code::OverLimit, Some(1)),
                status(Code::OverLimit, Some(3)),
                status(Code::Ok, Some(60)),
                status(Code::OverLimit, None),
            ]
        };
        let wait = |retry_after| advertised(&response(statuses(), retry_after));
        assert_eq!(wait(None), Some(Duration::from_millis(3_500)));
        assert_eq!(wait(Some("7")), Some(Duration::from_secs(7)));
        assert_eq!(wait(Some("Wed, 21 Oct 2026 07:28:00 GMT")), wait(None));
        assert_eq!(wait(Some("0")), Some(MIN_WAIT));
    }

    #[test]
    fn without_a_time_there_is_no_wait() {
        assert_eq!(advertised(&response(vec![status(Code::OverLimit, None)], None)), None);
        assert_eq!(advertised(&response(vec![status(Code::Ok, Some(1))], None)), None);
        // A server may send a time in the past.
        let past = response(vec![status(Code::OverLimit, Some(-5))], None);
        assert_eq!(advertised(&past), Some(MIN_WAIT));
    }
}

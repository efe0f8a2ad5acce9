//! How long a collector asks to wait before the next request.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use http::header::RETRY_AFTER;
use prost::Message;
use weir_common::clock::Clock;

/// The type of `google.rpc.RetryInfo` in the details of a status.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`, without what is not needed.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Reads the header `Retry-After`: seconds, or a date of the wall clock.
pub(super) fn of_http(headers: &HeaderMap, clock: &dyn Clock) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
            date.checked_sub(Duration::from_micros(clock.now()))
        }
    }
}

/// Reads the details of a gRPC status, `grpc-status-details-bin`.
pub(super) fn of_grpc(details: &[u8]) -> Option<Duration> {
    let details = Details::decode(details).ok()?.details;
    let info = details.into_iter().find(|detail| detail.type_url == RETRY_INFO)?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay?;
    delay.try_into().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    /// 2026-01-01 00:00:00 UTC.
    #[derive(Debug)]
    struct NewYear;

    impl Clock for NewYear {
        fn now(&self) -> u64 {
            1_767_225_600_000_000
        }
    }

    fn of_header(text: &str) -> Option<Duration> {
        let value = HeaderValue::from_str(text).unwrap();
        of_http(&HeaderMap::from_iter([(RETRY_AFTER, value)]), &NewYear)
    }

    #[test]
    fn headers_have_seconds_or_a_date() {
        assert_eq!(of_header("7"), Some(Duration::from_secs(7)));
        let date = of_header("Thu, 01 Jan 2026 00:01:00 GMT");
        assert_eq!(date, Some(Duration::from_secs(60)));
        // A date in the past asks for no wait.
        for none in ["", "soon", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(of_header(none), None, "{none}");
        }
    }

    #[test]
    fn details_of_a_status_have_a_delay() {
        let delay = prost_types::Duration { seconds: 7, nanos: 500_000_000 };
        let info = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        let of = |type_url: &str| {
            let detail = prost_types::Any { type_url: type_url.to_owned(), value: info.clone() };
            of_grpc(&Details { details: vec![detail] }.encode_to_vec())
        };
        assert_eq!(of(RETRY_INFO), Some(Duration::from_millis(7_500)));
        assert_eq!(of("type.googleapis.com/google.rpc.Help"), None);
        assert_eq!(of_grpc(b"\xff"), None);
    }
}

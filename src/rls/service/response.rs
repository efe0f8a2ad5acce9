//! Encodes a decision as a `RateLimitResponse` for Envoy: as prost's message, or directly as the bytes that gRPC sends.

use prost::Message;

use super::metadata;
use super::rate_limit::ResponseOptions;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use pb::rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit};
use weir_api::headers::headers;
use weir_limit::{Unit, put_varint};
use weir_limiter::{Request, RequestDecision, ShownLimit, Status};

/// Bytes before each message of a gRPC stream: whether it is compressed, and its length.
pub const PREFIX_BYTES: usize = 5;

pub fn encode_message(
    request: &Request<'_>,
    decision: &RequestDecision<'_>,
    options: &ResponseOptions,
) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        overall_code: code(decision.over_limit),
        statuses: decision.statuses.iter().map(status).collect(),
        ..extras(request, decision, options)
    }
}

fn extras(
    request: &Request<'_>,
    decision: &RequestDecision<'_>,
    options: &ResponseOptions,
) -> pb::RateLimitResponse {
    pb::RateLimitResponse {
        response_headers_to_add: headers(&options.headers, decision),
        dynamic_metadata: options.dynamic_metadata.then(|| metadata::encode(request, decision)),
        ..Default::default()
    }
}

fn code(over_limit: bool) -> i32 {
    if over_limit { Code::OverLimit as i32 } else { Code::Ok as i32 }
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

/// Returns the seconds to the reset of the limit, or of the control that blocks, if there is either.
#[inline]
fn reset_seconds(status: &Status<'_>) -> Option<u64> {
    let seconds = status.reset_seconds();
    (status.limit.is_some() || seconds > 0).then_some(seconds)
}

fn unit(limit: &ShownLimit<'_>) -> i32 {
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

/// Returns the response to `request` as gRPC sends it, with its prefix.
pub fn encode_framed(
    request: &Request<'_>,
    decision: &RequestDecision<'_>,
    options: &ResponseOptions,
) -> Vec<u8> {
    let statuses: usize =
        decision.statuses.iter().map(|status| field_len(status_len(status))).sum();
    // prost encodes the rest, which is rarely enabled: concatenated messages are merged.
    let more = options.has_extras().then(|| extras(request, decision, options));
    let length = varint_len(code(decision.over_limit) as u64)
        + statuses
        + more.as_ref().map_or(0, Message::encoded_len);
    let mut out = Vec::with_capacity(PREFIX_BYTES + length);
    out.push(0);
    out.extend((length as u32).to_be_bytes());
    put_varint_field(1, code(decision.over_limit) as u64, &mut out);
    for status in &decision.statuses {
        put_length(2, status_len(status), &mut out);
        put_status(status, &mut out);
    }
    if let Some(more) = more {
        more.encode_raw(&mut out);
    }
    out
}

fn status_len(status: &Status<'_>) -> usize {
    let limit = status.limit.as_ref();
    varint_len(code(status.over_limit) as u64)
        + limit.map_or(0, |limit| field_len(limit_len(limit)))
        + varint_len(status.remaining.into())
        + reset_seconds(status).map_or(0, |seconds| field_len(varint_len(seconds)))
}

fn put_status(status: &Status<'_>, out: &mut Vec<u8>) {
    put_varint_field(1, code(status.over_limit) as u64, out);
    if let Some(limit) = &status.limit {
        put_length(2, limit_len(limit), out);
        put_limit(limit, out);
    }
    put_varint_field(3, status.remaining.into(), out);
    if let Some(seconds) = reset_seconds(status) {
        put_length(4, varint_len(seconds), out);
        put_varint_field(1, seconds, out);
    }
}

fn multiplier(limit: &ShownLimit<'_>) -> Option<u64> {
    (limit.unit_multiplier != 1).then_some(limit.unit_multiplier.into())
}

fn limit_len(limit: &ShownLimit<'_>) -> usize {
    let name = if limit.name.is_empty() { 0 } else { field_len(limit.name.len()) };
    varint_len(limit.requests_per_unit.into())
        + varint_len(unit(limit) as u64)
        + name
        + multiplier(limit).map_or(0, |multiplier| field_len(varint_len(multiplier)))
}

fn put_limit(limit: &ShownLimit<'_>, out: &mut Vec<u8>) {
    put_varint_field(1, limit.requests_per_unit.into(), out);
    put_varint_field(2, unit(limit) as u64, out);
    if !limit.name.is_empty() {
        put_length(3, limit.name.len(), out);
        out.extend_from_slice(limit.name.as_bytes());
    }
    if let Some(multiplier) = multiplier(limit) {
        put_length(4, varint_len(multiplier), out);
        put_varint_field(1, multiplier, out);
    }
}

/// Returns the bytes of a varint field; a 0 is omitted.
fn varint_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + prost::encoding::encoded_len_varint(value) }
}

/// Returns the bytes of a message or string field of this length.
fn field_len(length: usize) -> usize {
    1 + prost::encoding::encoded_len_varint(length as u64) + length
}

fn put_varint_field(field: u8, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        out.push(field << 3);
        put_varint(value, |byte| out.push(byte));
    }
}

fn put_length(field: u8, length: usize, out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    put_varint(length as u64, |byte| out.push(byte));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use weir_api::headers::{HeaderNames, HeaderOptions};
    use weir_limiter::Descriptor;

    const UNITS: [Option<Unit>; 8] = [
        None,
        Some(Unit::Second),
        Some(Unit::Minute),
        Some(Unit::Hour),
        Some(Unit::Day),
        Some(Unit::Week),
        Some(Unit::Month),
        Some(Unit::Year),
    ];

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), Just(1), 2_u32..300, any::<u32>()]
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z]{1,9}", "\\PC{0,200}"]
    }

    proptest! {
        #[test]
        fn the_encoding_is_that_of_prost(
            over_limit in any::<bool>(),
            parts in vec((any::<bool>(), any::<bool>(), number(), number(), number(), 0_usize..8, name(), any::<u64>()), 0..5),
            more in any::<bool>(),
        ) {
            let statuses = parts.iter().map(|(over, bare, n, multiplier, remaining, unit, name, reset)| Status {
                over_limit: *over,
                limit: (!bare).then_some(ShownLimit {
                    name,
                    requests_per_unit: *n,
                    unit: UNITS[*unit],
                    unit_multiplier: *multiplier,
                    burst: None,
                }),
                remaining: *remaining,
                reset_after: *reset,
                ..Status::default()
            });
            let decision = RequestDecision { over_limit, statuses: statuses.collect() };
            let names = HeaderNames { limit: "a".into(), remaining: "b".into(), reset: "c".into() };
            let headers = HeaderOptions { names: more.then_some(names), ..HeaderOptions::default() };
            let options = ResponseOptions {
                headers,
                dynamic_metadata: more,
                ..ResponseOptions::default()
            };
            let descriptors = [Descriptor { entries: &[("k", "v")], ..Default::default() }];
            let request = Request { domain: "d", descriptors: &descriptors, hits_addend: 3, ..Request::default() };
            let written = encode_framed(&request, &decision, &options);
            let message = encode_message(&request, &decision, &options);
            prop_assert_eq!(written[0], 0);
            prop_assert_eq!(&written[1..PREFIX_BYTES], &(message.encoded_len() as u32).to_be_bytes());
            let read = crate::proto::envoy::service::ratelimit::v3::RateLimitResponse::decode(&written[PREFIX_BYTES..]);
            prop_assert_eq!(read, Ok(message));
            prop_assert_eq!(written.capacity(), written.len());
        }
    }
}

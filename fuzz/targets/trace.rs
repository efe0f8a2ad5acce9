//! Headers with a caller's trace context: never a panic; `traceparent` and B3 are read as their texts say.
//!
//! The input is lines `NAME: VALUE`.

#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use weir::trace::context::SentTrace;

/// The decision, and the ids of the trace and of the span.
type Context = (Option<bool>, Option<(u128, u64)>);

fuzz_target!(|text: &str| {
    let mut headers = HeaderMap::new();
    for line in text.lines().take(32) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let Ok(value) = HeaderValue::from_str(value) else { continue };
        headers.append(name, value);
    }
    let caller = SentTrace::of(&headers);
    let span = caller.span_context(&headers);
    let ids = span.map(|span| {
        let (trace, span) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
        (u128::from_be_bytes(trace), u64::from_be_bytes(span))
    });
    assert_eq!((caller.sampled, ids), expected(&headers));
});

fn expected(headers: &HeaderMap) -> Context {
    // Bytes that are no text may follow what is read: the parent of B3's span, fields of later versions.
    let value = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let w3c = value("traceparent").and_then(|text| traceparent(&text));
    if let Some(context) = w3c.or_else(|| value("b3").and_then(|text| b3(&text))) {
        return context;
    }
    let [sampled, flags, trace, span] =
        ["x-b3-sampled", "x-b3-flags", "x-b3-traceid", "x-b3-spanid"].map(value);
    let sampled = match sampled.as_deref() {
        _ if flags.as_deref() == Some("1") => Some(true),
        Some("1" | "d" | "true") => Some(true),
        Some("0" | "false") => Some(false),
        _ => None,
    };
    let ids = trace.zip(span).filter(|_| sampled != Some(false));
    (sampled, ids.and_then(|(trace, span)| b3_ids(&trace, &span)))
}

fn traceparent(text: &str) -> Option<Context> {
    let is_lower = |part: &str| !part.bytes().any(|byte| byte.is_ascii_uppercase());
    let mut parts = text.splitn(5, '-');
    let [version, trace, span, flags] =
        [(); 4].map(|()| parts.next().filter(|part| is_lower(part)));
    let version = hex(version?, 2)?;
    let (trace, span, flags) = (hex(trace?, 32)?, hex(span?, 16)?, hex(flags?, 2)?);
    let is_known = version != 0xff && (version > 0 || parts.next().is_none());
    (is_known && trace > 0 && span > 0).then_some((Some(flags & 1 > 0), Some((trace, span as u64))))
}

fn b3(text: &str) -> Option<Context> {
    let decision = |text| match text {
        "0" => Some(false),
        "1" | "d" => Some(true),
        _ => None,
    };
    if let Some(sampled) = decision(text) {
        return Some((Some(sampled), None));
    }
    let mut parts = text.split('-');
    let ids = b3_ids(parts.next()?, parts.next()?)?;
    let sampled = match parts.next() {
        Some(part) => Some(decision(part)?),
        None => None,
    };
    Some((sampled, Some(ids)))
}

fn b3_ids(trace: &str, span: &str) -> Option<(u128, u64)> {
    let trace = hex(trace, 32).or_else(|| hex(trace, 16))?;
    let span = hex(span, 16)?;
    (trace > 0 && span > 0).then_some((trace, span as u64))
}

/// Reads a hexadecimal number of exactly `digits` digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

//! Reads the caller's trace context: W3C's `traceparent` and `tracestate`, and B3 in one header or in several.
//!
//! `traceparent` wins over B3. An invalid header is ignored, as if it were not there.

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The length of `00-<trace id>-<span id>-<flags>`.
const TRACEPARENT_BYTES: usize = 55;

/// What the caller sent about its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentTrace<'a> {
    /// Whether the caller records the trace; none if it leaves the decision to weir.
    pub sampled: Option<bool>,
    /// The trace and the caller's span; none if the trace starts here.
    parent: Option<Parent<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent<'a> {
    /// 32 hexadecimal digits, or 16 in B3.
    trace_id: &'a [u8],
    /// 16 hexadecimal digits.
    span_id: &'a [u8],
    /// Whether the context is from `traceparent`, which `tracestate` belongs to.
    is_w3c: bool,
}

impl<'a> SentTrace<'a> {
    pub fn of(headers: &'a HeaderMap) -> SentTrace<'a> {
        let mut first = FirstValues::default();
        // One pass over all headers costs less than a look-up of each name.
        for (name, value) in headers {
            let slot = match name.as_str() {
                "traceparent" => &mut first.traceparent,
                "b3" => &mut first.b3,
                "x-b3-traceid" => &mut first.trace_id,
                "x-b3-spanid" => &mut first.span_id,
                "x-b3-sampled" => &mut first.sampled,
                "x-b3-flags" => &mut first.flags,
                _ => continue,
            };
            slot.get_or_insert(value.as_bytes());
        }
        let w3c = first.traceparent.and_then(traceparent);
        w3c.or_else(|| first.b3.and_then(b3_single)).unwrap_or_else(|| b3_multiple(&first))
    }

    pub fn span_context(&self, headers: &HeaderMap) -> Option<SpanContext> {
        let Parent { trace_id, span_id, is_w3c } = self.parent?;
        let text = |digits| std::str::from_utf8(digits).ok();
        let trace_id = TraceId::from(u128::from_str_radix(text(trace_id)?, 16).ok()?);
        let span_id = SpanId::from(u64::from_str_radix(text(span_id)?, 16).ok()?);
        let state = || -> Option<TraceState> {
            let states = headers.get_all("tracestate").iter();
            let states: Result<Vec<_>, _> = states.map(|state| state.to_str()).collect();
            states.ok()?.join(",").parse().ok()
        };
        let state = if is_w3c { state().unwrap_or_default() } else { TraceState::default() };
        Some(SpanContext::new(trace_id, span_id, TraceFlags::SAMPLED, true, state))
    }
}

/// The first value of each header with a context.
#[derive(Default)]
struct FirstValues<'a> {
    traceparent: Option<&'a [u8]>,
    b3: Option<&'a [u8]>,
    /// The headers `x-b3-…`.
    trace_id: Option<&'a [u8]>,
    span_id: Option<&'a [u8]>,
    sampled: Option<&'a [u8]>,
    flags: Option<&'a [u8]>,
}

/// Reads `traceparent`. Later versions may have more fields at the end.
fn traceparent(header: &[u8]) -> Option<SentTrace<'_>> {
    let (known, rest) = header.split_at_checked(TRACEPARENT_BYTES)?;
    let known: &[u8; TRACEPARENT_BYTES] = known.try_into().ok()?;
    let (version, trace_id, span_id, flags) =
        (&known[..2], &known[3..35], &known[36..52], &known[53..]);
    let dashes = [known[2], known[35], known[52]];
    let is_known_length = rest.is_empty() || (version != b"00" && rest[0] == b'-');
    if dashes != *b"---" || version == b"ff" || !is_known_length {
        return None;
    }
    // All digits are checked at once, the dashes as zeros: 64 bytes are four vectors.
    let mut digits = [b'0'; 64];
    digits[..TRACEPARENT_BYTES].copy_from_slice(known);
    for dash in [2, 35, 52] {
        digits[dash] = b'0';
    }
    if !is_lower_hex(&digits) || is_zero(trace_id) || is_zero(span_id) {
        return None;
    }
    let sampled = char::from(flags[1]).to_digit(16)? & 1 > 0;
    Some(SentTrace {
        sampled: Some(sampled),
        parent: Some(Parent { trace_id, span_id, is_w3c: true }),
    })
}

/// Reads `b3`: the decision alone, or `<trace id>-<span id>[-<decision>[-<parent span id>]]`.
fn b3_single(header: &[u8]) -> Option<SentTrace<'_>> {
    if let Some(sampled) = b3_decision(header) {
        return Some(SentTrace { sampled: Some(sampled), parent: None });
    }
    let mut parts = header.split(|byte| *byte == b'-');
    let parent = b3_parent(parts.next()?, parts.next()?)?;
    let sampled = match parts.next() {
        Some(decision) => Some(b3_decision(decision)?),
        None => None,
    };
    Some(SentTrace { sampled, parent: Some(parent) })
}

fn b3_multiple<'a>(first: &FirstValues<'a>) -> SentTrace<'a> {
    let mut sampled = first.sampled.and_then(|decision| match decision {
        b"true" => Some(true),
        b"false" => Some(false),
        decision => b3_decision(decision),
    });
    // A trace to debug is recorded, whatever the other header says.
    if first.flags == Some(b"1") {
        sampled = Some(true);
    }
    if sampled == Some(false) {
        return SentTrace { sampled, parent: None };
    }
    let ids = first.trace_id.zip(first.span_id);
    SentTrace { sampled, parent: ids.and_then(|(trace_id, span_id)| b3_parent(trace_id, span_id)) }
}

fn b3_decision(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        // A trace to debug is recorded.
        b"1" | b"d" => Some(true),
        _ => None,
    }
}

fn b3_parent<'a>(trace_id: &'a [u8], span_id: &'a [u8]) -> Option<Parent<'a>> {
    let is_id = |id: &[u8]| id.iter().all(u8::is_ascii_hexdigit) && !is_zero(id);
    let lengths = matches!((trace_id.len(), span_id.len()), (16 | 32, 16));
    (lengths && is_id(trace_id) && is_id(span_id)).then_some(Parent {
        trace_id,
        span_id,
        is_w3c: false,
    })
}

/// Returns whether these are hexadecimal digits in lower case. Looks at all of them, which compiles to
/// fewer instructions than stopping at the first other.
fn is_lower_hex(text: &[u8; 64]) -> bool {
    let is_other = |byte: u8| (byte.wrapping_sub(b'0') >= 10) & (byte.wrapping_sub(b'a') >= 6);
    text.iter().fold(0, |others, byte| others | u8::from(is_other(*byte))) == 0
}

fn is_zero(id: &[u8]) -> bool {
    id.iter().all(|digit| *digit == b'0')
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        pairs.collect()
    }

    /// Returns the decision and whether there are ids.
    fn read(pairs: &[(&'static str, &str)]) -> (Option<bool>, bool) {
        let headers = headers(pairs);
        let caller = SentTrace::of(&headers);
        (caller.sampled, caller.parent.is_some())
    }

    #[test]
    fn w3c_contexts_are_read() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let header = format!("00-{TRACE}-{SPAN}-{flags}");
            assert_eq!(read(&[("traceparent", &header)]), (Some(sampled), true), "{header}");
        }
        let later = format!("01-{TRACE}-{SPAN}-01-more");
        assert_eq!(read(&[("traceparent", &later)]), (Some(true), true));
    }

    #[test]
    fn invalid_w3c_contexts_are_ignored() {
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.replace('4', "é").replace('b', "")),
        ] {
            assert_eq!(read(&[("traceparent", &bad)]), (None, false), "{bad}");
        }
    }

    #[test]
    fn b3_in_one_header_is_read() {
        for (header, wanted) in [
            ("0".into(), (Some(false), false)),
            ("1".into(), (Some(true), false)),
            (format!("{TRACE}-{SPAN}-0"), (Some(false), true)),
            (format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90"), (Some(true), true)),
            (format!("{TRACE}-{SPAN}-d"), (Some(true), true)),
            (format!("{TRACE}-{SPAN}"), (None, true)),
            (format!("{}-{SPAN}-1", &TRACE[16..]), (Some(true), true)),
            (format!("{TRACE}-{SPAN}-2"), (None, false)),
            (TRACE.to_owned(), (None, false)),
            (format!("{TRACE}-{}", &SPAN[1..]), (None, false)),
            ("-".into(), (None, false)),
        ] {
            assert_eq!(read(&[("b3", &header)]), wanted, "{header}");
        }
    }

    #[test]
    fn b3_in_several_headers_is_read() {
        let ids = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
        let with = |more: &[(&'static str, &'static str)]| read(&[&ids, more].concat());
        assert_eq!(with(&[("x-b3-sampled", "1")]), (Some(true), true));
        assert_eq!(with(&[("x-b3-sampled", "true")]), (Some(true), true));
        assert_eq!(with(&[("x-b3-sampled", "0")]), (Some(false), false));
        assert_eq!(with(&[("x-b3-flags", "1")]), (Some(true), true));
        assert_eq!(with(&[("x-b3-flags", "1"), ("x-b3-sampled", "0")]), (Some(true), true));
        assert_eq!(with(&[]), (None, true));
        assert_eq!(read(&[("x-b3-sampled", "0")]), (Some(false), false));
        assert_eq!(read(&[("x-b3-traceid", TRACE)]), (None, false));
        assert_eq!(read(&[]), (None, false));
    }

    #[test]
    fn traceparent_wins_over_b3_and_an_invalid_one_does_not() {
        let valid = format!("00-{TRACE}-{SPAN}-00");
        assert_eq!(read(&[("traceparent", &valid), ("b3", "1")]), (Some(false), true));
        assert_eq!(read(&[("traceparent", "00"), ("b3", "1")]), (Some(true), false));
    }

    /// Reads the headers with a look-up of each name.
    fn looked_up(headers: &HeaderMap) -> SentTrace<'_> {
        let get = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let w3c = get("traceparent").and_then(traceparent);
        w3c.or_else(|| get("b3").and_then(b3_single)).unwrap_or_else(|| {
            b3_multiple(&FirstValues {
                trace_id: get("x-b3-traceid"),
                span_id: get("x-b3-spanid"),
                sampled: get("x-b3-sampled"),
                flags: get("x-b3-flags"),
                ..FirstValues::default()
            })
        })
    }

    fn any_header() -> impl Strategy<Value = (&'static str, String)> {
        let ids = || prop_oneof![4 => Just(TRACE.to_owned()), 1 => Just("0".repeat(32))];
        let decision = || prop::sample::select(vec!["", "0", "1", "d", "true", "false"]);
        let w3c = (ids(), 0..4).prop_map(|(id, flags)| format!("00-{id}-{SPAN}-0{flags}"));
        let b3 = (ids(), decision()).prop_map(|(id, sampled)| match sampled {
            "" => format!("{id}-{SPAN}"),
            _ => format!("{id}-{SPAN}-{sampled}"),
        });
        prop_oneof![
            (Just("traceparent"), w3c),
            (Just("b3"), b3),
            (prop::sample::select(vec!["b3", "x-b3-sampled", "x-b3-flags"]), decision())
                .prop_map(|(name, decision)| (name, decision.to_owned())),
            (Just("x-b3-traceid"), ids()),
            (Just("x-b3-spanid"), Just(SPAN.to_owned())),
            (prop::sample::select(vec!["te", "x-b3-spanie", "traceparen"]), ids()),
        ]
    }

    proptest! {
        #[test]
        fn one_pass_reads_what_look_ups_find(pairs in prop::collection::vec(any_header(), 0..8)) {
            let mut headers = HeaderMap::new();
            for (name, value) in &pairs {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            prop_assert_eq!(SentTrace::of(&headers), looked_up(&headers), "{:?}", headers);
        }
    }

    #[test]
    fn the_callers_span_is_the_parent_with_its_state() {
        let w3c = format!("00-{TRACE}-{SPAN}-01");
        let headers = headers(&[("traceparent", &w3c), ("tracestate", "a=1,b=2")]);
        let parent = SentTrace::of(&headers).span_context(&headers).unwrap();
        assert_eq!((parent.trace_id().to_string(), parent.span_id().to_string()), {
            (TRACE.to_owned(), SPAN.to_owned())
        });
        assert_eq!(parent.trace_state().header(), "a=1,b=2");
        assert!(parent.is_remote() && parent.is_sampled());

        let short = format!("{}-{SPAN}-1", &TRACE[16..]);
        let headers = self::headers(&[("b3", &short), ("tracestate", "a=1")]);
        let parent = SentTrace::of(&headers).span_context(&headers).unwrap();
        assert_eq!(parent.trace_id().to_string(), format!("{}{}", "0".repeat(16), &TRACE[16..]));
        assert_eq!(parent.trace_state().header(), "");
    }
}

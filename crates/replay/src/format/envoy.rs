//! Envoy's default text format: what its access log writes if no format is configured.
//!
//! ```text
//! [START_TIME] "METHOD PATH PROTOCOL" STATUS FLAGS RECEIVED SENT DURATION UPSTREAM_TIME
//!     "X_FORWARDED_FOR" "USER_AGENT" "REQUEST_ID" "AUTHORITY" "UPSTREAM_HOST"
//! ```
//!
//! Envoy does not escape quotes. So the fields around the user agent, which may have any, are split off
//! from both ends.

use memchr::memmem;

use super::client::{CLIENT, Header, client};
use crate::rows::{Fields, Rows};

const NAMES: [&str; 15] = [
    "time",
    "method",
    "path",
    "protocol",
    "status",
    "flags",
    "bytes_received",
    "bytes_sent",
    "duration",
    "upstream_time",
    "x_forwarded_for",
    "user_agent",
    "request_id",
    "authority",
    "upstream_host",
];

/// Between quoted fields.
const QUOTES: &[u8] = b"\" \"";

/// The index of the header with the addresses of the client and of proxies.
const FORWARDED: usize = 10;

/// Reads lines.
#[derive(Debug)]
pub(crate) struct Envoy {
    /// The index of each field's value; that after the last for the client's address.
    values: Vec<Option<usize>>,
    hops: Option<usize>,
}

impl Envoy {
    pub fn new(fields: &Fields, hops: Option<usize>) -> Envoy {
        let index = |field: &String| NAMES.iter().chain([&CLIENT]).position(|name| name == field);
        Envoy { values: fields.names().iter().map(index).collect(), hops }
    }

    /// Reads a line. A `-` is a missing field.
    ///
    /// # Errors
    ///
    /// It has another format.
    #[inline]
    pub fn read(&self, line: &[u8], rows: &mut Rows) -> Result<(), String> {
        let values = split(line.trim_ascii()).ok_or_else(|| {
            "not in Envoy's default text format: write --format jsonl, csv, istio or combined if it is one \
             of these, or --log-format and its format"
                .to_owned()
        })?;
        for (index, at) in self.values.iter().enumerate() {
            let Some(at) = *at else { continue };
            match values.get(at) {
                Some(value) if *value != b"-" => rows.set(index, value),
                Some(_) => {}
                None => {
                    let forwarded = std::str::from_utf8(values[FORWARDED]).ok();
                    let forwarded = forwarded.filter(|list| *list != "-");
                    if let Some(address) = client(forwarded, Header::Sent, None, self.hops) {
                        rows.set_text(index, address);
                    }
                }
            }
        }
        Ok(())
    }
}

fn split(line: &[u8]) -> Option<[&[u8]; 15]> {
    let (time, rest) = cut(line.strip_prefix(b"[")?, b"] \"")?;
    let (method, rest) = cut(rest, b" ")?;
    let (target, rest) = cut_request(rest)?;
    let at = memchr::memrchr(b' ', target)?;
    let (path, protocol) = (&target[..at], &target[at + 1..]);
    let (numbers, rest) = cut(rest, b" \"")?;
    let mut numbers = numbers.split(|byte| *byte == b' ');
    let mut number = || numbers.next().filter(|number| !number.is_empty());
    let (status, flags, received) = (number()?, number()?, number()?);
    let (sent, duration, upstream_time) = (number()?, number()?, number()?);
    if number().is_some() {
        return None;
    }
    let (forwarded, rest) = cut(rest, QUOTES)?;
    let (rest, host) = cut_last(rest.strip_suffix(b"\"")?)?;
    let (rest, authority) = cut_last(rest)?;
    let (agent, request_id) = cut_last(rest)?;
    Some([
        time,
        method,
        path,
        protocol,
        status,
        flags,
        received,
        sent,
        duration,
        upstream_time,
        forwarded,
        agent,
        request_id,
        authority,
        host,
    ])
}

/// Splits off path and protocol. A path may have quotes; the protocol ends the request.
fn cut_request(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    memmem::find_iter(rest, b"\" ").find_map(|at| {
        let (target, rest) = (&rest[..at], &rest[at + 2..]);
        let protocol = &target[memchr::memrchr(b' ', target)? + 1..];
        (protocol.starts_with(b"HTTP/") || protocol == b"-").then_some((target, rest))
    })
}

fn cut<'t>(text: &'t [u8], at: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let found = memmem::find(text, at)?;
    Some((&text[..found], &text[found + at.len()..]))
}

fn cut_last(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let found = memmem::rfind(text, QUOTES)?;
    Some((&text[..found], &text[found + QUOTES.len()..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "[2026-11-22T10:00:00.000Z] \"GET /a?b=c HTTP/1.1\" 200 - 0 12 3 2 \"10.0.0.1\" \
                        \"curl/8.5.0\" \"6dd1f3c5\" \"shop.example\" \"127.0.0.1:8080\"";

    fn values(line: &str) -> Option<Vec<String>> {
        let values = split(line.as_bytes())?;
        Some(values.iter().map(|value| String::from_utf8_lossy(value).into_owned()).collect())
    }

    #[test]
    fn all_fields_are_read() {
        let expected = [
            "2026-11-22T10:00:00.000Z",
            "GET",
            "/a?b=c",
            "HTTP/1.1",
            "200",
            "-",
            "0",
            "12",
            "3",
            "2",
            "10.0.0.1",
            "curl/8.5.0",
            "6dd1f3c5",
            "shop.example",
            "127.0.0.1:8080",
        ];
        assert_eq!(values(LINE).unwrap(), expected);
    }

    #[test]
    fn missing_fields_are_left_out() {
        let line =
            "[2026-11-22T10:00:00.000Z] \"- - -\" 0 DPE 0 11 0 - \"-\" \"-\" \"-\" \"-\" \"-\"";
        let mut fields = Fields::default();
        for name in ["time", "path", "flags", "x_forwarded_for", "unknown", "client_address"] {
            fields.add(name);
        }
        let values = |line: &str| {
            let mut rows = Rows::new(6, 0);
            rows.start();
            Envoy::new(&fields, None).read(line.as_bytes(), &mut rows).unwrap();
            let value = |field| rows.get(field).unwrap_or("none").to_owned();
            (0..6).map(value).collect::<Vec<_>>()
        };
        let time = "2026-11-22T10:00:00.000Z";
        assert_eq!(values(line), [time, "none", "DPE", "none", "none", "none"]);
        let forwarded = LINE.replace("10.0.0.1", "10.0.0.1, 10.0.0.2");
        let list = "10.0.0.1, 10.0.0.2";
        assert_eq!(values(&forwarded), [time, "/a?b=c", "none", list, "none", "10.0.0.2"]);
    }

    #[test]
    fn other_lines_are_errors() {
        for line in ["GET / 200", "[2026] \"GET / HTTP/1.1\" 200", "[]", &LINE[..LINE.len() - 1]] {
            assert_eq!(values(line), None, "{line}");
        }
    }

    proptest! {
        /// Clients choose the path and the user agent.
        #[test]
        fn hostile_paths_and_agents_are_read(
            path in "/[a-z\"\\]\\[/-]{0,10}", agent in "[a-z\" /\\]\\[-]{1,12}"
        ) {
            let line = LINE.replace("/a?b=c", &path).replace("curl/8.5.0", &agent);
            let values = values(&line).unwrap();
            prop_assert_eq!((&values[2], &values[11]), (&path, &agent));
            prop_assert_eq!(&values[13], "shop.example");
        }

        #[test]
        fn no_line_panics(line in "[\\[\\]\" a-]{0,60}") {
            let _ = split(line.as_bytes());
        }
    }
}

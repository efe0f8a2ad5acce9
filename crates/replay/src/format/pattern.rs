//! Splits the lines of an access log into values, by a known format: which values there are, and the text between them.
//!
//! Apache and nginx escape quotes, so a quote ends a value. Envoy does not, and a client's user agent may have quotes.
//! So the values before it are read from the start of the line, and those after it from the end.

use std::borrow::Cow;

use memchr::memmem;

use super::client::{CLIENT, Header, client};
use crate::rows::{Fields, Rows};

/// A value in the format, and the fixed text after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub names: Vec<String>,
    pub content: Content,
    /// The text up to the next value, or up to the end of the line.
    pub after: String,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Value,
    /// A path, which may have spaces; the protocol follows.
    Path,
    /// Any text that a client chose.
    Text,
    /// The first line of a request: method, path and protocol.
    Request,
}

/// The parts of the first line of a request, which have fields of their own.
const REQUEST: [&str; 3] = ["method", "path", "protocol"];

/// The fields that have the address of the client, if a proxy wrote the log.
const REMOTE: [&str; 3] =
    ["downstream_remote_address", "downstream_remote_address_without_port", "remote_host"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The text before the first value.
    pub before: String,
    pub columns: Vec<Column>,
    /// Whether quotes and backslashes in values have a backslash before them: those of Apache and nginx.
    pub escapes: bool,
}

#[derive(Debug)]
pub(crate) struct PatternReader {
    pattern: Pattern,
    /// The column that is found from both ends.
    pivot: usize,
    /// The fields, and where their values are.
    sources: Vec<(usize, Source)>,
    hops: Option<usize>,
    header: Header,
    /// The columns of the addresses in the header and of the client.
    forwarded: Option<usize>,
    remote: Option<usize>,
    /// The value of each column in the line.
    found: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Column(usize),
    /// A part of the first line of a request: the column, and the number of the part.
    Request(usize, usize),
    Client,
}

impl Pattern {
    pub fn has_field(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn names(&self) -> Vec<&str> {
        let names = self.columns.iter().filter_map(|column| column.names.first());
        names.map(String::as_str).collect()
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.names.iter().any(|known| known == name))
    }

    fn remote(&self) -> Option<usize> {
        REMOTE.iter().find_map(|name| self.column(name))
    }

    fn find(&self, name: &str) -> Option<Source> {
        if let Some(column) = self.column(name) {
            return Some(Source::Column(column));
        }
        if name == CLIENT && (self.remote().is_some() || self.column("x_forwarded_for").is_some()) {
            return Some(Source::Client);
        }
        let part = REQUEST.iter().position(|part| *part == name)?;
        let is_request = |column: &Column| column.content == Content::Request;
        Some(Source::Request(self.columns.iter().position(is_request)?, part))
    }

    /// Where a value ends.
    fn end(&self, column: &Column, rest: &[u8]) -> Option<usize> {
        let after = column.after.as_bytes();
        if column.content == Content::Path && after == b" " {
            // A path may have spaces; the protocol mostly follows.
            let is_end = |at: &usize| {
                rest[at + 1..].starts_with(b"HTTP/") || rest[at + 1..].starts_with(b"-\"")
            };
            let end = memchr::memchr_iter(b' ', rest).find(is_end);
            return end.or_else(|| memchr::memchr(b' ', rest));
        }
        if !self.escapes {
            return match after {
                [byte] => memchr::memchr(*byte, rest),
                _ => memmem::find(rest, after),
            };
        }
        let backslashes =
            |at: usize| rest[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        memmem::find_iter(rest, after).find(|at| backslashes(*at) % 2 == 0)
    }
}

impl PatternReader {
    pub fn new(pattern: Pattern, fields: &Fields, hops: Option<usize>) -> PatternReader {
        let last = pattern.columns.len().saturating_sub(1);
        let is_text = |column: &Column| column.content == Content::Text;
        let pivot = match pattern.escapes {
            true => last,
            false => pattern.columns.iter().position(is_text).unwrap_or(last),
        };
        let names = fields.names.iter().enumerate();
        PatternReader {
            pivot,
            sources: names.filter_map(|(field, name)| Some((field, pattern.find(name)?))).collect(),
            hops,
            header: if pattern.escapes { Header::Received } else { Header::Sent },
            forwarded: pattern.column("x_forwarded_for"),
            remote: pattern.remote(),
            found: Vec::with_capacity(pattern.columns.len()),
            pattern,
        }
    }

    /// Reads a line. A `-` is a missing field. Returns whether the line has the format.
    pub fn read(&mut self, line: &[u8], rows: &mut Rows) -> bool {
        if self.split(line).is_none() {
            return false;
        }
        for (field, source) in &self.sources {
            match *source {
                Source::Column(column) => {
                    if let Some(value) = self.value(line, column) {
                        rows.set(*field, &value);
                    }
                }
                Source::Request(column, part) => {
                    let value = self.value(line, column);
                    if let Some(part) = value.as_deref().and_then(|value| request_part(value, part))
                    {
                        rows.set(*field, part);
                    }
                }
                Source::Client => {
                    let value = |column: Option<usize>| self.value(line, column?);
                    let (forwarded, remote) = (value(self.forwarded), value(self.remote));
                    let (forwarded, remote) = (as_text(&forwarded), as_text(&remote));
                    if let Some(address) = client(forwarded, self.header, remote, self.hops) {
                        rows.set_text(*field, address);
                    }
                }
            }
        }
        true
    }

    /// Finds the values of a line; none if it has another format.
    fn split(&mut self, line: &[u8]) -> Option<()> {
        let columns = &self.pattern.columns;
        let end = columns.last()?.after.as_bytes();
        let mut left = self.pattern.before.len();
        let mut right = line.strip_suffix(end)?.len();
        line.strip_prefix(self.pattern.before.as_bytes()).filter(|_| left <= right)?;
        self.found.clear();
        self.found.resize(columns.len(), (0, 0));
        for (column, found) in columns.iter().zip(&mut self.found).take(self.pivot) {
            let at = left + self.pattern.end(column, line.get(left..right)?)?;
            *found = (left, at);
            left = at + column.after.len();
        }
        for at in (self.pivot + 1..columns.len()).rev() {
            let before = columns.get(at - 1)?.after.as_bytes();
            let start = left + memmem::rfind(line.get(left..right)?, before)?;
            *self.found.get_mut(at)? = (start + before.len(), right);
            right = start;
        }
        *self.found.get_mut(self.pivot)? = (left, right);
        (left <= right).then_some(())
    }

    fn value<'l>(&self, line: &'l [u8], column: usize) -> Option<Cow<'l, [u8]>> {
        let (start, end) = *self.found.get(column)?;
        let value = line.get(start..end)?;
        if value == b"-" || value.is_empty() {
            return None;
        }
        match self.pattern.escapes && value.contains(&b'\\') {
            true => Some(unescaped(value).into()),
            false => Some(value.into()),
        }
    }
}

fn as_text<'v>(value: &'v Option<Cow<'_, [u8]>>) -> Option<&'v str> {
    std::str::from_utf8(value.as_deref()?).ok()
}

/// The method, path or protocol of the first line of a request; none if it is no such line.
fn request_part(line: &[u8], part: usize) -> Option<&[u8]> {
    let (first, last) = (memchr::memchr(b' ', line)?, memchr::memrchr(b' ', line)?);
    match part {
        0 => line.get(..first),
        // HTTP/0.9 has no protocol.
        1 if first == last => line.get(first + 1..),
        1 => line.get(first + 1..last),
        _ if first == last => None,
        _ => line.get(last + 1..),
    }
}

/// Replaces `\"`, `\\` and `\x22`, as Apache and nginx write them.
fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((byte, after)) = rest.split_first() {
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', digits @ ..]) if digits.get(..2).and_then(hex).is_some() => {
                (digits.get(..2).and_then(hex).unwrap_or_default(), &digits[2..])
            }
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [escaped @ (b'"' | b'\\'), after @ ..]) => (*escaped, after),
            _ => (*byte, after),
        };
        out.push(byte);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::log_format::{ENVOY, ISTIO, combined, parse};
    use super::*;

    /// The values of these fields in a line.
    fn values(
        pattern: &Pattern,
        hops: Option<usize>,
        names: &[&str],
        line: &str,
    ) -> Option<Vec<String>> {
        let mut fields = Fields::default();
        for name in names {
            fields.add(name);
        }
        let mut rows = Rows::new(names.len(), 0);
        rows.start();
        let mut reader = PatternReader::new(pattern.clone(), &fields, hops);
        reader.read(line.as_bytes(), &mut rows).then(|| {
            let value = |field| rows.get(field).unwrap_or("none").to_owned();
            (0..names.len()).map(value).collect()
        })
    }

    const ENVOY_LINE: &str = "[2026-11-22T10:00:00.000Z] \"GET /a?b=c HTTP/1.1\" 200 - 0 12 3 2 \"10.0.0.1\" \
         \"curl/8.5.0\" \"6dd1f3c5\" \"shop.example\" \"127.0.0.1:8080\"";

    #[test]
    fn lines_of_envoy_are_read() {
        let fields = [
            ("time", "2026-11-22T10:00:00.000Z"),
            ("method", "GET"),
            ("path", "/a?b=c"),
            ("protocol", "HTTP/1.1"),
            ("status", "200"),
            ("flags", "none"),
            ("bytes_received", "0"),
            ("bytes_sent", "12"),
            ("duration", "3"),
            ("upstream_time", "2"),
            ("x_forwarded_for", "10.0.0.1"),
            ("user_agent", "curl/8.5.0"),
            ("request_id", "6dd1f3c5"),
            ("authority", "shop.example"),
            ("upstream_host", "127.0.0.1:8080"),
        ];
        let found = values(&parse(ENVOY).unwrap(), None, &fields.map(|(name, _)| name), ENVOY_LINE);
        assert_eq!(found.unwrap(), fields.map(|(_, value)| value));
        let names = ["time", "path", "flags", "x_forwarded_for", "unknown", "client_address"];
        let line =
            "[2026-11-22T10:00:00.000Z] \"- - -\" 0 DPE 0 11 0 - \"-\" \"-\" \"-\" \"-\" \"-\"";
        let time = "2026-11-22T10:00:00.000Z";
        let found = values(&parse(ENVOY).unwrap(), None, &names, line).unwrap();
        assert_eq!(found, [time, "none", "DPE", "none", "none", "none"]);
        let list = "10.0.0.1, 10.0.0.2";
        let found =
            values(&parse(ENVOY).unwrap(), None, &names, &ENVOY_LINE.replace("10.0.0.1", list))
                .unwrap();
        assert_eq!(found, [time, "/a?b=c", "none", list, "none", "10.0.0.2"]);
        let cut = &ENVOY_LINE[..ENVOY_LINE.len() - 1];
        for line in ["GET / 200", "[2026] \"GET / HTTP/1.1\" 200", "[]", cut] {
            assert_eq!(values(&parse(ENVOY).unwrap(), None, &names, line), None, "{line}");
        }
    }

    const ISTIO_LINE: &str = "[2026-11-22T10:00:00.000Z] \"GET /a?b=c HTTP/1.1\" 200 - via_upstream - \"-\" 0 12 3 2 \
         \"192.0.2.1,192.0.2.2\" \"curl/8.5.0\" \"6dd1\" \"shop.example\" \"10.0.0.9:8080\" \
         outbound|80||cart.shop.svc.cluster.local 10.0.0.7:1 10.0.0.7:8080 192.0.2.2:51000 - default";

    #[test]
    fn lines_of_istio_are_read() {
        let names = [
            "time",
            "method",
            "path",
            "status",
            "x_forwarded_for",
            "user_agent",
            "authority",
            "upstream_cluster",
            "route_name",
            "client_address",
            "requested_server_name",
        ];
        let expected = [
            "2026-11-22T10:00:00.000Z",
            "GET",
            "/a?b=c",
            "200",
            "192.0.2.1,192.0.2.2",
            "curl/8.5.0",
            "shop.example",
            "outbound|80||cart.shop.svc.cluster.local",
            "default",
            "192.0.2.2",
            "none",
        ];
        assert_eq!(values(&parse(ISTIO).unwrap(), None, &names, ISTIO_LINE).unwrap(), expected);
        let hops =
            values(&parse(ISTIO).unwrap(), Some(1), &["client_address"], ISTIO_LINE).unwrap();
        assert_eq!(hops, ["192.0.2.1"]);
        let cut = &ISTIO_LINE[..ISTIO_LINE.len() - 20];
        assert_eq!(values(&parse(ISTIO).unwrap(), None, &names, cut), None);
    }

    #[test]
    fn lines_of_apache_and_nginx_are_read() {
        let names = [
            "client_address",
            "user",
            "method",
            "path",
            "protocol",
            "status",
            "referer",
            "user_agent",
        ];
        let line = r#"192.0.2.7 - ann [22/Nov/2026:10:00:00 +0100] "GET /a b HTTP/1.1" 200 12 "-" "a \"b\" \\ \x22""#;
        let expected =
            ["192.0.2.7", "ann", "GET", "/a b", "HTTP/1.1", "200", "none", "a \"b\" \\ \""];
        assert_eq!(values(&combined(false), None, &names, line).unwrap(), expected);
        let scan = r#"192.0.2.7 - - [22/Nov/2026:10:00:00 +0100] "\x16\x03" 400 0 "-" "-""#;
        let found = values(&combined(false), None, &names, scan).unwrap();
        assert_eq!(found[2..5], ["none", "none", "none"]);
        let time = values(&combined(false), None, &["time"], line).unwrap();
        assert_eq!(time, ["22/Nov/2026:10:00:00 +0100"]);
    }

    proptest! {
        #[test]
        fn hostile_agents_are_read(path in "/[a-z\"\\]\\[/-]{0,10}", agent in "[a-z\" /\\]\\[-]{2,12}") {
            for (format, line) in [(ENVOY, ENVOY_LINE), (ISTIO, ISTIO_LINE)] {
                let line = line.replace("/a?b=c", &path).replace("curl/8.5.0", &agent);
                let found = values(&parse(format).unwrap(), None, &["path", "user_agent", "authority"], &line);
                prop_assert_eq!(found.unwrap(), [&path, &agent, "shop.example"]);
            }
        }

        #[test]
        fn no_line_panics(line in "[\\[\\]\" \\\\a-]{0,60}") {
            let formats = [ENVOY, ISTIO, "%REQ(A)%|%REQ(B)%"].map(|format| parse(format).unwrap());
            for format in formats.iter().chain(&[combined(false), combined(true)]) {
                let _ = values(format, Some(1), &["path", "client_address", "user_agent"], &line);
            }
        }
    }
}

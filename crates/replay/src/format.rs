//! Reads the lines of an access log in one of the formats that `weir replay` knows, or in that of `--log-format`.

pub(super) mod client;
pub(super) mod csv;
mod json;
pub(super) mod log_format;
pub(super) mod pattern;

use std::path::Path;

use clap::ValueEnum;

use self::client::ProxyJson;
use self::csv::{Csv, Line};
use self::json::Json;
use self::log_format::{ENVOY, ISTIO, combined};
use self::pattern::{Pattern, PatternReader};
use crate::rows::{Fields, Rows};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values; the first line names the fields.
    Csv,
    /// Envoy's default text format.
    Envoy,
    /// Istio's default text format, or its JSON.
    Istio,
    /// Envoy Gateway's default JSON.
    EnvoyGateway,
    /// The combined format of Apache and nginx, also with X-Forwarded-For at the end.
    Combined,
}

#[derive(Debug)]
pub(super) enum LineReader {
    Json(Json),
    Csv(Box<Csv>),
    Patterns(Patterns),
}

/// Reads lines of one of several formats.
#[derive(Debug)]
pub(super) struct Patterns {
    /// The patterns that are tried, in this order.
    patterns: Vec<PatternReader>,
    json: Option<Box<ProxyJson>>,
    /// The error of a line in none of the formats.
    error: String,
}

impl InputFormat {
    /// Guesses the format from the name of the file and its first line.
    pub fn guess(name: &str, first_line: &[u8]) -> InputFormat {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        if Path::new(name).extension().is_some_and(|extension| extension == "csv") {
            return InputFormat::Csv;
        }
        match first_line.trim_ascii_start().first() {
            Some(b'{') => InputFormat::Jsonl,
            _ => InputFormat::Envoy,
        }
    }

    /// The keys of fields that other formats name differently.
    pub fn aliases(self) -> &'static [(&'static str, &'static str)] {
        match self {
            InputFormat::Istio => &[
                ("time", "start_time"),
                ("status", "response_code"),
                ("flags", "response_flags"),
                ("upstream_time", "upstream_service_time"),
            ],
            InputFormat::EnvoyGateway => &[
                ("time", "start_time"),
                ("path", "x-envoy-origin-path"),
                ("status", "response_code"),
                ("flags", "response_flags"),
                ("upstream_time", "x-envoy-upstream-service-time"),
                ("x_forwarded_for", "x-forwarded-for"),
                ("user_agent", "user-agent"),
                ("request_id", "x-request-id"),
                ("authority", ":authority"),
            ],
            _ => &[],
        }
    }

    /// The fields from which the client's address is found, if the format is JSON that has them.
    pub fn client_sources(self) -> Option<[&'static str; 2]> {
        match self {
            InputFormat::Istio | InputFormat::EnvoyGateway => {
                Some(["x_forwarded_for", "downstream_remote_address"])
            }
            _ => None,
        }
    }
}

impl LineReader {
    /// Returns a reader of these fields. `hops` are the trusted proxies before the one that wrote the log.
    pub fn new(format: InputFormat, fields: &Fields, hops: Option<usize>) -> LineReader {
        let parsed = |format: &str| Vec::from_iter(log_format::parse(format));
        let (patterns, name) = match format {
            InputFormat::Jsonl => return LineReader::Json(Json::default()),
            InputFormat::Csv => return LineReader::Csv(Box::new(Csv::new())),
            InputFormat::Envoy => (parsed(ENVOY), "Envoy's default text format"),
            InputFormat::Istio => (parsed(ISTIO), "Istio's default text format"),
            InputFormat::EnvoyGateway => (Vec::new(), "the default JSON of Envoy Gateway"),
            InputFormat::Combined => {
                (vec![combined(true), combined(false)], "the combined format of Apache and nginx")
            }
        };
        let help = match format {
            InputFormat::Envoy => {
                "write --format jsonl, csv, istio or combined if it is one of these, or --log-format and its format"
            }
            _ => "write --log-format and the format that it has",
        };
        let readers = patterns.into_iter().map(|pattern| PatternReader::new(pattern, fields, hops));
        let json = format.client_sources();
        LineReader::Patterns(Patterns {
            patterns: readers.collect(),
            json: json.map(|sources| Box::new(ProxyJson::new(sources, fields, hops))),
            error: format!("not in {name}: {help}"),
        })
    }

    pub fn of_pattern(pattern: Pattern, fields: &Fields, hops: Option<usize>) -> LineReader {
        let patterns = vec![PatternReader::new(pattern, fields, hops)];
        let error = "not in the format of --log-format: copy the format from the configuration of the program that \
                     wrote this line";
        LineReader::Patterns(Patterns { patterns, json: None, error: error.to_owned() })
    }

    /// Whether the line goes on after a part of it, in a quoted value, given whether it did before the part.
    pub fn is_open_after(&self, is_open: bool, part: &[u8]) -> bool {
        matches!(self, LineReader::Csv(_)) && csv::is_open_after(is_open, part)
    }

    /// Reads a line that is not empty into the unfinished row.
    #[inline]
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<Line, String> {
        match self {
            LineReader::Json(json) => json.read(line, fields, rows).map(|()| Line::Row),
            LineReader::Csv(csv) => csv.read(line, fields, rows),
            LineReader::Patterns(patterns) => {
                patterns.read(line.trim_ascii(), fields, rows).map(|()| Line::Row)
            }
        }
    }
}

impl Patterns {
    fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
        if let Some(json) = self.json.as_mut().filter(|_| line.starts_with(b"{")) {
            return json.read(line, fields, rows);
        }
        match self.patterns.iter_mut().position(|pattern| pattern.read(line, rows)) {
            Some(at) => {
                // Mostly, all lines have one of them.
                self.patterns.swap(0, at);
                Ok(())
            }
            None => Err(self.error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_guessed() {
        for (name, line, format) in [
            ("a.log", "{\"a\": 1}", InputFormat::Jsonl),
            ("<stdin>", "  {", InputFormat::Jsonl),
            ("a.csv", "time,path", InputFormat::Csv),
            ("a.csv.gz", "time,path", InputFormat::Csv),
            ("a.log.gz", "[2026-01-01T00:00:00Z] \"GET", InputFormat::Envoy),
        ] {
            assert_eq!(InputFormat::guess(name, line.as_bytes()), format, "{name} {line}");
        }
    }
}

//! The formats of logs.

mod csv;
mod envoy;
mod json;

use std::path::Path;

use clap::ValueEnum;

use self::csv::Csv;
use self::json::Json;
use super::rows::{Fields, Rows};
use weir_rules::truncate;

/// How much of a value an error shows, in bytes.
const MAX_SHOWN_BYTES: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values; the first line names the fields.
    Csv,
    /// Envoy's default text format.
    Envoy,
}

/// Reads the lines of a log into rows.
#[derive(Debug)]
pub(super) enum LineReader {
    Json(Json),
    Csv(Box<Csv>),
    Envoy,
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Row,
    /// A header.
    Ignored,
}

impl Format {
    /// Guesses the format from the name of the file and its first line.
    pub fn guess(name: &str, first_line: &[u8]) -> Format {
        let name = name.strip_suffix(".gz").unwrap_or(name);
        if Path::new(name).extension().is_some_and(|extension| extension == "csv") {
            return Format::Csv;
        }
        match first_line.trim_ascii_start().first() {
            Some(b'{') => Format::Jsonl,
            _ => Format::Envoy,
        }
    }
}

impl LineReader {
    pub fn new(format: Format) -> LineReader {
        match format {
            Format::Jsonl => LineReader::Json(Json::default()),
            Format::Csv => LineReader::Csv(Box::new(Csv::new())),
            Format::Envoy => LineReader::Envoy,
        }
    }

    /// Whether the line break after a part of a line is quoted, and so a part of the line too. `is_open`
    /// is that of the part before.
    pub fn is_open_after(&self, is_open: bool, part: &[u8]) -> bool {
        matches!(self, LineReader::Csv(_)) && csv::is_open_after(is_open, part)
    }

    /// Reads a line that is not empty into the unfinished row.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    #[inline]
    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<Line, String> {
        match self {
            LineReader::Json(json) => json.read(line, fields, rows).map(|()| Line::Row),
            LineReader::Csv(csv) => csv.read(line, fields, rows),
            LineReader::Envoy => envoy::read(line, fields, rows).map(|()| Line::Row),
        }
    }
}

/// The start of a text.
pub(super) fn shown(text: &str) -> String {
    let mut shown = text.to_owned();
    truncate(&mut shown, MAX_SHOWN_BYTES);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_guessed() {
        for (name, line, format) in [
            ("a.log", "{\"a\": 1}", Format::Jsonl),
            ("<stdin>", "  {", Format::Jsonl),
            ("a.csv", "time,path", Format::Csv),
            ("a.csv.gz", "time,path", Format::Csv),
            ("a.log.gz", "[2026-01-01T00:00:00Z] \"GET", Format::Envoy),
        ] {
            assert_eq!(Format::guess(name, line.as_bytes()), format, "{name} {line}");
        }
    }
}

//! What is wrong with rule files, told so that it can be mended.

use std::fmt::Write;

use super::Origin;
use super::yaml::Place;
use crate::escape::escape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The set of rules cannot be used.
    Error,
    /// It can, but something in it does not do what it seems to.
    Warning,
}

/// One problem of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// The file as it was named.
    pub file: String,
    /// None where the problem is the file itself.
    pub place: Option<Place>,
    /// What is wrong; with the reference's words where it has some.
    pub message: String,
    /// The offending text; empty where there is none to show.
    pub text: String,
    /// Where the first of two duplicates is.
    pub first: Option<Box<Origin>>,
    /// What to write instead.
    pub help: String,
}

/// Bytes kept of a message or a help text: both may quote what the file says, at any length.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// Bytes kept of the offending text.
const MAX_TEXT_BYTES: usize = 200;

/// The longest line that is shown, in bytes: to find its way through a file of a single line would
/// take longer for each problem than reading the file did.
const LONGEST_LINE: usize = 20_000;

/// The lines of a text as YAML counts them: a carriage return alone ends one too.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else { return rest.take() };
        let after = &text[end..];
        rest = after.strip_prefix("\r\n").or_else(|| after.get(1..));
        Some(&text[..end])
    })
}

impl Problem {
    /// A problem of a whole file.
    pub fn of_file(file: &str, message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem {
            severity: Severity::Error,
            file: file.to_owned(),
            place: None,
            message: message.into(),
            text: String::new(),
            first: None,
            help: help.into(),
        }
    }

    /// Shortens each part that quotes the file.
    pub(super) fn shorten(&mut self) {
        truncate(&mut self.message, MAX_MESSAGE_BYTES);
        truncate(&mut self.help, MAX_MESSAGE_BYTES);
        truncate(&mut self.text, MAX_TEXT_BYTES);
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The problem in full: file, line, column, message; the line it stands in with the offending
    /// text marked; what to write instead. `line` is that line, if known. What the file brought
    /// is escaped.
    pub fn render(&self, line: Option<&str>) -> String {
        let mut out = self.to_string();
        if let Some(place) = self.place
            && let Some(line) = line.filter(|line| line.len() <= LONGEST_LINE)
        {
            let line = line.replace('\t', " ");
            let at = line.char_indices().nth(place.column as usize - 1).map_or(line.len(), |c| c.0);
            let (before, rest) = line.split_at(at);
            let marked = self.text.lines().next().map_or(1, |text| text.chars().count());
            let marked: String = rest.chars().take(marked.max(1)).collect();
            let count = |text: &str| escape(text).chars().count();
            // A line of a thousand letters would hide what it is to show.
            let from = count(before).saturating_sub(60);
            let shown: String = escape(&line).chars().skip(from).take(120).collect();
            let number = place.line.to_string();
            let margin = " ".repeat(number.len());
            let indent = " ".repeat(count(before) - from);
            let marks = "^".repeat(count(&marked).max(1).min(120 - indent.len().min(119)));
            let _ = write!(out, "\n {number} | {shown}\n {margin} | {indent}{marks}");
        }
        if let Some(first) = &self.first {
            let _ = write!(out, "\n  note: the first is at {}", escape(&first.to_string()));
        }
        let _ = write!(out, "\n  help: {}", escape(&self.help));
        out
    }
}

/// Cuts `text` to at most `max` bytes and marks the cut.
pub(crate) fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
        text.shrink_to_fit();
    }
}

/// `file:line:column: error: message`, in one line.
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", escape(&self.file))?;
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        let severity = if self.is_error() { "error" } else { "warning" };
        write!(f, " {severity}: {}", escape(&self.message))
    }
}

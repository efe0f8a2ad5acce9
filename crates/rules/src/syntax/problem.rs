//! A problem of a rule file: an error or a warning, with its position and a fix.

#![warn(missing_docs)]

use std::fmt::{self, Write};

use super::position::{Origin, Position};
use weir_common::escape::escape;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The rule set cannot be used.
    Error,
    /// The rule set can be used, but part of it has no effect or an unexpected one.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// An error or a warning about one file or resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the rules can be used nevertheless.
    pub severity: Severity,
    /// The name of the file or resource.
    pub file: String,
    /// The line and the column; none for a problem of the whole file.
    pub position: Option<Position>,
    /// The cause, in the reference's words where it reports the same.
    pub message: String,
    /// The offending text; empty if there is none to show.
    pub text: String,
    /// The position of the first of two duplicates.
    pub first: Option<Box<Origin>>,
    /// What to write instead.
    pub help: String,
}

/// The maximum length of a message and of a help text: both may quote the file.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// The maximum length of the offending text.
const MAX_TEXT_BYTES: usize = 200;

/// The longest line that is shown. To search a file of a single line for each of its problems would
/// take longer than reading the file.
const MAX_LINE_BYTES: usize = 20_000;

/// Splits a text into lines as YAML counts them: a lone carriage return ends one too.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
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
    /// Creates an error about a whole file.
    pub fn of_file(file: &str, message: impl Into<String>, help: impl Into<String>) -> Problem {
        Problem {
            severity: Severity::Error,
            file: file.to_owned(),
            position: None,
            message: message.into(),
            text: String::new(),
            first: None,
            help: help.into(),
        }
    }

    /// Puts the problem at a position.
    pub fn at(self, position: Position) -> Problem {
        Problem { position: Some(position), ..self }
    }

    /// Sets the offending text.
    pub fn about(self, text: impl Into<String>) -> Problem {
        Problem { text: text.into(), ..self }
    }

    /// Sets the position of the first of two duplicates.
    pub(crate) fn with_first(self, first: Origin) -> Problem {
        Problem { first: Some(Box::new(first)), ..self }
    }

    /// Makes it a warning.
    pub fn warning(self) -> Problem {
        Problem { severity: Severity::Warning, ..self }
    }

    /// Truncates each part that quotes the file.
    pub(crate) fn shorten(&mut self) {
        truncate(&mut self.message, MAX_MESSAGE_BYTES);
        truncate(&mut self.help, MAX_MESSAGE_BYTES);
        truncate(&mut self.text, MAX_TEXT_BYTES);
    }

    /// Returns the place as `file:line:column`, or the file alone.
    pub(crate) fn place(&self) -> String {
        match self.position {
            Some(Position::Line { line, column }) => format!("{}:{line}:{column}", self.file),
            _ => self.file.clone(),
        }
    }

    /// Returns whether the rule set cannot be used because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Renders the problem: file, line, column and message; the line with the offending text
    /// marked; the fix. `line` is that line, if known. Quoted text is escaped.
    pub fn render(&self, line: Option<&str>) -> String {
        let mut out = self.to_string();
        // Writing to a string cannot fail.
        if let Some(Position::Line { line: number, column }) = self.position
            && let Some(line) = line.filter(|line| line.len() <= MAX_LINE_BYTES)
        {
            let line = line.replace('\t', " ");
            let at = line.char_indices().nth(column as usize - 1).map_or(line.len(), |c| c.0);
            let (before, rest) = line.split_at(at);
            let marked = self.text.lines().next().map_or(1, |text| text.chars().count());
            let marked: String = rest.chars().take(marked.max(1)).collect();
            let count = |text: &str| escape(text).chars().count();
            // Of a long line, only the part around the problem is shown.
            let start = count(before).saturating_sub(60);
            let shown: String = escape(&line).chars().skip(start).take(120).collect();
            let margin = " ".repeat(number.to_string().len());
            let indent = " ".repeat(count(before) - start);
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

/// Truncates `text` to at most `max` bytes and marks the cut with an ellipsis.
pub fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
        text.shrink_to_fit();
    }
}

/// `file:line:column: error: message`, in one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", escape(&self.file))?;
        if let Some(Position::Line { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}: {}", self.severity.name(), escape(&self.message))
    }
}

//! A problem of a rule file: an error or a warning, with its position and a fix. The problems of a rule set are
//! collected up to a limit, and the others counted.
//!
//! A file may have a million problems, and a set any number of files. What is kept, logged and sent to
//! a management server must grow with neither.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::position::{Origin, Position};
use weir_common::escape::escape;
use weir_common::named_enum;
use weir_common::truncate::truncated;

named_enum! {
    /// How bad a problem is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Severity, name {
        /// The rule set cannot be used.
        Error = "error",
        /// The rule set can be used, but part of it has no effect or an unexpected one.
        Warning = "warning",
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
    /// The cause, in the words of envoyproxy/ratelimit where it reports the same.
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

    pub(crate) fn with_first(self, first: Origin) -> Problem {
        Problem { first: Some(Box::new(first)), ..self }
    }

    /// Makes it a warning.
    pub fn warning(self) -> Problem {
        Problem { severity: Severity::Warning, ..self }
    }

    /// Returns the place as `file:line:column`, or the file alone.
    pub(crate) fn place(&self) -> String {
        let position = self.position.map(|position| position.to_string());
        format!("{}{}", self.file, position.unwrap_or_default())
    }

    /// Returns whether the rule set cannot be used because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Renders the problem: file, line, column and message; `line` with the offending text marked, if it is known; the
    /// fix. Quoted text is escaped.
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

/// `file:line:column: error: message`, in one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", escape(&self.place()), self.severity.name(), escape(&self.message))
    }
}

/// The default number of problems listed per file.
pub const DEFAULT_MAX_PROBLEMS: usize = 100;

/// The limit of a whole set, as a multiple of the limit of one file.
const SET_FACTOR: usize = 10;

/// The problems of a rule set. Errors and warnings each have the limit to themselves, so that
/// warnings cannot crowd out an error.
#[derive(Clone, Debug)]
pub struct Problems {
    list: Vec<Problem>,
    omitted: Omitted,
    max_per_file: usize,
    /// The index of the current file's first problem.
    file_start: usize,
    /// The numbers of listed errors and warnings, of the current file and of all.
    in_file: [usize; 2],
    in_all: [usize; 2],
}

/// The numbers of problems that are not listed. Those in an aliased value may count repeatedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// The errors.
    pub errors: usize,
    /// The warnings.
    pub warnings: usize,
}

impl Problems {
    /// Creates a list with room for `max_per_file` errors and as many warnings per file.
    pub fn new(max_per_file: usize) -> Problems {
        Problems {
            list: Vec::new(),
            omitted: Omitted::default(),
            // At least one error must be listed, because it makes the set unusable.
            max_per_file: max_per_file.max(1),
            file_start: 0,
            in_file: [0; 2],
            in_all: [0; 2],
        }
    }

    /// Starts the next file.
    pub fn start_file(&mut self) {
        self.file_start = self.list.len();
        self.in_file = [0; 2];
    }

    /// Returns whether a problem of this severity would be listed. If not, `omit` counts it without the cost of its texts.
    pub fn has_room(&self, severity: Severity) -> bool {
        let kind = severity as usize;
        self.in_file[kind] < self.max_per_file
            && self.in_all[kind] < self.max_per_file.saturating_mul(SET_FACTOR)
    }

    /// Returns whether there is an error, so that the set cannot be used.
    pub fn has_errors(&self) -> bool {
        self.in_all[Severity::Error as usize] > 0
    }

    pub(crate) fn omit(&mut self, severity: Severity) {
        match severity {
            Severity::Error => self.omitted.errors += 1,
            Severity::Warning => self.omitted.warnings += 1,
        }
    }

    /// Lists or counts a problem, unless the current file has the same at the same position.
    pub fn push(&mut self, mut problem: Problem) {
        if !self.has_room(problem.severity) {
            return self.omit(problem.severity);
        }
        problem.message = truncated(problem.message, MAX_MESSAGE_BYTES);
        problem.help = truncated(problem.help, MAX_MESSAGE_BYTES);
        problem.text = truncated(problem.text, MAX_TEXT_BYTES);
        let same = |other: &Problem| {
            other.position == problem.position
                && other.message == problem.message
                && other.file == problem.file
        };
        if problem.position.is_some() && self.list[self.file_start..].iter().any(same) {
            return;
        }
        self.in_file[problem.severity as usize] += 1;
        self.in_all[problem.severity as usize] += 1;
        self.list.push(problem);
    }

    /// Lists problems that each belong to another file.
    pub fn of_files(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.start_file();
            self.push(problem);
        }
    }

    /// Sorts the current file's problems by position.
    pub fn sort_file(&mut self) {
        self.list[self.file_start..].sort_by_key(|problem| problem.position);
    }

    /// Sorts all problems by file, in this order, and position. Those of other files come first.
    pub(crate) fn sort_by_file<'f>(&mut self, files: impl Iterator<Item = &'f str>) {
        let mut order = HashMap::new();
        for (i, file) in files.enumerate() {
            order.entry(file).or_insert(i);
        }
        self.list
            .sort_by_key(|problem| (order.get(problem.file.as_str()).copied(), problem.position));
    }

    /// Returns the listed problems.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Returns the listed problems, and how many were omitted.
    pub fn into_parts(self) -> (Vec<Problem>, Omitted) {
        (self.list, self.omitted)
    }
}

impl Omitted {
    pub(crate) fn of(self, severity: Severity) -> usize {
        match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.warnings,
        }
    }

    /// The [`summary`](Self::summary) as a line; empty if all are listed.
    pub(crate) fn line(self) -> String {
        self.summary().map_or_else(String::new, |summary| summary + "\n")
    }

    /// `12 more errors and 1 more warning are not listed`; none if all are.
    pub fn summary(self) -> Option<String> {
        let counted = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 more {what}")),
            _ => Some(format!("{count} more {what}s")),
        };
        let parts = [counted(self.errors, "error"), counted(self.warnings, "warning")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let verb = if self.errors + self.warnings == 1 { "is" } else { "are" };
        (!parts.is_empty()).then(|| {
            let which = "`weir check --max-problems` lists more";
            format!("{} {verb} not listed ({which})", parts.join(" and "))
        })
    }
}

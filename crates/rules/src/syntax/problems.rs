//! Collects the problems of a rule set up to a limit, and counts the others.
//!
//! A file may have a million problems, and a set any number of files. What is kept, logged and sent to
//! a management server must grow with neither.

use std::collections::HashMap;

use super::problem::{Problem, Severity};

/// The default number of problems listed per file.
pub const DEFAULT_MAX_PROBLEMS: usize = 100;

/// The limit of a whole set, as a multiple of that of one file.
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
    pub errors: usize,
    pub warnings: usize,
}

impl Default for Problems {
    fn default() -> Self {
        Problems::new(DEFAULT_MAX_PROBLEMS)
    }
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

    /// Whether a problem of this severity would be listed. If not, `omit` counts it without
    /// the cost of its texts.
    pub fn has_room(&self, severity: Severity) -> bool {
        let kind = severity as usize;
        self.in_file[kind] < self.max_per_file
            && self.in_all[kind] < self.max_per_file.saturating_mul(SET_FACTOR)
    }

    /// Whether there is an error, so that the set cannot be used.
    pub fn has_errors(&self) -> bool {
        self.in_all[Severity::Error as usize] > 0
    }

    /// Counts a problem that is not listed.
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
        problem.shorten();
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
    /// The number of problems of a severity.
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

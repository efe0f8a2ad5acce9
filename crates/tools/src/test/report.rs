//! The results of `weir test`, which `text.rs` and `junit.rs` print.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use weir_common::duration::exact;
use weir_common::escape::escape;
use weir_limit::Micros;
use weir_rules::source::RuleFile;
use weir_rules::{Loaded, Omitted, OverlayReport, Position, Problem, RuleSet};

#[derive(Debug, Default)]
pub(super) struct Report {
    pub files: Vec<FileReport>,
}

#[derive(Debug, Default)]
pub(super) struct FileReport {
    pub name: String,
    /// The errors of the file, or of its rules. No test runs if there is one.
    pub problems: Vec<Problem>,
    pub rendered: String,
    pub tests: Vec<TestReport>,
    /// The names of the rules with their places in files, and whether a request of a test matches them.
    pub rules: BTreeMap<String, bool>,
}

#[derive(Debug)]
pub(super) struct TestReport {
    pub name: String,
    pub position: Position,
    pub failures: Vec<Failure>,
    pub omitted: usize,
}

/// A step whose responses differ from what it expects.
#[derive(Debug)]
pub(super) struct Failure {
    pub position: Position,
    /// The number of the step in its test, from 1.
    pub step: usize,
    /// The time of its first request since the start.
    pub at: Micros,
    pub differences: Vec<Difference>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// A key of `expect`, such as `remaining`.
    pub key: String,
    pub expected: String,
    pub actual: String,
}

impl Report {
    pub fn is_good(&self) -> bool {
        self.files.iter().all(|file| file.problems.is_empty() && file.failed() == 0)
    }

    pub fn tests(&self) -> usize {
        self.files.iter().map(|file| file.tests.len()).sum()
    }

    pub fn failed(&self) -> usize {
        self.files.iter().map(FileReport::failed).sum()
    }

    pub fn unreached(&self) -> Vec<&str> {
        let mut all = BTreeMap::<&str, bool>::new();
        for (rule, is_reached) in self.files.iter().flat_map(|file| &file.rules) {
            *all.entry(&**rule).or_default() |= is_reached;
        }
        all.into_iter().filter_map(|(rule, is_reached)| (!is_reached).then_some(rule)).collect()
    }

    pub fn broken(&self) -> usize {
        self.files.iter().filter(|file| !file.problems.is_empty()).count()
    }
}

impl FileReport {
    /// Reports errors, each with the line that it is in. `files` are those that they are in.
    pub fn broken(
        name: String,
        problems: Vec<Problem>,
        omitted: Omitted,
        files: Vec<RuleFile>,
    ) -> FileReport {
        let problems: Vec<Problem> = problems.into_iter().filter(Problem::is_error).collect();
        let omitted = Omitted { warnings: 0, ..omitted };
        let (rules, overlay) = (RuleSet::default(), OverlayReport::default());
        let lists = Vec::new();
        let loaded = Loaded { rules, problems, omitted, files, overlay, lists };
        let rendered = loaded.render_errors();
        FileReport { name, problems: loaded.problems, rendered, ..FileReport::default() }
    }

    pub fn unreadable(problem: Problem) -> FileReport {
        let name = problem.file.clone();
        FileReport::broken(name, vec![problem], Omitted::default(), Vec::new())
    }

    pub fn failed(&self) -> usize {
        self.tests.iter().filter(|test| !test.is_good()).count()
    }
}

impl TestReport {
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Failure {
    /// Returns lines with the step and its differences, without any control character.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let (place, at) = (self.position, duration_text(self.at));
        let step = format!("{file}{place}: step {} at {at}", self.step);
        let differences = self.differences.iter().map(|difference| format!("  {difference}"));
        std::iter::once(step).chain(differences).map(|line| escape(&line).into_owned()).collect()
    }
}

impl Difference {
    pub fn new(
        key: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Difference {
        Difference { key: key.into(), expected: expected.into(), actual: actual.into() }
    }
}

/// `remaining: expected 3, actual 4`.
impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, actual {}", self.key, self.expected, self.actual)
    }
}

/// A time as a test file may write it, in whole milliseconds.
pub(super) fn duration_text(time: Micros) -> String {
    exact(Duration::from_millis(time / 1_000))
}

//! The state of reading one rule file, xDS resource or overlay: options, and the rules and problems found. The other
//! files of `read` add methods to it, for each kind of key.

use std::collections::HashMap;
use std::sync::Arc;

use super::rule_memory::{HELP, RuleMemory};
use crate::model::rule::Rule;
use crate::model::stats::RuleSeriesLimit;
use crate::options::RuleOptions;
use crate::overlay::patcher::Patcher;
use crate::source::lists::ListReader;
use crate::syntax::document::Document;
use crate::syntax::position::Position;
use crate::syntax::problem::{Problem, Problems};

pub(crate) struct Reader<'r> {
    pub file: Arc<str>,
    pub problems: &'r mut Problems,
    pub(super) memory: RuleMemory,
    pub rules: Vec<Arc<Rule>>,
    pub(super) previous: &'r Previous<'r>,
    pub(super) options: &'r RuleOptions,
    /// Whether the domain has `charge: together`: all descriptors of a request are charged, or none.
    pub together: bool,
    pub(super) lint: bool,
    /// Whether descriptors of one level with the same key and value are merged, and those that were.
    pub(super) merges_siblings: bool,
    pub(super) merged: Option<Merged>,
    pub replaced: Vec<ReplacedName>,
    pub patcher: Option<&'r mut Patcher>,
    /// Reads the lists that rules name; none where only other keys are read.
    pub lists: Option<&'r mut ListReader>,
}

/// The counters of the previous set, which rules of the same name take over.
#[derive(Default)]
pub(crate) struct Previous<'r> {
    pub rules: HashMap<&'r str, &'r Rule>,
    pub series: Arc<RuleSeriesLimit>,
}

/// The descriptors that were merged with a sibling.
pub(super) struct Merged {
    pub count: usize,
    pub position: Position,
}

/// A name in `replaces`, and where it is written.
#[derive(Debug)]
pub(crate) struct ReplacedName {
    pub name: Box<str>,
    pub position: Position,
}

impl<'r> Reader<'r> {
    pub fn new(
        document: &impl Document,
        options: &'r RuleOptions,
        previous: &'r Previous<'r>,
        problems: &'r mut Problems,
    ) -> Reader<'r> {
        Reader {
            file: document.name().into(),
            problems,
            memory: RuleMemory::of(document.text_bytes()),
            rules: Vec::new(),
            previous,
            options,
            together: false,
            lint: options.lint,
            merges_siblings: document.merges_siblings(),
            merged: None,
            replaced: Vec::new(),
            patcher: None,
            lists: None,
        }
    }

    /// Returns a reader that reports elsewhere, and uses neither patches nor lists.
    pub(super) fn quiet<'q>(&'q self, problems: &'q mut Problems) -> Reader<'q> {
        Reader {
            file: self.file.clone(),
            problems,
            memory: self.memory.clone(),
            rules: Vec::new(),
            lint: false,
            merged: None,
            replaced: Vec::new(),
            patcher: None,
            lists: None,
            ..*self
        }
    }

    /// Reports an error. `text` is what is wrong, and may be empty.
    pub fn error(
        &mut self,
        position: Position,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) {
        let problem = self.problem(position, message, text, help);
        self.problems.push(problem);
    }

    pub fn warn(&mut self, position: Position, message: String, text: &str, help: &str) {
        let problem = self.problem(position, message, text, help);
        self.problems.push(problem.warning());
    }

    pub fn problem(
        &self,
        position: Position,
        message: impl Into<String>,
        text: &str,
        help: &str,
    ) -> Problem {
        Problem::of_file(&self.file, message, help).at(position).about(text)
    }

    /// Spends bytes of the file's memory, and reports the first excess.
    pub(super) fn spend(&mut self, position: Position, bytes: usize) {
        if let Err(error) = self.memory.spend(bytes) {
            self.error(position, error, "", HELP);
        }
    }
}

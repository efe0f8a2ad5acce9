//! Collects the problems that `weir check --envoy` finds in an Envoy configuration, and bounds its work.

use std::collections::HashSet;
use std::sync::Arc;

use weir_rules::{Origin, Position, Problem, Problems};

pub(super) struct Findings {
    pub problems: Problems,
    pub file: Arc<str>,
    /// The places with a warning that is not repeated.
    warned: HashSet<(Arc<str>, Position)>,
    /// The units of work that are left (see `spend`); none once they were not enough.
    pub effort: Option<usize>,
}

impl Findings {
    pub fn new(effort: usize, max_problems: usize) -> Findings {
        let (problems, warned) = (Problems::new(max_problems), HashSet::new());
        Findings { problems, file: "".into(), warned, effort: Some(effort) }
    }

    pub fn origin(&self, position: Position) -> Origin {
        Origin { file: self.file.clone(), position }
    }

    /// Adds a warning about a place in the file that is read.
    pub fn add(&mut self, position: Position, message: String, text: &str, help: &str) {
        self.add_at(&self.origin(position), message, text, help);
    }

    /// Adds a warning about a place in the file that is read, once for all routes and filters that have it.
    pub fn add_once(&mut self, position: Position, message: &str, text: &str, help: &str) {
        if self.warned.insert((self.file.clone(), position)) {
            self.add(position, message.to_owned(), text, help);
        }
    }

    pub fn add_error(&mut self, position: Position, message: String, help: &str) {
        let problem = Problem::of_file(&self.file, message, help);
        self.problems.push(problem.at(position));
    }

    pub fn has_error(&self, origin: &Origin) -> bool {
        self.problems.list().iter().any(|problem| {
            problem.is_error()
                && problem.position == Some(origin.position)
                && *problem.file == *origin.file
        })
    }

    /// Counts work before it is done. Reports when it is too much, after which nothing may be done.
    pub fn spend(&mut self, position: Position, effort: usize) -> bool {
        let Some(left) = self.effort else { return false };
        self.effort = left.checked_sub(effort);
        if self.effort.is_none() {
            let message = "the comparison with the rules takes too long, and was stopped here";
            let help = "compare fewer listeners or rules at once, with a command for each part";
            // It fits in, whatever else was found.
            self.problems.start_file();
            self.add_error(position, message.to_owned(), help);
        }
        self.effort.is_some()
    }

    /// Warns once about a value of a rule that is compared with the path and its query string.
    pub fn add_exact_path(&mut self, origin: &Origin, descriptor: &str) {
        if self.warned.insert((origin.file.clone(), origin.position)) {
            let message = format!(
                "'{descriptor}' is compared with the path and its query string, which any client can add"
            );
            let help = "write a wildcard with `share_threshold: true`, such as `/login*`, or let Envoy send the path alone, by the expression `request.url_path`";
            self.add_at(origin, message, "", help);
        }
    }

    /// Adds a warning about any file.
    pub fn add_at(&mut self, origin: &Origin, message: String, text: &str, help: &str) {
        let problem = Problem::of_file(&origin.file, message, help).at(origin.position);
        self.problems.push(problem.about(text).warning());
    }
}

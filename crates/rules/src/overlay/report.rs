//! The outcomes of patches: which do not fit a rule, and which match nothing.

use std::collections::BTreeMap;

use super::patch::Patch;
use crate::syntax::problem::{Problem, Severity};
use crate::syntax::problems::{Omitted, Problems};

/// The outcomes of the patches of an overlay.
#[derive(Clone, Debug, Default)]
pub struct OverlayReport {
    /// Errors: patches that do not fit a rule. Warnings: patches that match nothing.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub omitted: Omitted,
    /// The number of rules that patches changed.
    pub patched_rules: usize,
    /// The number of patches that do not fit a rule.
    pub failed_patches: usize,
}

impl OverlayReport {
    /// The problems of a severity.
    pub fn listed(&self, severity: Severity) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(move |problem| problem.severity == severity)
    }

    /// The number of problems of a severity, listed or not.
    pub fn count(&self, severity: Severity) -> usize {
        self.listed(severity).count() + self.omitted.of(severity)
    }
}

/// Patches that do not fit.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    rules: BTreeMap<u32, Failure>,
    warnings: Vec<Problem>,
}

/// The rules that a patch does not fit.
#[derive(Debug)]
struct Failure {
    /// The first rule that the patch does not fit.
    first: String,
    /// The problems of the first rule with the patch.
    problems: Vec<Problem>,
    count: u64,
}

/// The maximum number of warnings about patched rules; the rest are ignored.
const MAX_WARNINGS: usize = 100;

impl Failures {
    /// Adds a rule that is invalid after a patch. `problems` are those of the rule.
    pub fn add(&mut self, patch: u32, rule: &str, problems: Vec<Problem>) {
        let new = || Failure { first: rule.to_owned(), problems, count: 0 };
        self.rules.entry(patch).or_insert_with(new).count += 1;
    }

    /// Adds warnings about a rule after its patches.
    pub fn warn(&mut self, rule: &str, problems: Vec<Problem>) {
        for mut problem in problems {
            if self.warnings.len() < MAX_WARNINGS {
                problem.message = format!("rule {rule} with this patch: {}", problem.message);
                self.warnings.push(problem);
            }
        }
    }

    /// Lists all, in the order of the files.
    pub fn report<'p>(
        self,
        unmatched: impl Iterator<Item = &'p Patch>,
        max_problems: usize,
    ) -> OverlayReport {
        let failed_patches = self.rules.len();
        let mut list = self.warnings;
        list.extend(self.rules.into_values().flat_map(Failure::into_problems));
        let help = "compare `match` with the entries of the rules, which `weir check` prints; a \
                    descriptor without a limit is not matched";
        list.extend(unmatched.map(|Patch { origin, .. }| {
            let problem = Problem::of_file(&origin.file, "the patch matches nothing", help);
            problem.at(origin.position).warning()
        }));
        list.sort_by(|a, b| (&a.file, a.position).cmp(&(&b.file, b.position)));
        let mut problems = Problems::new(max_problems);
        let mut file = None;
        for problem in list {
            if file.as_ref() != Some(&problem.file) {
                problems.start_file();
                file = Some(problem.file.clone());
            }
            problems.push(problem);
        }
        let (problems, omitted) = problems.into_parts();
        OverlayReport { problems, omitted, patched_rules: 0, failed_patches }
    }
}

impl Failure {
    /// The problems of the first rule, with the number of the other rules.
    fn into_problems(self) -> impl Iterator<Item = Problem> {
        let Failure { first, problems, count } = self;
        problems.into_iter().filter(Problem::is_error).map(move |mut problem| {
            let cause = &problem.message;
            let cause = cause.strip_prefix("config error, ").unwrap_or(cause);
            let loads = match count - 1 {
                0 => format!("rule {first} loads without this patch"),
                1 => format!("rule {first} and one more load without this patch"),
                more => format!("rule {first} and {more} more load without this patch"),
            };
            problem.message = format!("{loads}: {cause}");
            problem
        })
    }
}

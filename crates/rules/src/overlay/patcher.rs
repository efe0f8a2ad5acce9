//! Finds an overlay's patches for each rule that is read, and reports those that do not fit or have no effect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::patch::Patch;
use crate::matcher::Domain;
use crate::syntax::position::Origin;
use crate::syntax::problem::{Omitted, Problem, Problems};

/// The patches of an overlay, and what each did in one compilation of rules.
#[derive(Debug, Default)]
pub(crate) struct Patcher {
    patches: Vec<Patch>,
    /// Patches of one domain, by its name, and those of any number of domains.
    by_domain: HashMap<Box<str>, Vec<u32>>,
    by_glob: Vec<u32>,
    /// The patches that may change rules of the current domain.
    of_rules: Vec<u32>,
    matched: Vec<bool>,
    /// For each patch, the one that overrides it in all rules; none if it changes a rule.
    overridden: BTreeMap<u32, Option<u32>>,
    pub failures: Failures,
    patched_rules: usize,
    /// The patches of the last patched rule. Rules often have the same.
    last: (Vec<u32>, Arc<[Origin]>),
}

impl Patcher {
    pub fn new(patches: Vec<Patch>) -> Patcher {
        let mut by_domain: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut by_glob = Vec::new();
        for (patch, index) in patches.iter().zip(0..) {
            match patch.domain.text() {
                Some(domain) => by_domain.entry(domain.into()).or_default().push(index),
                None => by_glob.push(index),
            }
        }
        let matched = vec![false; patches.len()];
        Patcher { patches, by_domain, by_glob, matched, ..Patcher::default() }
    }

    /// Starts a domain, and sets the keys of it that its patches set.
    pub fn start_domain(&mut self, name: &str, domain: &mut Domain) {
        let globs = self.by_glob.iter().copied();
        let mut matching: Vec<u32> =
            globs.filter(|&index| self.patch(index).domain.matches(name)).collect();
        matching.extend(self.by_domain.get(name).into_iter().flatten());
        matching.sort_unstable();
        let (mut of_rules, mut of_domain, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for index in matching {
            let patch = self.patch(index);
            if patch.has_set {
                of_rules.push(index);
            }
            if patch.charge.is_some() || patch.on_store_failure.is_some() {
                of_domain.push(index);
                origins.push(patch.origin.clone());
                domain.together = patch.charge.unwrap_or(domain.together);
                domain.on_store_failure = patch.on_store_failure.unwrap_or(domain.on_store_failure);
            }
        }
        domain.patches = origins.into();
        self.set_matched(&of_domain);
        self.of_rules = of_rules;
    }

    pub fn matching(&self, path: &[(Arc<str>, Arc<str>)]) -> Vec<u32> {
        let of_rules = self.of_rules.iter().copied();
        of_rules.filter(|&index| self.patch(index).matches(path)).collect()
    }

    pub fn patch(&self, index: u32) -> &Patch {
        &self.patches[index as usize]
    }

    pub fn set_matched(&mut self, patches: &[u32]) {
        patches.iter().for_each(|&index| self.matched[index as usize] = true);
    }

    /// Records that patches changed a rule. Returns their positions. With `lint`, notes which the next overrides.
    pub fn set_patched(&mut self, patches: Vec<u32>, lint: bool) -> Arc<[Origin]> {
        self.patched_rules += usize::from(!patches.is_empty());
        // Only the next one counts: those between may need what the patch sets.
        for (i, &patch) in patches.iter().enumerate().filter(|_| lint) {
            let next = patches.get(i + 1).copied();
            let by = next.filter(|&next| self.patch(next).overrides(self.patch(patch)));
            let known = self.overridden.entry(patch).or_insert(by);
            *known = known.filter(|known| by == Some(*known));
        }
        if self.last.0 != patches {
            let origins = patches.iter().map(|&index| self.patch(index).origin.clone()).collect();
            self.last = (patches, origins);
        }
        self.last.1.clone()
    }

    /// Lists what was found, in the order of the files.
    pub fn finish(self, max_problems: usize) -> OverlayReport {
        let Failures { rules, warnings: mut list, omitted: known } = self.failures;
        let failed_patches = rules.len();
        list.extend(rules.into_values().flat_map(Failure::into_problems));
        let help = "compare `match` with the entries of the rules, which `weir check` prints; a \
                    descriptor without a limit is not matched";
        let unmatched = self.patches.iter().zip(&self.matched).filter(|(_, matched)| !**matched);
        list.extend(unmatched.map(|(Patch { origin, .. }, _)| {
            let problem = Problem::of_file(&origin.file, "the patch matches nothing", help);
            problem.at(origin.position).warning()
        }));
        list.extend(self.overridden.iter().filter_map(|(&index, by)| {
            let [patch, by] = [index, (*by)?].map(|index| &self.patches[index as usize].origin);
            let message =
                format!("the patch changes nothing: the later one at {by} overrides all of it");
            let help = "move it after the other, or remove it";
            Some(Problem::of_file(&patch.file, message, help).at(patch.position).warning())
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
        let (problems, mut omitted) = problems.into_parts();
        omitted.warnings += known.warnings;
        OverlayReport { problems, omitted, patched_rules: self.patched_rules, failed_patches }
    }
}

/// The outcomes of the patches of an overlay.
#[derive(Clone, Debug, Default)]
pub struct OverlayReport {
    /// Errors: patches that do not fit a rule. Warnings: patches that match or change nothing.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub omitted: Omitted,
    /// The number of rules that patches changed.
    pub patched_rules: usize,
    /// The number of patches that do not fit a rule.
    pub failed_patches: usize,
}

/// Patches that do not fit.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    rules: BTreeMap<u32, Failure>,
    pub warnings: Vec<Problem>,
    pub omitted: Omitted,
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

const MAX_WARNINGS: usize = 100;

impl Failures {
    /// Adds a rule that a patch makes invalid, with its problems.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::position::Position;

    fn patch(line: u32) -> Patch {
        Patch::new(Origin { file: "a".into(), position: Position::in_text(line, 1) })
    }

    #[test]
    fn rules_with_the_same_patches_share_their_positions() {
        let mut patcher = Patcher::new((1..=3).map(patch).collect());
        let first = patcher.set_patched(vec![0, 2], false);
        let lines: Vec<_> = first.iter().map(|origin| origin.position.line()).collect();
        assert_eq!(lines, [Some(1), Some(3)]);
        assert!(Arc::ptr_eq(&first, &patcher.set_patched(vec![0, 2], false)));
        assert_eq!(patcher.set_patched(vec![1], false).len(), 1);
        assert_eq!(patcher.set_patched(vec![], false).len(), 0);
        assert_eq!(patcher.finish(10).patched_rules, 3);
    }
}

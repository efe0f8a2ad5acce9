//! Finds the patches that match a rule, and records what became of them.
//!
//! The progress of each patch along a path is carried from a descriptor to those below it, so each
//! descriptor is compared once with the patches that its parents still allow.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::Origin;
use super::super::problem::Problem;
use super::patch::Patch;
use super::report::{Failures, OverlayReport};
use weir_common::failure::OnStoreFailure;

/// The maximum effort to apply an overlay to one set of rules, in comparisons of an entry: some seconds.
/// To compare a thousand patches with a hundred thousand rules takes a fifth of it.
const MAX_EFFORT: u64 = 1 << 29;

/// The effort of applying a patch to a rule, and of reading a rule again.
pub(crate) const APPLY_EFFORT: u64 = 30;
pub(crate) const READ_EFFORT: u64 = 300;

/// The progress of a patch along the path of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    patch: u32,
    progress: u128,
}

/// The overlay of one compilation.
#[derive(Debug)]
pub(crate) struct Patcher {
    patches: Vec<Patch>,
    /// Patches of one domain, by its name, and those of any number of domains.
    by_domain: HashMap<Box<str>, Vec<u32>>,
    by_glob: Vec<u32>,
    domain: DomainPatches,
    /// The domains that a patch of `charge` does not fit.
    unfit_domains: HashSet<Box<str>>,
    matched: Vec<bool>,
    failures: Failures,
    patched_rules: usize,
    /// The effort that is left; none once it was exceeded.
    left: Option<u64>,
    /// The patches of the last patched rule. Rules often have the same.
    last: (Vec<u32>, Arc<[Origin]>),
}

/// The patches of the current domain, and what they set for it.
#[derive(Debug, Default)]
struct DomainPatches {
    name: Box<str>,
    matching: Vec<u32>,
    charge: Option<(u32, bool)>,
    on_store_failure: Option<Option<OnStoreFailure>>,
    origins: Vec<Origin>,
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
        Patcher {
            matched: vec![false; patches.len()],
            patches,
            by_domain,
            by_glob,
            domain: DomainPatches::default(),
            unfit_domains: HashSet::new(),
            failures: Failures::default(),
            patched_rules: 0,
            left: Some(MAX_EFFORT),
            last: Default::default(),
        }
    }

    /// Starts a domain.
    pub fn set_domain(&mut self, name: &str) {
        self.spend(self.by_glob.len() as u64);
        let globs = self.by_glob.iter().copied();
        let mut matching: Vec<u32> =
            globs.filter(|&index| self.patch(index).domain.matches(name)).collect();
        matching.extend(self.by_domain.get(name).into_iter().flatten());
        matching.sort_unstable();
        let mut domain = DomainPatches { name: name.into(), ..DomainPatches::default() };
        let is_unfit = self.unfit_domains.contains(name);
        for &index in &matching {
            let patch = &self.patches[index as usize];
            if !patch.sets_domain() {
                continue;
            }
            self.matched[index as usize] = true;
            let charge = patch.charge.filter(|_| !is_unfit);
            domain.charge = charge.map(|charge| (index, charge)).or(domain.charge);
            domain.on_store_failure = patch.on_store_failure.or(domain.on_store_failure);
            if charge.is_some() || patch.on_store_failure.is_some() {
                domain.origins.push(patch.origin.clone());
            }
        }
        matching.retain(|&index| self.patch(index).has_set);
        domain.matching = matching;
        self.domain = domain;
    }

    /// The `charge` of the current domain, if a patch sets it.
    pub fn together(&self) -> Option<bool> {
        self.domain.charge.map(|(_, together)| together)
    }

    /// The policy of the current domain, if a patch sets it.
    pub fn on_store_failure(&self) -> Option<Option<OnStoreFailure>> {
        self.domain.on_store_failure
    }

    /// The patches of the current domain that set a key of it.
    pub fn domain_origins(&self) -> &[Origin] {
        &self.domain.origins
    }

    /// The states before the first entry of a path.
    pub fn start(&self) -> Vec<State> {
        let state = |&patch: &u32| State { patch, progress: self.patch(patch).start() };
        self.domain.matching.iter().map(state).collect()
    }

    /// Advances states by an entry. Returns also the patches that match the path with it.
    pub fn advance(&mut self, states: &[State], key: &str, value: &str) -> (Vec<State>, Vec<u32>) {
        if states.is_empty() || !self.spend(states.len() as u64) {
            return (Vec::new(), Vec::new());
        }
        let (mut next, mut matched) = (Vec::new(), Vec::new());
        for state in states {
            let patch = self.patch(state.patch);
            let progress = patch.advance(state.progress, key, value);
            if patch.accepts(progress) {
                matched.push(state.patch);
            }
            if progress != 0 {
                next.push(State { progress, ..*state });
            }
        }
        (next, matched)
    }

    pub fn patch(&self, index: u32) -> &Patch {
        &self.patches[index as usize]
    }

    /// Spends effort; returns whether some is left.
    pub fn spend(&mut self, effort: u64) -> bool {
        self.left = self.left.and_then(|left| left.checked_sub(effort));
        self.left.is_some()
    }

    /// Records that patches match a rule.
    pub fn set_matched(&mut self, patches: &[u32]) {
        patches.iter().for_each(|&index| self.matched[index as usize] = true);
    }

    /// Records that patches changed a rule. Returns their positions.
    pub fn set_patched(&mut self, patches: Vec<u32>) -> Arc<[Origin]> {
        self.patched_rules += usize::from(!patches.is_empty());
        if self.last.0 != patches {
            let origins = patches.iter().map(|&index| self.patch(index).origin.clone());
            let origins = origins.collect();
            self.last = (patches, origins);
        }
        self.last.1.clone()
    }

    /// Records that a rule is invalid after a patch. `problems` are those of the rule.
    pub fn fail(&mut self, patch: u32, rule: &str, problems: Vec<Problem>) {
        self.failures.add(patch, rule, problems);
    }

    /// Records a warning about a rule after a patch.
    pub fn warn(&mut self, rule: &str, problems: Vec<Problem>) {
        self.failures.warn(rule, problems);
    }

    /// Records that a rule is invalid with the `charge` that a patch sets for the domain.
    pub fn fail_domain(&mut self, rule: &str, problems: Vec<Problem>) {
        let Some((patch, _)) = self.domain.charge else { return };
        if self.unfit_domains.insert(self.domain.name.clone()) {
            let origin = self.patch(patch).origin.clone();
            self.failures.add_domain(patch, &origin, &self.domain.name, rule, problems);
        }
    }

    /// Prepares to compile the rules again, if it is known only now that patches of `charge` do not fit.
    pub fn start_over(&mut self) -> bool {
        if self.unfit_domains.is_empty() {
            return false;
        }
        self.failures.keep_domains();
        (self.patched_rules, self.left) = (0, Some(MAX_EFFORT));
        true
    }

    /// Reports what became of the patches.
    pub fn finish(self, max_problems: usize) -> OverlayReport {
        let unmatched = self.patches.iter().zip(&self.matched).filter(|(_, matched)| !**matched);
        let unmatched = unmatched.map(|(patch, _)| patch);
        let exhausted = self.patches.first().filter(|_| self.left.is_none());
        let mut report = self.failures.report(exhausted, unmatched, max_problems);
        report.patched_rules = self.patched_rules;
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;
    use crate::overlay::Step;
    use weir_common::glob::Glob;

    fn patch(line: u32) -> Patch {
        Patch::new(Origin { file: "a".into(), position: Position::in_text(line, 1) })
    }

    #[test]
    fn the_effort_is_limited_and_the_excess_reported_once() {
        let mut patches: Vec<Patch> = (1..=3).map(patch).collect();
        for patch in &mut patches {
            patch.has_set = true;
        }
        patches[2].set_steps(vec![Step::Entry { key: Glob::new("other"), value: None }]);
        let mut patcher = Patcher::new(patches);
        patcher.set_domain("d");
        patcher.left = Some(7);
        let start = patcher.start();
        let matched = |patcher: &mut Patcher| patcher.advance(&start, "k", "v").1;
        assert_eq!(matched(&mut patcher), [0, 1]);
        assert_eq!(matched(&mut patcher), [0, 1]);
        assert!(matched(&mut patcher).is_empty() && matched(&mut patcher).is_empty());
        let report = patcher.finish(10);
        assert_eq!((report.failed_patches, report.problems.len()), (1, 1), "{report:?}");
        assert!(report.problems[0].message.contains("too many patches"));
    }

    #[test]
    fn rules_with_the_same_patches_share_their_positions() {
        let mut patcher = Patcher::new((1..=3).map(patch).collect());
        let first = patcher.set_patched(vec![0, 2]);
        let lines: Vec<_> = first.iter().map(|origin| origin.position.line()).collect();
        assert_eq!(lines, [Some(1), Some(3)]);
        assert!(Arc::ptr_eq(&first, &patcher.set_patched(vec![0, 2])));
        assert_eq!(patcher.set_patched(vec![1]).len(), 1);
        assert_eq!(patcher.set_patched(vec![]).len(), 0);
        assert_eq!(patcher.finish(10).patched_rules, 3);
    }
}

//! Finds the patches that match a rule, and records their outcomes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::problem::Problem;
use super::super::{Domain, Origin};
use super::patch::Patch;
use super::report::{Failures, OverlayReport};

/// The overlay of one compilation.
#[derive(Debug)]
pub(crate) struct Patcher {
    patches: Vec<Patch>,
    /// Patches of one domain, by its name, and those of any number of domains.
    by_domain: HashMap<Box<str>, Vec<u32>>,
    by_glob: Vec<u32>,
    domain: DomainPatches,
    /// The domains with a rule that does not fit the `charge` of the patches.
    unfit_domains: HashSet<Box<str>>,
    matched: Vec<bool>,
    pub failures: Failures,
    patched_rules: usize,
    /// The patches of the last patched rule. Rules often have the same.
    last: (Vec<u32>, Arc<[Origin]>),
}

/// The patches of the current domain.
#[derive(Debug, Default)]
struct DomainPatches {
    name: Box<str>,
    /// The patches that may change rules of the domain.
    of_rules: Vec<u32>,
    /// The patches that set keys of the domain.
    of_domain: Vec<u32>,
    /// The last patch that sets `charge`.
    charge: Option<(u32, bool)>,
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
            last: Default::default(),
        }
    }

    /// Starts a domain.
    pub fn set_domain(&mut self, name: &str) {
        let globs = self.by_glob.iter().copied();
        let mut matching: Vec<u32> =
            globs.filter(|&index| self.patch(index).domain.matches(name)).collect();
        matching.extend(self.by_domain.get(name).into_iter().flatten());
        matching.sort_unstable();
        let mut domain = DomainPatches { name: name.into(), ..DomainPatches::default() };
        for index in matching {
            let patch = self.patch(index);
            domain.charge = patch.charge.map(|charge| (index, charge)).or(domain.charge);
            if patch.has_set {
                domain.of_rules.push(index);
            }
            if patch.sets_domain() {
                domain.of_domain.push(index);
            }
        }
        self.set_matched(&domain.of_domain);
        self.domain = domain;
    }

    /// Sets the keys of the current domain that its patches set. Its rules are read before: `charge` has
    /// to fit them all.
    pub fn patch_domain(&self, domain: &mut Domain) {
        let charge_fits = !self.unfit_domains.contains(&self.domain.name);
        let patches = self.domain.of_domain.iter().map(|&index| self.patch(index));
        let patches = patches.filter(|patch| charge_fits || patch.on_store_failure.is_some());
        domain.patches = patches.clone().map(|patch| patch.origin.clone()).collect();
        for patch in patches {
            let charge = patch.charge.filter(|_| charge_fits);
            domain.together = charge.unwrap_or(domain.together);
            domain.on_store_failure = patch.on_store_failure.unwrap_or(domain.on_store_failure);
        }
    }

    /// The `charge` of the current domain, if a patch sets it.
    pub fn together(&self) -> Option<bool> {
        self.domain.charge.map(|(_, together)| together)
    }

    /// The patches of rules of the current domain that match a path.
    pub fn matching(&self, path: &[(Arc<str>, Arc<str>)]) -> Vec<u32> {
        let of_rules = self.domain.of_rules.iter().copied();
        of_rules.filter(|&index| self.patch(index).matches(path)).collect()
    }

    pub fn patch(&self, index: u32) -> &Patch {
        &self.patches[index as usize]
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

    /// Records that a rule is invalid with the `charge` that a patch sets for the domain.
    pub fn fail_domain(&mut self, rule: &str, problems: Vec<Problem>) {
        let Some((patch, _)) = self.domain.charge else { return };
        if self.unfit_domains.insert(self.domain.name.clone()) {
            let origin = self.patch(patch).origin.clone();
            self.failures.add_domain(patch, &origin, &self.domain.name, rule, problems);
        }
    }

    /// Reports the outcomes of the patches.
    pub fn finish(self, max_problems: usize) -> OverlayReport {
        let unmatched = self.patches.iter().zip(&self.matched).filter(|(_, matched)| !**matched);
        let unmatched = unmatched.map(|(patch, _)| patch);
        let mut report = self.failures.report(unmatched, max_problems);
        report.patched_rules = self.patched_rules;
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    fn patch(line: u32) -> Patch {
        Patch::new(Origin { file: "a".into(), position: Position::in_text(line, 1) })
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

//! Reads a rule again as the patches of an overlay change it.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use super::super::Origin;
use super::super::overlay::{PatchedKeys, Patcher, State};
use super::super::position::Position;
use super::super::problem::Problem;
use super::super::problems::Problems;
use super::super::tree::Node;
use super::budget::rule_bytes;
use super::{Below, Budget, Descriptor, DescriptorNode, Reader, Rule, limit_nodes};

/// The fields of a descriptor.
type FieldNodes<'f, 'n> = &'f [(&'static str, &'n Node<'n>)];

/// The number of problems of a patched rule that are reported, errors and warnings each.
const MAX_PROBLEMS: usize = 10;

/// The number of patches of a rule that are tried a second time. Each is then applied with all that fit:
/// with thousands of both, this would take seconds for each rule.
const MAX_RETRIES: usize = 100;

/// A rule as it was delivered.
struct Delivered<'t, 'n> {
    keys: PatchedKeys<'n>,
    /// The bytes that the rule takes.
    bytes: usize,
    position: Position,
    below: &'t Rc<Below<'n>>,
    name: &'t str,
}

/// A valid rule as patches change it.
struct Patched {
    read: Descriptor,
    warnings: Vec<Problem>,
    budget: Budget,
}

impl Reader<'_> {
    /// Applies the patches that match a descriptor, whose path in the domain is `name`. Returns the
    /// states of the patches for the descriptors below it, and the patches that changed it.
    pub(super) fn apply_patches<'n>(
        &mut self,
        node: &DescriptorNode<'n>,
        states: &[State],
        read: &mut Descriptor,
        name: &str,
    ) -> (Vec<State>, Arc<[Origin]>) {
        let Some(patcher) = self.patcher.take() else { return Default::default() };
        let (next, matched) = patcher.advance(states, &read.key, &read.value);
        let mut origins = Arc::default();
        let charge = patcher.together().filter(|together| *together != self.together);
        // A set with an error is rejected, whatever its patches do.
        if read.rate_limit.is_some()
            && (!matched.is_empty() || charge.is_some())
            && !self.problems.has_errors()
        {
            let bytes = rule_bytes(name, 0, read.limit_bytes());
            let keys = self.patched_keys(&node.fields);
            let (position, below) = (node.position, &node.below);
            let rule = Delivered { keys, bytes, position, below, name };
            origins = self.fit(patcher, &rule, matched, charge.unwrap_or(self.together), read);
        }
        self.patcher = Some(patcher);
        (next, origins)
    }

    /// The keys of a valid descriptor that patches change. Metadata is read again only if a patch sets
    /// it.
    fn patched_keys<'n>(&mut self, fields: FieldNodes<'_, 'n>) -> PatchedKeys<'n> {
        let others = ["descriptors", "metadata", "rate_limit", "rate_limits"];
        let rule = fields.iter().filter(|(field, _)| !others.contains(field));
        let rule = rule.map(|(field, node)| (*field, (*node).clone())).collect();
        let (rate_limit, rate_limits) = limit_nodes(fields);
        // Its problems were reported before.
        let mut problems = Problems::new(1);
        let limits = self.quiet(&mut problems, &mut Vec::new(), self.together, |reader| {
            reader.limit_maps(&rate_limit, rate_limits)
        });
        PatchedKeys { rule, limits }
    }

    /// Replaces `read` by the rule with the patches that fit. Returns these.
    fn fit(
        &mut self,
        patcher: &mut Patcher,
        rule: &Delivered<'_, '_>,
        matched: Vec<u32>,
        mut together: bool,
        read: &mut Descriptor,
    ) -> Arc<[Origin]> {
        patcher.set_matched(&matched);
        let mut all = self.attempt(patcher, rule, &matched, together);
        if together != self.together
            && let Err(errors) = &mut all
        {
            let bare = self.attempt(patcher, rule, &[], together);
            let with_delivered_charge = self.attempt(patcher, rule, &matched, self.together);
            if bare.is_err() || with_delivered_charge.is_ok() {
                let errors = bare.err().unwrap_or(mem::take(errors));
                patcher.fail_domain(&self.described(rule), errors);
                (all, together) = (with_delivered_charge, self.together);
            }
        }
        let (patches, patched) = match all {
            Ok(patched) => (matched, patched),
            Err(_) => match self.fit_one_by_one(patcher, rule, matched, together) {
                Some(fitting) => fitting,
                None => return Arc::default(),
            },
        };
        let Patched { read: mut patched, mut warnings, budget } = patched;
        if !warnings.is_empty() {
            let delivered = self.attempt(patcher, rule, &[], self.together);
            for known in delivered.iter().flat_map(|delivered| &delivered.warnings) {
                warnings.retain(|warning| warning.message != known.message);
            }
            patcher.failures.warn(&self.described(rule), warnings);
        }
        if !patches.iter().any(|&patch| patcher.patch(patch).sets("metadata")) {
            patched.metadata = read.metadata.take();
        }
        *read = patched;
        self.budget = budget;
        patcher.set_patched(patches)
    }

    /// Adds patches to a rule one by one, without those that make it invalid, and records these. Returns
    /// the patches that fit, and the rule with them; none if it is invalid without patches.
    fn fit_one_by_one(
        &mut self,
        patcher: &mut Patcher,
        rule: &Delivered<'_, '_>,
        matched: Vec<u32>,
        together: bool,
    ) -> Option<(Vec<u32>, Patched)> {
        let mut patched = self.attempt(patcher, rule, &[], together).ok()?;
        let (mut fitting, mut unfit) = (Vec::new(), Vec::new());
        let mut keys = rule.keys.clone();
        for patch in matched {
            match self.attempt_on(patcher, rule, &keys, &[patch], Some(patch), together) {
                Ok(better) => {
                    patched = better;
                    fitting.push(patch);
                    // It was applied to a copy before, so it can be.
                    let _ = keys.apply(patcher.patch(patch), None);
                }
                Err(errors) => unfit.push((patch, errors)),
            }
        }
        // A patch may need a later one, as `burst` needs `algorithm: gcra`.
        for (patch, errors) in unfit.iter_mut().take(MAX_RETRIES) {
            let place = fitting.partition_point(|known| known < patch);
            fitting.insert(place, *patch);
            match self.attempt_on(patcher, rule, &rule.keys, &fitting, Some(*patch), together) {
                Ok(better) => (patched, *errors) = (better, Vec::new()),
                Err(newer) => {
                    *errors = newer;
                    fitting.remove(place);
                }
            }
        }
        let described = self.described(rule);
        for (patch, errors) in unfit.into_iter().filter(|(_, errors)| !errors.is_empty()) {
            patcher.failures.add(patch, &described, errors);
        }
        Some((fitting, patched))
    }

    /// Reads a rule with patches. The positions of all problems are in the last one, if there is one.
    ///
    /// # Errors
    /// The rule is invalid with the patches.
    fn attempt(
        &self,
        patcher: &Patcher,
        rule: &Delivered<'_, '_>,
        patches: &[u32],
        together: bool,
    ) -> Result<Patched, Vec<Problem>> {
        self.attempt_on(patcher, rule, &rule.keys, patches, patches.last().copied(), together)
    }

    /// Reads the keys of a rule with patches. The positions of all problems are in the patch `blamed`, if
    /// there is one.
    ///
    /// # Errors
    /// The rule is invalid with the patches.
    fn attempt_on(
        &self,
        patcher: &Patcher,
        rule: &Delivered<'_, '_>,
        keys: &PatchedKeys<'_>,
        patches: &[u32],
        blamed: Option<u32>,
        together: bool,
    ) -> Result<Patched, Vec<Problem>> {
        let origin = blamed.map(|blamed| &patcher.patch(blamed).origin);
        let place = origin.map(|origin| origin.position);
        let mut keys = place.map_or_else(|| keys.clone(), |position| keys.moved(position));
        for &patch in patches {
            let place = origin.filter(|_| Some(patch) != blamed);
            keys.apply(patcher.patch(patch), place).map_err(|problem| vec![*problem])?;
        }
        let position = place.unwrap_or(rule.position);
        let fields = keys.into_fields(position);
        let fields = fields.iter().map(|(field, node)| (*field, node)).collect();
        let sets_reserve = patches.iter().any(|&patch| patcher.patch(patch).sets("reserve"));
        let (below, cuts_reserve) = (rule.below.clone(), !sets_reserve);
        let node = DescriptorNode { position, fields, below, cuts_reserve };
        let mut problems = Problems::new(MAX_PROBLEMS);
        let (read, budget) = self.quiet(&mut problems, &mut Vec::new(), together, |reader| {
            if let Some(origin) = origin {
                reader.file = origin.file.clone();
            }
            let read = reader.keys(&node);
            let bytes = rule_bytes(rule.name, 0, read.limit_bytes());
            reader.spend(position, bytes.saturating_sub(rule.bytes));
            (read, reader.budget.clone())
        });
        let is_valid = !problems.has_errors();
        let mut problems = problems.into_parts().0;
        for problem in problems.iter_mut().filter(|problem| problem.position == place) {
            problem.help += "; `KEY: null` in `set` removes a key of the rule";
        }
        match is_valid {
            true => Ok(Patched { read, warnings: problems, budget }),
            false => Err(problems),
        }
    }

    /// Calls `read` with a reader that adds neither problems nor rules.
    pub(super) fn quiet<T>(
        &self,
        problems: &mut Problems,
        rules: &mut Vec<Arc<Rule>>,
        together: bool,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let mut reader = Reader {
            file: self.file.clone(),
            problems,
            budget: self.budget.clone(),
            rules,
            previous: self.previous,
            series: self.series,
            max_log_bytes: self.max_log_bytes,
            near_limit_ratio: self.near_limit_ratio,
            reference_layout: self.reference_layout,
            calendar_months: self.calendar_months,
            together,
            lint: false,
            replaced: Vec::new(),
            patcher: None,
            lists: None,
        };
        read(&mut reader)
    }

    /// The name and the place of a rule.
    fn described(&self, rule: &Delivered<'_, '_>) -> String {
        let origin = Origin { file: self.file.clone(), position: rule.position };
        format!("'{}' ({origin})", rule.name)
    }
}

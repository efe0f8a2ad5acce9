//! Applies the patches of an overlay to a rule while it is read: reads the rule again with the keys that they change.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use super::descriptor::{Below, Descriptor, DescriptorNode, Field, limit_nodes};
use super::reader::Reader;
use super::rule_memory::{RuleMemory, rule_bytes};
use crate::overlay::patch::PatchedKeys;
use crate::overlay::patcher::Patcher;
use crate::syntax::position::{Origin, Position};
use crate::syntax::problem::{Problem, Problems};

/// The number of problems of a patched rule that are reported, errors and warnings each.
const MAX_PROBLEMS: usize = 10;

/// A rule as the rule file or the management server has it, without patches.
struct Delivered<'t, 'n> {
    keys: PatchedKeys<'n>,
    bytes: usize,
    position: Position,
    below: &'t Rc<Below<'n>>,
    name: &'t str,
}

/// A valid rule as patches change it.
struct Patched {
    read: Descriptor,
    warnings: Vec<Problem>,
    memory: RuleMemory,
}

impl Reader<'_> {
    /// Applies the patches that match a descriptor, whose path in the domain is `name`. Returns those that changed it.
    pub(super) fn apply_patches<'n>(
        &mut self,
        node: &DescriptorNode<'n>,
        above: &[(Arc<str>, Arc<str>)],
        read: &mut Descriptor,
        name: &str,
    ) -> Arc<[Origin]> {
        // A set with an error is rejected, whatever its patches do.
        if read.rate_limit.is_none() || self.problems.has_errors() {
            return Arc::default();
        }
        let Some(patcher) = self.patcher.take() else { return Arc::default() };
        let entry = (read.key.as_str().into(), read.value.as_str().into());
        let matched = patcher.matching(&[above, &[entry][..]].concat());
        let mut origins = Arc::default();
        if !matched.is_empty() {
            let bytes = rule_bytes(name, 0, read.limit_bytes());
            let keys = self.patched_keys(&node.fields);
            let (position, below) = (node.position, &node.below);
            let rule = Delivered { keys, bytes, position, below, name };
            origins = self.fit(patcher, &rule, matched, read);
        }
        self.patcher = Some(patcher);
        origins
    }

    /// Returns the keys of a valid descriptor that patches change. Metadata is read again only if a patch sets it.
    fn patched_keys<'n>(&mut self, fields: &[Field<'n>]) -> PatchedKeys<'n> {
        let others = ["descriptors", "metadata", "rate_limit", "rate_limits"];
        let rule = fields.iter().filter(|(field, _)| !others.contains(field));
        let rule = rule.map(|(field, node)| (*field, (*node).clone())).collect();
        let (rate_limit, rate_limits) = limit_nodes(fields);
        // Its problems were reported before.
        let mut problems = Problems::new(1);
        let limits = self.quiet(&mut problems).limit_maps(&rate_limit, rate_limits);
        PatchedKeys { rule, limits }
    }

    /// Replaces `read` by the rule with the patches that fit. Returns these. They are added one by one, without those that
    /// make the rule invalid, which are recorded: a later patch does not repair an earlier one.
    fn fit(
        &mut self,
        patcher: &mut Patcher,
        rule: &Delivered<'_, '_>,
        matched: Vec<u32>,
        read: &mut Descriptor,
    ) -> Arc<[Origin]> {
        patcher.set_matched(&matched);
        let (mut better, mut fitting) = (None, Vec::new());
        let mut keys = rule.keys.clone();
        for patch in matched {
            match self.attempt(patcher, rule, &keys, Some(patch)) {
                Ok(patched) => {
                    better = Some(patched);
                    fitting.push(patch);
                    // It was applied to a copy before, so it can be.
                    let _ = keys.apply(patcher.patch(patch));
                }
                Err(errors) => patcher.failures.add(patch, &self.described(rule), errors),
            }
        }
        let Some(Patched { read: mut patched, mut warnings, memory }) = better else {
            return Arc::default();
        };
        if !warnings.is_empty() {
            let delivered = self.attempt(patcher, rule, &rule.keys, None);
            for known in delivered.iter().flat_map(|delivered| &delivered.warnings) {
                warnings.retain(|warning| warning.message != known.message);
            }
            patcher.failures.warn(&self.described(rule), warnings);
        }
        if !fitting.iter().any(|&patch| patcher.patch(patch).sets("metadata")) {
            patched.metadata = read.metadata.take();
        }
        // The value of a network or a list is not a key.
        (patched.value, patched.set) = (mem::take(&mut read.value), read.set.take());
        *read = patched;
        self.memory = memory;
        patcher.set_patched(fitting, self.options.lint)
    }

    /// Reads the keys of a rule with a patch. Fails if they are invalid. All problems are in the patch, if there is one.
    fn attempt(
        &self,
        patcher: &Patcher,
        rule: &Delivered<'_, '_>,
        keys: &PatchedKeys<'_>,
        patch: Option<u32>,
    ) -> Result<Patched, Vec<Problem>> {
        let patch = patch.map(|patch| patcher.patch(patch));
        let origin = patch.map(|patch| &patch.origin);
        let place = origin.map(|origin| origin.position);
        let mut keys = place.map_or_else(|| keys.clone(), |position| keys.moved(position));
        if let Some(patch) = patch {
            keys.apply(patch).map_err(|problem| vec![*problem])?;
        }
        let position = place.unwrap_or(rule.position);
        let fields = keys.into_fields(position);
        let fields = fields.iter().map(|(field, node)| (*field, node)).collect();
        let sets_reserve = patch.is_some_and(|patch| patch.sets("reserve"));
        let (below, cuts_reserve) = (rule.below.clone(), !sets_reserve);
        let node = DescriptorNode { position, fields, below, cuts_reserve };
        let mut problems = Problems::new(MAX_PROBLEMS);
        let mut reader = self.quiet(&mut problems);
        if let Some(origin) = origin {
            reader.file = origin.file.clone();
        }
        let read = reader.keys(&node);
        let bytes = rule_bytes(rule.name, 0, read.limit_bytes());
        reader.spend(position, bytes.saturating_sub(rule.bytes));
        let memory = reader.memory.clone();
        let is_valid = !problems.has_errors();
        let mut problems = problems.into_parts().0;
        for problem in problems.iter_mut().filter(|problem| problem.position == place) {
            problem.help += "; `KEY: null` in `set` removes a key of the rule";
        }
        if is_valid { Ok(Patched { read, warnings: problems, memory }) } else { Err(problems) }
    }

    fn described(&self, rule: &Delivered<'_, '_>) -> String {
        let origin = Origin { file: self.file.clone(), position: rule.position };
        format!("'{}' ({origin})", rule.name)
    }
}

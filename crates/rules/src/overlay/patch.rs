//! A patch: what it matches and what it sets.

use std::sync::Arc;

use crate::syntax::position::{Origin, Position};
use crate::syntax::tree::Node;
use weir_common::failure::OnStoreFailure;
use weir_common::glob::Glob;

/// The maximum number of patches of all files.
pub(crate) const MAX_PATCHES: usize = 10_000;

/// The maximum number of entries of a patch.
pub(crate) const MAX_ENTRIES: usize = 100;

/// What an item of `match.entries` matches.
#[derive(Debug)]
pub(crate) enum Step {
    /// Any number of entries.
    Any,
    /// One entry.
    Entry { key: Glob, value: Option<Glob> },
}

impl Step {
    fn matches(&self, key: &str, value: &str) -> bool {
        match self {
            Step::Any => false,
            Step::Entry { key: wanted, value: pattern } => {
                wanted.matches(key) && pattern.as_ref().is_none_or(|pattern| pattern.matches(value))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub origin: Origin,
    pub domain: Glob,
    /// What the path of a rule must match: at most [`MAX_ENTRIES`] steps.
    pub steps: Vec<Step>,
    /// The name of the limit that is patched, with its position; none for all limits.
    pub limit: Option<(Box<str>, Position)>,
    pub has_set: bool,
    /// Keys of descriptors to set; null removes one.
    pub rule_keys: KeyNodes<'static>,
    /// Keys of limits to set; null removes one.
    pub limit_keys: KeyNodes<'static>,
    /// What replaces all limits, if anything does; none removes them.
    pub limits: Option<Option<LimitMaps<'static>>>,
    /// The `charge` of the domain, if the patch sets it: whether descriptors are charged together.
    pub charge: Option<bool>,
    /// The policy of the domain, if the patch sets it; none for that of the settings.
    pub on_store_failure: Option<Option<OnStoreFailure>>,
}

impl Patch {
    /// A patch that matches all rules and sets nothing.
    pub fn new(origin: Origin) -> Patch {
        Patch {
            origin,
            domain: Glob::new("*"),
            steps: vec![Step::Any],
            limit: None,
            has_set: false,
            rule_keys: Vec::new(),
            limit_keys: Vec::new(),
            limits: None,
            charge: None,
            on_store_failure: None,
        }
    }

    /// Whether the patch is one of rules with this path.
    pub fn matches(&self, path: &[(Arc<str>, Arc<str>)]) -> bool {
        let (mut step, mut entry) = (0, 0);
        // The last step that is any number of entries, and the first entry after those that it stands for.
        let mut any: Option<(usize, usize)> = None;
        while let Some((key, value)) = path.get(entry) {
            match self.steps.get(step) {
                Some(Step::Any) => any = Some((step, entry)),
                Some(one) if one.matches(key, value) => entry += 1,
                _ => {
                    let Some((at, after)) = &mut any else { return false };
                    *after += 1;
                    (step, entry) = (*at, *after);
                }
            }
            step += 1;
        }
        let rest = self.steps.get(step..).unwrap_or_default();
        rest.iter().all(|step| matches!(step, Step::Any))
    }

    /// Whether the patch sets a key of a domain.
    pub fn sets_domain(&self) -> bool {
        self.charge.is_some() || self.on_store_failure.is_some()
    }

    /// Whether the patch sets a key of descriptors.
    pub fn sets(&self, name: &str) -> bool {
        self.rule_keys.iter().any(|(key, _)| *key == name)
    }
}

/// Keys and their values.
pub(crate) type KeyNodes<'n> = Vec<(&'static str, Node<'n>)>;

/// Returns keys with other values.
pub(crate) fn changed<'n, 'm>(
    keys: &KeyNodes<'n>,
    change: impl Fn(&Node<'n>) -> Node<'m>,
) -> KeyNodes<'m> {
    keys.iter().map(|(key, node)| (*key, change(node))).collect()
}

/// The keys of the limits of a rule.
#[derive(Clone, Debug)]
pub(crate) enum LimitMaps<'n> {
    /// The nodes of `rate_limit`.
    One(KeyNodes<'n>),
    /// The nodes of each item of `rate_limits`.
    Several(Vec<KeyNodes<'n>>),
}

impl<'n> LimitMaps<'n> {
    /// Returns the same limits with other values.
    pub fn changed<'m>(&self, change: impl Fn(&Node<'n>) -> Node<'m>) -> LimitMaps<'m> {
        match self {
            LimitMaps::One(keys) => LimitMaps::One(changed(keys, change)),
            LimitMaps::Several(items) => {
                LimitMaps::Several(items.iter().map(|keys| changed(keys, &change)).collect())
            }
        }
    }
}

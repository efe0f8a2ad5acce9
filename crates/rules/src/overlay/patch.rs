//! A patch: what it matches and what it sets.

use super::super::Origin;
use super::super::position::Position;
use super::super::read::{KeyNodes, LimitMaps};
use weir_common::failure::OnStoreFailure;
use weir_common::glob::Glob;

/// The maximum number of patches of all files.
pub(crate) const MAX_PATCHES: usize = 10_000;

/// The maximum number of entries of a patch: its progress along a path is a bit of a `u128` for each.
pub(crate) const MAX_ENTRIES: usize = 100;

/// What an item of `match.entries` matches.
#[derive(Debug)]
pub(crate) enum Step {
    /// Any number of entries.
    Any,
    /// One entry.
    Entry { key: Glob, value: Option<Glob> },
}

/// The limits of a rule that a patch changes.
#[derive(Debug)]
pub(crate) enum LimitSelector {
    /// Counted from 1.
    Number(usize),
    Name(Box<str>),
}

#[derive(Debug)]
pub(crate) struct Patch {
    pub origin: Origin,
    pub domain: Glob,
    /// The steps of the path, never [`Step::Any`] twice in a row.
    steps: Box<[Step]>,
    /// A bit for each step that is [`Step::Any`].
    any: u128,
    /// The limit that is patched, with the position of its selector; none for all limits.
    pub limit: Option<(LimitSelector, Position)>,
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
        let mut patch = Patch {
            origin,
            domain: Glob::new("*"),
            steps: Box::default(),
            any: 0,
            limit: None,
            has_set: false,
            rule_keys: Vec::new(),
            limit_keys: Vec::new(),
            limits: None,
            charge: None,
            on_store_failure: None,
        };
        patch.set_steps(vec![Step::Any]);
        patch
    }

    /// Sets what the path of a rule must match: at most [`MAX_ENTRIES`] steps.
    pub fn set_steps(&mut self, mut steps: Vec<Step>) {
        steps.dedup_by(|next, step| matches!((next, step), (Step::Any, Step::Any)));
        let bits = steps.iter().zip(0_u32..).filter(|(step, _)| matches!(step, Step::Any));
        self.any = bits.fold(0, |any, (_, bit)| any | 1 << bit);
        self.steps = steps.into();
    }

    /// The progress along a path before its first entry: a bit for each number of steps that may be
    /// behind.
    pub fn start(&self) -> u128 {
        self.skip_any(1)
    }

    /// The progress after one more entry.
    pub fn advance(&self, progress: u128, key: &str, value: &str) -> u128 {
        let mut next = progress & self.any;
        let mut open = progress & !self.any;
        while open != 0 {
            let bit = open.trailing_zeros();
            open &= open - 1;
            if let Some(Step::Entry { key: wanted, value: pattern }) = self.steps.get(bit as usize)
                && wanted.matches(key)
                && pattern.as_ref().is_none_or(|pattern| pattern.matches(value))
            {
                next |= 1 << (bit + 1);
            }
        }
        self.skip_any(next)
    }

    /// Whether the whole path is matched.
    pub fn accepts(&self, progress: u128) -> bool {
        progress & (1 << self.steps.len()) != 0
    }

    /// Adds the progress of skipping a step that matches no entry.
    fn skip_any(&self, progress: u128) -> u128 {
        progress | (progress & self.any) << 1
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

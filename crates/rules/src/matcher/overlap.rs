//! Finds descriptors of rule files that are never matched, for warnings of `weir check`: a wildcard of the same level
//! matches first, or, for one value, a descriptor with this value does.
//!
//! A wildcard matches everything that another one does if and only if it matches the other's text with each star
//! replaced by a character that occurs nowhere else: only a star can match that character.

use std::collections::HashMap;

use super::{Child, MatcherNode, Wildcard};
use crate::syntax::position::Origin;
use weir_common::glob::has_parts;

/// The character that replaces stars, and so stands for any text.
const FRESH: char = '\u{10ffff}';

/// The number of earlier wildcards that each is compared with: all of them would take quadratic time.
const MAX_COMPARED: usize = 1_000;

/// A descriptor that no entry of a request reaches.
#[derive(Debug)]
pub(crate) struct Shadowed<'n> {
    pub text: String,
    pub origin: &'n Origin,
    pub any_value: bool,
    /// The wildcard that matches first.
    pub by: String,
    pub by_origin: &'n Origin,
}

/// A descriptor below a `key` without a value. It is not reached for one value that has a descriptor of its own.
#[derive(Debug)]
pub(crate) struct HiddenChild<'n> {
    pub child: &'n Child,
    /// The descriptor of the value, or one below it, which has no such descriptor below it.
    pub by: &'n Child,
    pub above: &'n Child,
}

impl MatcherNode {
    /// Returns the first hidden child of each value. With no comparisons left, none is found.
    pub(crate) fn hidden(&self, comparisons: &mut usize) -> Vec<HiddenChild<'_>> {
        let is_key = |child: &&Child| child.flags.any_value && !child.text.contains('*');
        let keys = self.children.iter().filter(is_key);
        let keys: HashMap<&str, &Child> = keys.map(|child| (&*child.text, child)).collect();
        let values = self.children.iter().filter(|child| !child.flags.any_value);
        let pairs = values.filter_map(|value| Some((value, *keys.get(value.entry().0)?)));
        pairs.filter_map(|(value, key)| value.hides(key, comparisons)).collect()
    }

    /// Clients can still send a wildcard's text itself, stars included. With no comparisons left, none is found.
    pub(crate) fn shadowed(&self, comparisons: &mut usize) -> Vec<Shadowed<'_>> {
        let mut found = Vec::new();
        let mut check = |index: usize, probe: &str, earlier: &[Wildcard]| {
            let earlier = &earlier[..earlier.len().min(MAX_COMPARED).min(*comparisons)];
            *comparisons -= earlier.len();
            let mut earlier = earlier.iter();
            let Some(by) = earlier.find(|wildcard| wildcard.matches_all_of(probe)) else { return };
            let (child, hiding) = (&self.children[index], &self.children[by.child as usize]);
            found.push(Shadowed {
                text: match child.items() {
                    [] => child.text.to_string(),
                    _ => probe.replace(FRESH, "*"),
                },
                origin: &child.origin,
                any_value: child.flags.any_value,
                by: match hiding.items() {
                    [] => hiding.text.to_string(),
                    _ => by.parts.join("*"),
                },
                by_origin: &hiding.origin,
            });
        };
        for (i, wildcard) in self.wildcards.iter().enumerate() {
            let probe = wildcard.parts.join(FRESH.encode_utf8(&mut [0; 4]));
            check(wildcard.child as usize, &probe, &self.wildcards[..i]);
        }
        if !self.wildcards.is_empty() {
            for (index, child) in self.children.iter().enumerate() {
                if child.flags.any_value && !child.text.contains('*') {
                    check(index, &format!("{}_{FRESH}", child.text), &self.wildcards);
                }
            }
        }
        found
    }
}

impl Child {
    /// Returns a child of `other` that entries do not reach if they match this child first.
    fn hides<'n>(&'n self, other: &'n Child, comparisons: &mut usize) -> Option<HiddenChild<'n>> {
        let is_exception = match &self.rule {
            Some(rule) => rule.plan.is_none(),
            None => self.below.children.is_empty(),
        };
        if is_exception {
            return None;
        }
        let has_rules = |child: &&Child| child.rule.is_some() || !child.below.children.is_empty();
        other.below.children.iter().filter(has_rules).find_map(|child| {
            *comparisons = comparisons.checked_sub(self.below.children.len() + 1)?;
            let (key, value) = child.entry();
            let fresh = FRESH.to_string();
            let value = if value.is_empty() { fresh } else { value.replace('*', &fresh) };
            let found = self.below.child(key, &value).map(|matched| matched.child);
            let same = || self.below.children.iter().find(|same| same.text == child.text);
            match found.or_else(same) {
                Some(found) => found.hides(child, comparisons),
                None => Some(HiddenChild { child, by: self, above: other }),
            }
        })
    }
}

impl Wildcard {
    /// Returns whether the pattern matches whatever replaces the fresh characters of `probe`.
    fn matches_all_of(&self, probe: &str) -> bool {
        !self.parts.iter().any(|part| part.contains(FRESH)) && has_parts(probe, &self.parts)
    }
}

//! Finds children that no entry reaches, because a wildcard of the same node matches first.
//!
//! A wildcard matches everything that another one does if and only if it matches the text of that
//! other one with a character for each star that occurs nowhere else: only a star can match that.

use super::{MatcherNode, Wildcard};
use crate::syntax::position::Origin;
use weir_common::glob::has_parts;

/// Stands for any text.
const FRESH: char = '\u{10ffff}';

/// The number of earlier wildcards that each is compared with: all of them would take quadratic time.
const MAX_COMPARED: usize = 1_000;

/// A child that no entry reaches.
#[derive(Debug)]
pub(crate) struct Shadowed<'n> {
    pub text: String,
    pub origin: &'n Origin,
    pub any_value: bool,
    /// The wildcard that matches first.
    pub by: String,
    pub by_origin: &'n Origin,
}

impl MatcherNode {
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

impl Wildcard {
    /// Returns whether the pattern matches whatever replaces the fresh characters of `probe`.
    fn matches_all_of(&self, probe: &str) -> bool {
        !self.parts.iter().any(|part| part.contains(FRESH)) && has_parts(probe, &self.parts)
    }
}

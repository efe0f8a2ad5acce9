//! What the rules of a file may take in memory.
//!
//! A few bytes of a file can stand for much: a long key is part of the name of every rule below it,
//! and an alias repeats what it stands for. So each part of a rule is charged by what it takes, its
//! name also by the time to make it, and a file whose rules take far more than rules do is refused.

use super::limits::RateLimit;

/// Bytes that the rules of any file may take.
const BASE_BYTES: usize = 16 << 20;

/// Bytes that they may take for each byte of the file. Rules of the densest sort, one line of 30
/// bytes with an alias for its limit, take 30.
const BYTES_PER_BYTE: usize = 48;

/// A node of the tree, with its place in the tables.
const NODE_BYTES: usize = 256;
/// A literal text between the stars of a wildcard.
const PART_BYTES: usize = 48;
/// A rule with its counters and its plan, its name apart.
const RULE_BYTES: usize = 416;
/// A key and a value on the way to a rule.
const ENTRY_BYTES: usize = 32;
const LIMIT_BYTES: usize = 128;
const REPLACED_BYTES: usize = 48;

/// A map of metadata: what the standard library allocates for the first entries.
pub(super) const MAP_BYTES: usize = 640;
/// An entry of a map, its key and value apart.
pub(super) const FIELD_BYTES: usize = 64;
pub(super) const VALUE_BYTES: usize = 32;

pub(super) const HELP: &str = "split the file, shorten its keys and values, or repeat less of it \
                               by aliases";

/// A number of bytes that is spent bit by bit.
#[derive(Debug)]
pub(in crate::rules) struct Budget {
    limit: usize,
    /// None once more was wanted than was left.
    left: Option<usize>,
}

impl Budget {
    /// The budget of a file of this length.
    pub(in crate::rules) fn of(file_bytes: usize) -> Budget {
        let limit = file_bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(BASE_BYTES);
        Budget { limit, left: Some(limit) }
    }

    /// Whether more was wanted than there was.
    pub(super) fn is_spent(&self) -> bool {
        self.left.is_none()
    }

    /// Takes bytes from what is left.
    ///
    /// # Errors
    /// There are not so many left, for the first time.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let Some(left) = self.left else { return Ok(()) };
        self.left = left.checked_sub(bytes);
        match self.left {
            Some(_) => Ok(()),
            None => Err(format!(
                "config error, the rules of this file take more than {} bytes of memory",
                self.limit
            )),
        }
    }
}

/// What a descriptor takes, whether it has limits or not. `above` is the name of the one above it,
/// which its own name repeats.
pub(super) fn node_bytes(text: &str, above: &str) -> usize {
    let parts = if text.contains('*') { text.matches('*').count() + 1 } else { 0 };
    NODE_BYTES + 3 * text.len() + above.len() + parts * PART_BYTES
}

/// What the limits of a descriptor take, with the rule they make; `entries` are as many keys and
/// values as lead to it.
pub(super) fn rule_bytes(name: &str, entries: usize, rate_limit: Option<&RateLimit>) -> usize {
    let Some(rate_limit) = rate_limit else { return 0 };
    let replaces: usize = rate_limit.replaces.iter().map(|name| REPLACED_BYTES + name.len()).sum();
    let names: usize = rate_limit.limits.iter().map(|limit| LIMIT_BYTES + limit.name.len()).sum();
    RULE_BYTES + name.len() + entries * ENTRY_BYTES + replaces + names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once() {
        let mut budget = Budget::of(10);
        assert_eq!(budget.spend(BASE_BYTES + 480), Ok(()));
        assert_eq!(budget.spend(0), Ok(()));
        assert!(!budget.is_spent());
        let error = budget.spend(1).unwrap_err();
        assert!(error.contains(&(BASE_BYTES + 480).to_string()), "{error}");
        assert_eq!((budget.is_spent(), budget.spend(1)), (true, Ok(())));
    }

    #[test]
    fn the_densest_rules_are_within_the_budget() {
        let limit = crate::limit::Limit::fixed_window(1, crate::limit::Unit::Day, 1);
        let rate_limit = RateLimit { limits: limit.into_iter().collect(), ..Default::default() };
        let line = "- {key: k12345,rate_limit: *l}\n";
        let bytes = node_bytes("k12345", "d") + rule_bytes("d.k12345", 1, Some(&rate_limit));
        assert!(bytes <= BYTES_PER_BYTE * line.len(), "{bytes}");
    }
}

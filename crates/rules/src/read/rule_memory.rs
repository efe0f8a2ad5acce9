//! Limits the memory for the rules of a file or xDS resource, by estimates while it is read.
//!
//! A few bytes of a file can expand to many: a long key is part of the name of every rule below it,
//! and an alias repeats the value of its anchor. Each part of a rule counts by its size, its name
//! also by the time to build it, and a file with much larger rules than usual is rejected.

/// The memory for every file, in bytes.
const BASE_BYTES: usize = 16 << 20;

/// The additional memory for each byte of the file. The densest ordinary rules, lines of 30 bytes with
/// an alias for the limit, take 30.
const BYTES_PER_BYTE: usize = 48;

/// A node of the matcher, with its entries in the tables.
const NODE_BYTES: usize = 256;
/// An item of `values`, with its entries in the tables, without its text.
const ITEM_BYTES: usize = 128;
/// A literal part of a wildcard.
const PART_BYTES: usize = 48;
/// A rule with its counters and compiled limits, without its name.
const RULE_BYTES: usize = 432;
/// A key and a value that lead to a rule.
const ENTRY_BYTES: usize = 32;
pub(super) const LIMIT_BYTES: usize = 128;
/// How a rule reserves hits, without its keys.
pub(super) const RESERVE_BYTES: usize = 80;
/// The bans of a rule, for which its limits are compiled twice, without these limits and the lengths.
pub(super) const BAN_BYTES: usize = 320;
pub(super) const REPLACED_BYTES: usize = 48;

/// A map of metadata, with the room that the standard library allocates for the first entries.
pub(super) const MAP_BYTES: usize = 640;
/// An entry of a map, without its key and value.
pub(super) const FIELD_BYTES: usize = 64;
pub(super) const VALUE_BYTES: usize = 32;

pub(super) const HELP: &str = "split the file, shorten its keys and values, or repeat less of it \
                               by aliases";

#[derive(Clone, Debug)]
pub(crate) struct RuleMemory {
    limit: usize,
    /// The bytes that may still be read; none once the limit was exceeded.
    left: Option<usize>,
}

impl RuleMemory {
    pub(crate) fn of(file_bytes: usize) -> RuleMemory {
        let limit = file_bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(BASE_BYTES);
        RuleMemory { limit, left: Some(limit) }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.left.is_none()
    }

    /// Fails when the limit is first exceeded.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let Some(left) = self.left else { return Ok(()) };
        self.left = left.checked_sub(bytes);
        if self.left.is_some() {
            return Ok(());
        }
        let limit = self.limit;
        Err(format!("config error, the rules of this file take more than {limit} bytes of memory"))
    }
}

/// The size of a descriptor without its limits. Its own name repeats `above`, the name of its parent.
pub(super) fn node_bytes(text: &str, above: &str) -> usize {
    let parts = if text.contains('*') { text.matches('*').count() + 1 } else { 0 };
    NODE_BYTES + 3 * text.len() + above.len() + parts * PART_BYTES
}

pub(super) fn item_bytes(key: &str, text: &str) -> usize {
    let parts = if text.contains('*') { text.matches('*').count() + 1 } else { 0 };
    ITEM_BYTES + text.len() + if parts > 0 { key.len() + parts * PART_BYTES } else { 0 }
}

/// The size of the rule of a descriptor with limits. `entries` is the number of keys and values that lead to it.
pub(super) fn rule_bytes(name: &str, entries: usize, limit_bytes: Option<usize>) -> usize {
    let Some(limit_bytes) = limit_bytes else { return 0 };
    RULE_BYTES + name.len() + entries * ENTRY_BYTES + limit_bytes
}

#[cfg(test)]
mod tests {
    use super::super::limits::LimitFields;
    use super::*;

    #[test]
    fn an_excess_is_reported_once() {
        let mut memory = RuleMemory::of(10);
        assert_eq!(memory.spend(BASE_BYTES + 480), Ok(()));
        assert_eq!(memory.spend(0), Ok(()));
        assert!(!memory.is_spent());
        let error = memory.spend(1).unwrap_err();
        assert!(error.contains(&(BASE_BYTES + 480).to_string()), "{error}");
        assert_eq!((memory.is_spent(), memory.spend(1)), (true, Ok(())));
    }

    #[test]
    fn the_densest_rules_are_within_the_memory() {
        let limit = weir_limit::Limit::fixed_window(1, weir_limit::Unit::Day, 1);
        let rate_limit = LimitFields { limits: limit.into_iter().collect(), ..Default::default() };
        let line = "- {key: k12345,rate_limit: *l}\n";
        let bytes = node_bytes("k12345", "d") + rule_bytes("d.k12345", 1, Some(rate_limit.bytes()));
        assert!(bytes <= BYTES_PER_BYTE * line.len(), "{bytes}");
    }
}

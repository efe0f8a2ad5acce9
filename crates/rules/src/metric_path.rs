//! The paths that values of requests distinguish in metrics, as the reference builds them.

use std::fmt::Write;

use super::matcher::{MatchKind, MatcherNode};
use weir_common::entry::Entry;

impl MatcherNode {
    /// The path of a descriptor in the metrics of its rule: the names of the nodes that it matches,
    /// where `value_to_metric` puts the value of an entry that a node does not name.
    ///
    /// `detailed` is the path of a rule with `detailed_metric`: all entries with their values. Where a
    /// wildcard shares its threshold, its pattern replaces the value in either.
    pub(super) fn metric_path(&self, entries: &[Entry<'_>], detailed: bool) -> String {
        let mut shares = false;
        self.each_match(entries, |_, _, flags, kind| {
            shares |= kind == MatchKind::Wildcard && flags.share_threshold;
        });
        let mut path = String::with_capacity(64);
        self.each_match(entries, |entry, text, flags, kind| {
            let is_wildcard = kind == MatchKind::Wildcard;
            let part = if is_wildcard && flags.share_threshold {
                Part::Node
            } else if detailed {
                if shares { Part::Sent } else { Part::Whole }
            } else if flags.value_to_metric && kind != MatchKind::Value {
                Part::Sent
            } else {
                Part::Node
            };
            if !path.is_empty() {
                path.push('.');
            }
            match part {
                Part::Node => path.push_str(text),
                Part::Sent => push_sent(&mut path, entry),
                Part::Whole => {
                    let _ = write!(path, "{}_{}", entry.0, entry.1);
                }
            }
        });
        path
    }
}

/// What an entry adds to a path.
enum Part {
    /// The text of its node.
    Node,
    /// `key_value`, or `key` if the value is empty.
    Sent,
    /// `key_value`, whatever the value.
    Whole,
}

/// The path of a descriptor whose limit was sent with it.
pub fn sent_path(entries: &[Entry<'_>]) -> String {
    let mut path = String::with_capacity(64);
    for entry in entries {
        if !path.is_empty() {
            path.push('.');
        }
        push_sent(&mut path, *entry);
    }
    path
}

fn push_sent(path: &mut String, (key, value): Entry<'_>) {
    path.push_str(key);
    if !value.is_empty() {
        path.push('_');
        path.push_str(value);
    }
}

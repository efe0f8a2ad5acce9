//! Builds the names of rules in metrics, such as `plan_gold.user_ann`, as envoyproxy/ratelimit does: `detailed_metric`
//! and `value_to_metric` put values of the request into them. Used to count a decision and to explain it.

use std::borrow::Cow;
use std::fmt::Write;

use super::{Domain, MatchedValue, MatcherNode};
use crate::model::rule::Rule;
use crate::model::value_set::MatchKind;
use weir_common::entry::{Entry, rule_text};
use weir_common::value;

impl Domain {
    /// Returns the name in metrics of a rule that `entries` match, without the domain: the texts of the matched
    /// descriptors. `value_to_metric` adds the value of an entry whose descriptor names none, `detailed_metric` all.
    ///
    /// A wildcard, network or list with `share_threshold` has its own text instead of the value. Entries that only name
    /// a reservation, or settle it, add no value.
    pub fn metric_path(&self, rule: &Rule, entries: &[Entry<'_>]) -> String {
        let detailed = rule.detailed_metric;
        let counted = rule.counted_entries(entries.len());
        let entries = entries.get(..rule.entries.len()).unwrap_or(entries);
        let mut shares = false;
        let is_shared = |matched: &MatchedValue<'_>| {
            matched.child.flags.share_threshold && !matched.kind.is_exact()
        };
        self.root.each_match(entries, |_, _, matched| shares |= is_shared(matched));
        let mut path = String::with_capacity(64);
        self.root.each_match(entries, |i, (key, value), matched| {
            let names_none = matched.kind != MatchKind::Value;
            let adds_value = detailed || names_none && matched.child.flags.value_to_metric;
            let has_value = adds_value && i < counted && !is_shared(matched);
            if !path.is_empty() {
                path.push('.');
            }
            // Addresses are in their canonical form, as in the key.
            let counted = matched.key_value(key, value).map(|counted| counted.text(value));
            let value = counted.as_deref().unwrap_or(value);
            let start = path.len();
            if !has_value {
                path.push_str(&matched.child.text);
            } else if value.is_empty() && (shares || !detailed) {
                path.push_str(key);
            } else {
                let _ = write!(path, "{key}_{}", value::shown(value));
            }
            if self.replace_dots {
                let part = path.split_off(start);
                path += &part.replace('.', "_");
            }
        });
        path
    }

    /// Returns the path of a descriptor whose limit was sent with it: its keys alone. Without a rule, nobody chose its
    /// values for metrics, and any of them may be a secret of a client.
    pub fn override_path(&self, entries: &[Entry<'_>]) -> String {
        let keys = entries.iter().map(|(key, _)| match self.replace_dots {
            true => key.replace('.', "_").into(),
            false => Cow::Borrowed(*key),
        });
        keys.collect::<Vec<_>>().join(".")
    }

    /// Returns the path of a rule in metrics of its own.
    pub(crate) fn rule_path<'r>(&self, rule: &'r Rule) -> Cow<'r, str> {
        if !self.replace_dots || !rule.path().contains('.') {
            return rule.path().into();
        }
        let parts = rule.entries().map(|entry| rule_text(entry).replace('.', "_"));
        parts.collect::<Vec<_>>().join(".").into()
    }
}

impl MatcherNode {
    /// Calls `part` with each entry, its index, and the child that it matches.
    fn each_match<'e>(
        &self,
        entries: &[Entry<'e>],
        mut part: impl FnMut(usize, Entry<'e>, &MatchedValue<'_>),
    ) {
        let mut node = self;
        for (i, &(key, value)) in entries.iter().enumerate() {
            let Some(matched) = node.child(key, value) else { return };
            part(i, (key, value), &matched);
            node = &matched.child.below;
        }
    }
}

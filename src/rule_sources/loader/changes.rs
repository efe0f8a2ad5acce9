//! What a load changed, in a few lines.

use std::fmt;

use serde::Serialize;

use weir_rules::{Difference, truncated};

const MAX_LISTED: usize = 20;
const MAX_LINE_BYTES: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The numbers of rules that were added and removed, and of members that changed.
    pub added: usize,
    pub removed: usize,
    pub changed: usize,
    /// `shop.user: 60 per minute → 90 per minute`, `shop.legacy removed`, `1 rule added (shop.new)`: up to 20 of
    /// them, and then the numbers of the others.
    pub list: Vec<String>,
}

impl From<&Difference<'_>> for Changes {
    fn from(difference: &Difference<'_>) -> Changes {
        let Difference { added, removed, changed } = difference;
        let mut list: Vec<String> = changed.iter().take(MAX_LISTED).map(line).collect();
        let (listed, room) = (list.len(), MAX_LISTED - list.len());
        list.extend(removed.iter().take(room).map(|rule| line(rule) + " removed"));
        let (listed_removed, room) = (list.len() - listed, MAX_LISTED - list.len());
        let others =
            [(changed.len() - listed, "changed"), (removed.len() - listed_removed, "removed")];
        list.extend(
            others.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} more {what}")),
        );
        if !added.is_empty() {
            let count = added.len();
            let mut names: Vec<String> = added.iter().take(room).map(line).collect();
            if !names.is_empty() && names.len() < count {
                names.push("…".to_owned());
            }
            let names = match names.is_empty() {
                true => String::new(),
                false => format!(" ({})", names.join(", ")),
            };
            list.push(format!("{count} rule{} added{names}", if count == 1 { "" } else { "s" }));
        }
        let (added, removed, changed) = (added.len(), removed.len(), changed.len());
        Changes { added, removed, changed, list }
    }
}

fn line(change: impl fmt::Display) -> String {
    truncated(change.to_string(), MAX_LINE_BYTES)
}

/// The list in one line; `none` if it is empty.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.list.is_empty() { f.write_str("none") } else { f.write_str(&self.list.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_rules::source::RuleFile;
    use weir_rules::{RuleOptions, RuleSet, compare};

    /// What the second of two sets changes: each has these rules, by their key and number.
    fn changes(old: &[(&str, u32)], new: &[(&str, u32)]) -> Changes {
        let [old, new] = [old, new].map(|rules| {
            let rule = |(key, n): &(&str, u32)| {
                format!(
                    "- {{ key: {key}, rate_limit: {{ unit: minute, requests_per_unit: {n} }} }}\n"
                )
            };
            let rules: String = rules.iter().map(rule).collect();
            let text = format!("domain: shop\ndescriptors:\n{rules}");
            let file = RuleFile { name: "shop.yaml".to_owned(), text };
            RuleSet::compile(&[file], &RuleOptions::default(), None).0
        });
        Changes::from(&compare(&old, &new))
    }

    #[test]
    fn changes_are_named() {
        let changed = changes(&[("user", 60), ("legacy", 1)], &[("user", 90), ("new", 1)]);
        assert_eq!(
            changed.to_string(),
            "shop.user: 60 per minute → 90 per minute; shop.legacy removed; 1 rule added (shop.new)"
        );
        assert_eq!((changed.added, changed.removed, changed.changed), (1, 1, 1));
        assert_eq!(changes(&[("a", 1)], &[("a", 1)]).to_string(), "none");
    }

    #[test]
    fn up_to_twenty_are_named_and_the_others_counted() {
        let keys: Vec<String> = (10..40).map(|i| format!("k{i}")).collect();
        let rules = |n| -> Vec<(&str, u32)> { keys.iter().map(|key| (key.as_str(), n)).collect() };
        let changed = changes(&rules(1), &rules(2));
        assert_eq!((changed.list.len(), changed.changed), (21, 30));
        assert_eq!(changed.list[20], "10 more changed");
        let removed = changes(&rules(1), &[("new", 1)]);
        assert_eq!(removed.list[19..], ["shop.k29 removed", "10 more removed", "1 rule added"]);
        let added = changes(&[("k10", 1)], &rules(2)).list;
        assert_eq!(added[0], "shop.k10: 1 per minute → 2 per minute");
        assert!(added[1].starts_with("29 rules added (shop.k11, ") && added[1].ends_with(", …)"));
        assert_eq!(added[1].matches("shop.").count(), 19);
    }

    #[test]
    fn long_names_are_cut() {
        let key = "k".repeat(10_000);
        let changed = changes(&[(key.as_str(), 1)], &[(key.as_str(), 2)]);
        assert!(changed.list[0].len() < 300);
    }
}

//! Loads and rejections of rules: the newest, for `/status`, and each as it happens, for the change log of operators.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use tokio::sync::broadcast;

use weir_common::truncate::truncated;
use weir_rules::{Difference, Position, Problem};

/// Reloads that wait for a subscriber; older ones are dropped.
pub(super) const MAX_WAITING: usize = 16;

/// The longest text of errors, in bytes.
const MAX_ERROR_BYTES: usize = 2_000;

/// The changes of a load that are listed, and the longest line of one.
const MAX_LISTED: usize = 20;
const MAX_LINE_BYTES: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reloaded {
    /// Rules, also if only their overlay has changed.
    Rules,
    /// An overlay, which is reported only if it is rejected.
    Overlay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub files: usize,
    pub domains: usize,
    pub rules: usize,
}

/// Rules or an overlay that were loaded or rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reload {
    pub what: Reloaded,
    pub ok: bool,
    /// The errors, if it was rejected; a long text is cut.
    pub error: Option<String>,
    /// The numbers of the active rules, if it was not.
    pub summary: Option<Summary>,
    /// What the active rules changed; none if it was rejected, and for the first rules.
    pub changes: Option<Changes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What the rejection means, and the first error.
    pub text: String,
    /// The place of the first error.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub errors: usize,
    /// Since when none have been valid.
    pub since: SystemTime,
}

impl Rejected {
    /// Returns whether the first error is the same.
    fn is_like(&self, other: &Rejected) -> bool {
        let place = |set: &Rejected| (set.file.clone(), set.line, set.column);
        self.text == other.text && place(self) == place(other)
    }

    /// Notes the errors of a set that is rejected `now`, after `before`. `message` says what the rejection means.
    pub(super) fn new(
        message: &str,
        first: Option<&Problem>,
        errors: usize,
        now: SystemTime,
        before: Option<&Rejected>,
    ) -> Rejected {
        let position = first.and_then(|first| first.position);
        Rejected {
            text: match first {
                Some(first) => format!("{message}: {}", first.message),
                None => message.to_owned(),
            },
            file: first.map(|first| first.file.clone()),
            line: position.and_then(Position::line),
            column: position.and_then(Position::column),
            errors,
            since: before.map_or(now, |before| before.since),
        }
    }
}

/// The active set, and the errors of a newer one.
#[derive(Clone, Debug, Default)]
pub struct LoadStatus {
    /// When the active rules were loaded, and their numbers.
    pub loaded: Option<(SystemTime, Summary)>,
    /// The warnings about the active rules, in full.
    pub warnings: Arc<str>,
    /// What the active rules changed; none for the first rules.
    pub changes: Option<Changes>,
    /// The newest set, if it was rejected.
    pub newest: Option<RejectedSet>,
    /// The active rules with the newest overlay and lists, if these were rejected.
    pub present: Option<RejectedSet>,
    /// The errors of the last set that was rejected.
    pub last_error: Option<Errors>,
}

/// When a set was rejected, and its errors in full.
pub type Errors = (SystemTime, Arc<str>);

#[derive(Clone, Debug)]
pub struct RejectedSet {
    pub shown: Rejected,
    pub errors: Errors,
}

impl LoadStatus {
    /// Returns what is rejected now: once, if both sets have the same error.
    pub fn rejected(&self) -> impl Iterator<Item = &RejectedSet> {
        let newest = self.newest.as_ref();
        let is_other =
            |set: &&RejectedSet| newest.is_none_or(|newest| !newest.shown.is_like(&set.shown));
        newest.into_iter().chain(self.present.as_ref().filter(is_other))
    }
}

/// Reports a load, or the errors of a rejection, to operators who watch.
pub(super) fn announce(
    reloads: &broadcast::Sender<Reload>,
    what: Reloaded,
    result: Result<(Summary, Option<Changes>), &str>,
) {
    if reloads.receiver_count() == 0 {
        return;
    }
    let ok = result.is_ok();
    let error = result.as_ref().err().map(|problems| truncated(*problems, MAX_ERROR_BYTES));
    let (summary, changes) = result.ok().unzip();
    let reload = Reload { what, ok, error, summary, changes: changes.flatten() };
    // The last watcher may have gone.
    let _ = reloads.send(reload);
}

/// What a load changed, in a few lines.
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
            let names = names.join(", ");
            let names = if names.is_empty() { names } else { format!(" ({names})") };
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

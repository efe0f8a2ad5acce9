//! The lists against exact counts.

mod bans;
mod keys;
mod near;
mod share;
mod sketch;
mod windows;
mod zipf;

use std::collections::HashMap;

use super::*;
use weir_common::clock::ManualClock;

/// A list of all rows.
fn all(by: By) -> TopQuery<'static> {
    TopQuery::new(by)
}

fn top(entries: usize, threads: usize) -> (Top, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SECOND));
    let options = TopOptions { entries, redact: Vec::new(), threads, share: false };
    (Top::new(options, clock.clone()), clock)
}

/// Records hits of a user.
fn record(top: &Top, user: &str, hits: u64, outcome: Outcome<'_>) {
    let (domain, entries) = ("d", &[("user", user)][..]);
    top.record(&Recorded { domain, entries, rule: "user", hits, outcome });
}

/// The user of a row.
fn user(row: &TopRow) -> &str {
    assert_eq!((row.domain.as_str(), row.entries[0].key.as_str()), ("d", "user"));
    &row.entries[0].value
}

/// Checks a list against the exact counts of users.
fn check(list: &TopList, exact: &HashMap<String, u64>) {
    assert!(list.rows.is_sorted_by(|a, b| a.count >= b.count));
    let mut listed = HashMap::new();
    for row in &list.rows {
        let exact = exact.get(user(row)).copied().unwrap_or(0);
        let least = row.count - row.error;
        assert!((least..=row.count).contains(&exact), "{exact}: {row:?}");
        assert_eq!(listed.insert(user(row), row.count), None, "listed twice");
    }
    assert_eq!(list.total, exact.values().sum::<u64>());
    for (user, count) in exact {
        let is_certain = *count > list.unlisted;
        assert!(!is_certain || listed.contains_key(user.as_str()), "{user}: {count} hits");
    }
}

//! The lists of top keys as operators see them, ready for JSON: what keys are listed by, the time covered, their rows.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::key::RowKey;
use super::merge::Merged;
use super::near::Near;
use super::redact::Redaction;
use super::sketch::Row;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::named_enum;
use weir_limit::Micros;

named_enum! {
    /// What keys are listed by, and its name in the API.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum By, name {
        /// Hits requested, admitted or not.
        Hits = "hits",
        Denied = "denied",
        /// Hits that are admitted only because of a shadow mode.
        WouldBeDenied = "would_be_denied",
        /// How much of a limit is used, of those keys that are near one.
        Near = "near",
        /// Hits denied by a ban, of those keys that are banned.
        Banned = "banned",
    }
}

named_enum! {
    /// The time over which hits are counted, and its name in the API. A list may cover somewhat more, which it says.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Window, name {
        #[serde(rename = "1m")]
        Minute = "1m",
        #[serde(rename = "10m")]
        TenMinutes = "10m",
        #[serde(rename = "1h")]
        Hour = "1h",
        /// All time since the start.
        #[default]
        #[serde(rename = "start")]
        Start = "start",
    }
}

named_enum! {
    /// Whose hits are counted, and its name in the API.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Scope, name {
        /// The hits of this replica.
        #[default]
        Here = "here",
        /// The hits of all replicas that share lists.
        All = "all",
    }
}

#[derive(Clone, Copy)]
pub struct TopQuery<'a> {
    pub by: By,
    /// Not for [`By::Near`] and [`By::Banned`], which list what is near a limit or banned now.
    pub window: Window,
    /// The largest number of rows.
    pub limit: usize,
    /// The domain of the keys to list; none: all.
    pub domain: Option<&'a str>,
    /// The path of the rule of the keys to list, as it is or as it is shown; none: all.
    pub rule: Option<&'a str>,
    /// Whether a key, with its true values, is to be listed; none: all are. Of a key that is cut it
    /// gets what is kept.
    pub filter: Option<&'a Filter<'a>>,
}

impl TopQuery<'_> {
    /// Returns the query for all keys since the start.
    pub fn new(by: By) -> TopQuery<'static> {
        let (limit, window) = (usize::MAX, Window::Start);
        TopQuery { by, window, limit, domain: None, rule: None, filter: None }
    }

    pub(super) fn selects(&self, key: &RowKey, redaction: &Redaction) -> bool {
        let (domain, entries) = key.texts();
        let has_rule =
            |rule: &str| key.rule() == rule || redaction.path(key.rule(), &entries) == rule;
        self.domain.is_none_or(|wanted| wanted == domain)
            && self.rule.is_none_or(has_rule)
            && self.filter.is_none_or(|filter| filter(domain, &entries))
    }
}

/// Whether the key of a domain and of entries is to be listed.
pub type Filter<'a> = dyn Fn(&str, &[Entry<'_>]) -> bool + 'a;

/// The keys with the most hits or denials, or the closest to a limit; the first row first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopList {
    pub by: By,
    /// The window; of those near a limit or banned, all time.
    #[serde(default)]
    pub window: Window,
    #[serde(default)]
    pub scope: Scope,
    /// The replicas whose lists these are.
    #[serde(default = "one")]
    pub replicas: usize,
    /// How long these have been counted; the longest of any replica.
    pub seconds: u64,
    /// The hits of all keys, with those of no row, and of all domains.
    pub total: u64,
    /// Every key with more hits than this is listed, if the query selects it and there is no limit.
    pub unlisted: u64,
    pub rows: Vec<TopRow>,
    /// The greatest count of a row that `limit` has cut off.
    #[serde(skip)]
    pub(super) cut_off: u64,
}

fn one() -> usize {
    1
}

/// A key. Its true count is from `count - error` to `count`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopRow {
    pub domain: String,
    /// The entries that are counted together: without a hold id, and with the pattern where a rule
    /// shares its threshold.
    pub entries: Vec<OwnedEntry>,
    /// The path of the rule when the row was made; none for a limit sent with the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whether the key was too long to be kept whole: texts that end in an ellipsis are cut, and
    /// entries may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Hits requested; denied; that would be denied; admitted at or over `near_limit_ratio`; or denied by the ban.
    pub count: u64,
    /// How much `count` may be too large.
    pub error: u64,
    /// The time until the ban of the key ends, on this replica; none without a ban.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banned_ms: Option<u64>,
    /// The limit that the key is near; none in other lists.
    #[serde(flatten)]
    pub near: Option<LimitUsage>,
    /// Identifies a key that is cut, among those of all replicas; empty for others.
    #[serde(skip)]
    pub(super) tag: String,
}

/// A limit at its last admission at or over `near_limit_ratio`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitUsage {
    /// The name of the limit; of several without names, its text; else empty.
    pub limit: String,
    pub used: u64,
    /// The most hits that the limit can allow at once: its burst, or its n.
    pub n: u32,
    /// The time until the limit, left alone, is back to its full allowance.
    pub reset_ms: u64,
}

/// Returns the rows of `merged` that a query asks for, those with the greatest count first. `ends_in` gets the hash of
/// a key, and returns the milliseconds until its ban ends.
pub(super) fn by_count<P>(
    mut merged: Merged<P>,
    query: &TopQuery<'_>,
    redaction: &Redaction,
    ends_in: impl Fn(u64, &P) -> Option<u64>,
) -> TopList {
    // Of a key whose hits may all be those of others, nothing is known.
    merged.rows.retain(|row| row.count > row.error && query.selects(&row.key, redaction));
    merged.sort(|a, b| count_order((a.count, a.error), (b.count, b.error)));
    list(merged, query, redaction, |row, shown| {
        shown.banned_ms = ends_in(row.hash, &row.payload);
    })
}

/// Returns the rows of `merged` whose reset is after `now`, those closest to their limit first.
pub(super) fn by_fraction(
    mut merged: Merged<Near>,
    query: &TopQuery<'_>,
    redaction: &Redaction,
    now: Micros,
) -> TopList {
    merged.rows.retain(|row| row.payload.reset > now && query.selects(&row.key, redaction));
    merged.sort(|a, b| {
        let (a_used, b_used) = (&a.payload, &b.payload);
        use_order((a_used.used, a_used.n, a.count), (b_used.used, b_used.n, b.count))
    });
    let near = |row: &Row<Near>, shown: &mut TopRow| {
        let near = &row.payload;
        shown.near = Some(LimitUsage {
            limit: near.limit.to_string(),
            used: near.used,
            n: near.n,
            reset_ms: near.reset.saturating_sub(now).div_ceil(1_000),
        });
    };
    TopList { window: Window::Start, ..list(merged, query, redaction, near) }
}

/// The order of counts with their errors.
fn count_order(a: (u64, u64), b: (u64, u64)) -> Ordering {
    b.0.cmp(&a.0).then(a.1.cmp(&b.1))
}

/// The order of limits by used, n, and count.
fn use_order(a: (u64, u32, u64), b: (u64, u32, u64)) -> Ordering {
    let cross = |a: (u64, u32, u64), b: (u64, u32, u64)| u128::from(a.0) * u128::from(b.1);
    cross(b, a).cmp(&cross(a, b)).then(b.2.cmp(&a.2))
}

pub(super) fn order(a: &TopRow, b: &TopRow) -> Ordering {
    let by_number = match (&a.near, &b.near) {
        (Some(a_near), Some(b_near)) => {
            use_order((a_near.used, a_near.n, a.count), (b_near.used, b_near.n, b.count))
        }
        _ => count_order((a.count, a.error), (b.count, b.error)),
    };
    let key = |row: &'_ TopRow| (row.domain.clone(), row.entries.clone(), row.rule.clone());
    by_number.then_with(|| key(a).cmp(&key(b)))
}

/// Returns the list of sorted rows, each shown with what `complete` adds.
fn list<P>(
    merged: Merged<P>,
    query: &TopQuery<'_>,
    redaction: &Redaction,
    complete: impl Fn(&Row<P>, &mut TopRow),
) -> TopList {
    let Merged { mut rows, total, unlisted, .. } = merged;
    let cut_off = rows.drain(query.limit.min(rows.len())..).map(|row| row.count).max();
    let row = |row: &Row<P>| {
        let mut shown = shown(row, redaction);
        complete(row, &mut shown);
        shown
    };
    let rows = rows.iter().map(row).collect();
    TopList {
        by: query.by,
        window: query.window,
        scope: Scope::Here,
        replicas: 1,
        seconds: 0,
        total,
        unlisted,
        rows,
        cut_off: cut_off.unwrap_or(0),
    }
}

/// Returns a row with its counts, and without what is special to its list.
fn shown<P>(Row { key, count, error, .. }: &Row<P>, redaction: &Redaction) -> TopRow {
    let (domain, entries) = key.texts();
    let entry = |entry: &Entry<'_>| OwnedEntry {
        key: entry.0.to_owned(),
        value: redaction.value(*entry, key.cut_tag),
    };
    let rule = Some(redaction.path(key.rule(), &entries)).filter(|rule| !rule.is_empty());
    TopRow {
        domain: domain.to_owned(),
        entries: entries.iter().map(entry).collect(),
        rule,
        cut: key.is_cut(),
        count: *count,
        error: *error,
        banned_ms: None,
        near: None,
        tag: redaction.tag(key.cut_tag),
    }
}

//! The report of `weir replay`: what the rules would have denied. It is printed as text, JSON or HTML.

use indicatif::HumanCount;
use jiff::Timestamp;
use serde::Serialize;

use super::distinct::{NearlyDistinct, SAMPLE};
use weir_common::escape::escape;

/// The report. With `--output json`, its fields are the members of the JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) traffic: Traffic,
    pub(crate) rules: SideReport,
    /// The rules of `--compare`, and what they change.
    pub(crate) comparison: Option<Comparison>,
    pub(crate) series: RequestSeries,
}

#[derive(Debug, Serialize)]
pub(super) struct RequestSeries {
    /// When the first bucket (a step of time in plots) starts.
    pub start: Timestamp,
    pub bucket_seconds: u64,
    pub requests: Vec<u64>,
}

impl Report {
    /// Returns why the report says nothing about the rules; none if it does.
    pub fn problem(&self) -> Option<String> {
        let traffic = &self.traffic;
        let name = escape(&traffic.name);
        match traffic {
            Traffic { lines: 0, .. } => Some(format!("{name} is empty")),
            Traffic { requests: 0, without_descriptors: 0, .. } => {
                Some(format!("no line of {name} could be read: check --format and --time"))
            }
            Traffic { requests: 0, .. } => Some(format!(
                "no line of {name} has the fields of a descriptor: check --descriptor"
            )),
            // The report is about little else.
            Traffic { late, requests, .. } if *late > requests / 2 => {
                Some(format!("most lines of {name} are too far out of order"))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Traffic {
    /// `access.log`, or `<stdin>`.
    pub name: String,
    pub domain: String,
    pub descriptors: Vec<DescriptorReport>,
    pub lines: u64,
    /// Requests that were decided.
    pub requests: u64,
    /// Lines without a field of any descriptor: Envoy would not ask.
    pub without_descriptors: u64,
    pub invalid: u64,
    /// Examples of invalid lines, the earliest ones.
    pub invalid_lines: Vec<InvalidLine>,
    /// Lines earlier than `--reorder` allows. They were decided at the earliest allowed time.
    pub late: u64,
    /// The line that the first late line was too far behind.
    pub late_after: Option<LateAfter>,
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// Times the memory for keys was full, so that a key in use was forgotten.
    pub evicted_counters: u64,
    /// Rules with a concurrency limit: a log does not say when their requests end.
    pub concurrency_rules: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LateAfter {
    pub line: u64,
    pub time: Timestamp,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct DescriptorReport {
    pub descriptor: String,
    /// Lines without one of its fields: their requests do not have it.
    pub lines_without_it: u64,
    /// The field that the first line without one of its fields lacks.
    pub first_missing_field: Option<String>,
    pub nearly_distinct: Option<NearlyDistinct>,
}

impl DescriptorReport {
    pub fn warning(&self) -> Option<String> {
        let NearlyDistinct { requests, keys } = self.nearly_distinct?;
        let first = if requests >= SAMPLE { "the first " } else { "" };
        let (lines, keys) = (counted(requests, "line"), counted(keys, "key"));
        Some(format!(
            "{first}{lines}, {keys}: nearly every request has a counter of its own, so little is denied; has it a \
             port? `|host`"
        ))
    }
}

#[derive(Debug, Serialize)]
pub(super) struct InvalidLine {
    /// The number of the line, counted from 1.
    pub line: u64,
    pub error: String,
}

#[derive(Debug, Serialize)]
pub(super) struct SideReport {
    /// The files, as they were written.
    pub files: String,
    pub denied: Count,
    /// Rules that requests matched, most denied first; those that only report come last.
    pub rules: Vec<RuleReport>,
    pub unused_rules: usize,
    pub unmatched_descriptors: u64,
    pub unmatched_example: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleReport {
    /// The name with the domain, as in metrics.
    pub name: String,
    pub origin: String,
    /// The limits of the rule, as `weir check` shows them.
    pub limits: String,
    /// Whether the rule is a shadow: it only reports what it would deny.
    #[serde(rename = "shadow")]
    pub is_shadow: bool,
    /// Descriptors that matched the rule.
    pub requests: u64,
    /// Requests over the limit; for a shadow rule, those that would have been.
    pub denied: Count,
    /// The bans that began; none if the rule has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bans: Option<u64>,
    pub series: Vec<u64>,
}

/// Denied requests: how many, when, and whose.
#[derive(Debug, Default, Serialize)]
pub(super) struct Count {
    pub requests: u64,
    /// The share of the requests that were decided, from 0 to 1.
    pub share: f64,
    pub worst_minute: Option<WorstMinute>,
    /// The keys with the most denied requests, most first; empty where keys are not distinguished.
    pub worst_keys: Vec<KeyCount>,
    pub keys: u64,
    /// Whether no keys are missing because there were more than are counted separately.
    pub keys_are_complete: bool,
    /// The denied requests in each bucket. Shorter than the series of requests where the last buckets are 0.
    pub series: Vec<u64>,
}

/// The minute with the most denied requests.
#[derive(Debug, Serialize)]
pub(super) struct WorstMinute {
    pub start: Timestamp,
    pub requests: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct KeyCount {
    pub key: String,
    pub requests: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    #[serde(rename = "rules")]
    pub other: SideReport,
    /// Requests that pass now, and that the other rules deny: by the other rules' names.
    pub newly_denied: Difference,
    /// Requests that are denied now, and that the other rules let pass: by the names of today's rules.
    pub no_longer_denied: Difference,
}

/// Requests that two sets of rules decide differently.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    pub total: Count,
    /// By the rule that denies, most first.
    pub rules: Vec<RuleCount>,
}

#[derive(Debug, Serialize)]
pub(super) struct RuleCount {
    pub name: String,
    pub requests: u64,
}

pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(count), if count == 1 { "" } else { "s" })
}

/// Writes a number with commas between thousands.
pub(super) fn number(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Writes a share from 0 to 1 in percent. Neither a few nor all but a few are rounded to none or all.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p.is_nan() || p <= 0.0 => "0.00 %".to_owned(),
        p if p < 0.01 => "under 0.01 %".to_owned(),
        p if p > 99.99 && p < 100.0 => "over 99.99 %".to_owned(),
        p => format!("{:.2} %", p.min(100.0)),
    }
}

/// Returns the share that requests are of all, from 0 to 1.
pub(super) fn share(requests: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { requests as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_none_or_all() {
        let shares = [0.0, 1e-9, 0.001_23, 0.123_4, 0.996_66, 1.0 - 1e-9, 1.0, f64::NAN];
        let expected = [
            "0.00 %",
            "under 0.01 %",
            "0.12 %",
            "12.34 %",
            "99.67 %",
            "over 99.99 %",
            "100.00 %",
            "0.00 %",
        ];
        assert_eq!(shares.map(percent), expected);
    }
}

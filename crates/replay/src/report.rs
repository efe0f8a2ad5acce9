//! What a replay found, for all outputs.

use indicatif::HumanCount;

use super::distinct::SAMPLE;
use weir_common::escape::escape;
use weir_limit::Micros;
use weir_rules::Origin;

#[derive(Debug)]
pub struct Report {
    pub(crate) traffic: Traffic,
    pub(crate) rules: SideReport,
    /// The rules of `--compare`, and what they change.
    pub(crate) comparison: Option<Comparison>,
    /// When the plots start, in microseconds since the Unix epoch.
    pub(crate) plot_start: Micros,
    pub(crate) bucket: Micros,
    /// Requests in each bucket.
    pub(crate) series: Vec<u64>,
}

impl Report {
    /// Returns why the report says nothing about the rules, if so.
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

#[derive(Debug, Default)]
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
    pub examples: Vec<InvalidLine>,
    /// Lines earlier than `--reorder` allows. They were decided at the earliest allowed time.
    pub late: u64,
    /// The line, and its time, that the first late line was too far behind.
    pub late_after: Option<(u64, Micros)>,
    /// The times of the first and the last request.
    pub span: Option<(Micros, Micros)>,
    /// Times the memory for keys was full, so that a key in use was forgotten.
    pub evicted: u64,
    /// Rules with a concurrency limit: a log does not say when their requests end.
    pub concurrency_rules: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct DescriptorReport {
    pub text: String,
    /// Lines without one of its fields: their requests do not have it.
    pub missing: u64,
    /// The field that the first line without one of its fields lacks.
    pub missing_field: Option<String>,
    /// Requests at the start of the log, and their different values, if nearly all of these differ.
    pub nearly_distinct: Option<(u64, u64)>,
}

impl DescriptorReport {
    pub fn warning(&self) -> Option<String> {
        let (requests, keys) = self.nearly_distinct?;
        let first = if requests >= SAMPLE { "the first " } else { "" };
        let (lines, keys) = (counted(requests, "line"), counted(keys, "key"));
        Some(format!(
            "{first}{lines}, {keys}: nearly every request has a counter of its own, so little is denied; has it a \
             port? `|host`"
        ))
    }
}

#[derive(Debug)]
pub(super) struct InvalidLine {
    /// The number of the line, counted from 1.
    pub line: u64,
    pub error: String,
}

#[derive(Debug)]
pub(super) struct SideReport {
    /// The files, as they were written.
    pub name: String,
    pub denied: Count,
    /// Rules that requests matched, most denied first; those that only report come last.
    pub rules: Vec<RuleReport>,
    /// The number of rules that no request matched.
    pub unused: usize,
    pub unmatched: u64,
    pub unmatched_example: Option<String>,
}

#[derive(Debug)]
pub(super) struct RuleReport {
    /// The name with the domain, as in metrics.
    pub name: String,
    pub origin: Origin,
    /// The limits of the rule, as `weir check` shows them.
    pub limits: String,
    /// Whether the rule is a shadow: it only reports what it would deny.
    pub is_shadow: bool,
    /// Descriptors that matched the rule.
    pub requests: u64,
    /// Requests over the limit; for a shadow rule, those that would have been.
    pub denied: Count,
    pub series: Vec<u64>,
}

/// Denied requests: how many, when, and whose.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub requests: u64,
    /// The start of the minute with the most denied requests, and how many it had.
    pub worst_minute: Option<(Micros, u64)>,
    /// The keys with the most denied requests, most first; empty where keys are not distinguished.
    pub worst_keys: Vec<(String, u64)>,
    pub keys: u64,
    /// Whether there were more keys than are counted separately, so that some are missing.
    pub is_cut: bool,
    /// The denied requests in each bucket. Shorter than the series of requests where the last buckets are 0.
    pub series: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Comparison {
    pub other: SideReport,
    /// Requests that pass now, and that the other rules deny: by the other rules' names.
    pub newly_denied: Difference,
    /// Requests that are denied now, and that the other rules let pass: by the names of today's rules.
    pub no_longer_denied: Difference,
}

/// Requests that two sets of rules decide differently.
#[derive(Debug)]
pub(super) struct Difference {
    pub total: Count,
    /// By the rule that denies, most first.
    pub rules: Vec<(String, u64)>,
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

impl Count {
    /// The share of some requests, from 0 to 1.
    pub fn share_of(&self, requests: u64) -> f64 {
        if requests == 0 { 0.0 } else { self.requests as f64 / requests as f64 }
    }
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

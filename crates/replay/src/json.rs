//! `weir replay --output json`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::report::{
    Comparison, Count, DescriptorReport, Difference, InvalidLine, Report, RuleReport, SideReport,
    Traffic,
};
use super::text::stamp;
use weir_common::escape::escape;
use weir_limit::SECOND;

/// Prints the report as JSON, without any control character.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    format!("{:#}", report_json(report))
        .lines()
        .try_for_each(|line| writeln!(out, "{}", escape(line)))
}

pub(super) fn report_json(report: &Report) -> Value {
    let requests = report.traffic.requests;
    json!({
        "traffic": traffic_json(&report.traffic),
        "rules": side_json(&report.rules, requests),
        "comparison": report.comparison.as_ref().map(|comparison| comparison_json(comparison, requests)),
        "series": {
            "start": stamp(report.plot_start).to_string(),
            "bucket_seconds": report.bucket / SECOND,
            "requests": report.series,
        },
    })
}

fn traffic_json(traffic: &Traffic) -> Value {
    let invalid = |line: &InvalidLine| json!({ "line": line.line, "error": line.error });
    json!({
        "name": traffic.name,
        "domain": traffic.domain,
        "descriptors": traffic.descriptors.iter().map(descriptor_json).collect::<Vec<_>>(),
        "lines": traffic.lines,
        "requests": traffic.requests,
        "without_descriptors": traffic.without_descriptors,
        "invalid": traffic.invalid,
        "invalid_lines": traffic.examples.iter().map(invalid).collect::<Vec<_>>(),
        "late": traffic.late,
        "late_after": traffic.late_after.map(|(line, time)| {
            json!({ "line": line, "time": stamp(time).to_string() })
        }),
        "first": traffic.span.map(|(first, _)| stamp(first).to_string()),
        "last": traffic.span.map(|(_, last)| stamp(last).to_string()),
        "evicted_counters": traffic.evicted,
        "concurrency_rules": traffic.concurrency_rules,
    })
}

fn descriptor_json(descriptor: &DescriptorReport) -> Value {
    json!({
        "descriptor": descriptor.text,
        "lines_without_it": descriptor.missing,
        "first_missing_field": descriptor.missing_field,
        "nearly_distinct": descriptor.nearly_distinct.map(|(requests, keys)| {
            json!({ "requests": requests, "keys": keys })
        }),
    })
}

fn side_json(side: &SideReport, requests: u64) -> Value {
    json!({
        "files": side.name,
        "denied": count_json(&side.denied, requests),
        "rules": side.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "unused_rules": side.unused,
        "unmatched_descriptors": side.unmatched,
        "unmatched_example": side.unmatched_example,
    })
}

fn rule_json(rule: &RuleReport) -> Value {
    json!({
        "name": rule.name,
        "origin": rule.origin.to_string(),
        "limits": rule.limits,
        "shadow": rule.is_shadow,
        "requests": rule.requests,
        "denied": count_json(&rule.denied, rule.requests),
        "series": rule.series,
    })
}

fn count_json(count: &Count, requests: u64) -> Value {
    let key = |(key, requests): &(String, u64)| json!({ "key": key, "requests": requests });
    json!({
        "requests": count.requests,
        "share": count.share_of(requests),
        "worst_minute": count.worst_minute.map(|(start, requests)| {
            json!({ "start": stamp(start).to_string(), "requests": requests })
        }),
        "keys": count.keys,
        "keys_are_complete": !count.is_cut,
        "worst_keys": count.worst_keys.iter().map(key).collect::<Vec<_>>(),
        "series": count.series,
    })
}

fn comparison_json(comparison: &Comparison, requests: u64) -> Value {
    json!({
        "rules": side_json(&comparison.other, requests),
        "newly_denied": difference_json(&comparison.newly_denied, requests),
        "no_longer_denied": difference_json(&comparison.no_longer_denied, requests),
    })
}

fn difference_json(difference: &Difference, requests: u64) -> Value {
    let rule = |(name, requests): &(String, u64)| json!({ "name": name, "requests": requests });
    json!({
        "total": count_json(&difference.total, requests),
        "rules": difference.rules.iter().map(rule).collect::<Vec<_>>(),
    })
}

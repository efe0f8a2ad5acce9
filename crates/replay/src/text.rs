//! `weir replay --output text`.

use std::io::{self, Write};

use jiff::Timestamp;

use super::report::{
    Comparison, Count, Difference, Report, RuleReport, SideReport, Traffic, counted, number,
    percent,
};
use weir_common::escape::escape;
use weir_limit::Micros;

const MAX_RULES: usize = 100;
const MAX_KEYS: usize = 5;

/// Characters of the widest column that is padded.
const MAX_COLUMN_WIDTH: usize = 60;

pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let requests = report.traffic.requests;
    print_traffic(&report.traffic, out)?;
    if requests == 0 {
        return Ok(());
    }
    print_side(&report.rules, requests, out)?;
    if let Some(comparison) = &report.comparison {
        print_side(&comparison.other, requests, out)?;
        print_comparison(comparison, requests, out)?;
    }
    Ok(())
}

fn print_traffic(traffic: &Traffic, out: &mut impl Write) -> io::Result<()> {
    let (name, domain) = (escape(&traffic.name), escape(&traffic.domain));
    write!(out, "{name}: {} for domain {domain}", counted(traffic.requests, "request"))?;
    match traffic.span {
        Some((first, last)) => writeln!(out, ", {} to {}", time_text(first), time_text(last))?,
        None => writeln!(out)?,
    }
    if traffic.invalid > 0 {
        writeln!(out, "  {} skipped as invalid:", counted(traffic.invalid, "line"))?;
    }
    for invalid in &traffic.examples {
        writeln!(out, "    line {}: {}", invalid.line, escape(&invalid.error))?;
    }
    for descriptor in &traffic.descriptors {
        if let Some(field) = &descriptor.missing_field {
            let (lines, text) = (counted(descriptor.missing, "line"), escape(&descriptor.text));
            writeln!(out, "  {lines} without {text}: no field `{}`", escape(field))?;
        }
    }
    for descriptor in &traffic.descriptors {
        if let Some(warning) = descriptor.warning() {
            writeln!(out, "  {}: {warning}", escape(&descriptor.text))?;
        }
    }
    if traffic.without_descriptors > 0 {
        let lines = counted(traffic.without_descriptors, "line");
        writeln!(out, "  {lines} without any descriptor: Envoy would send no request")?;
    }
    if let Some((line, time)) = traffic.late_after {
        let (lines, time) = (counted(traffic.late, "line"), time_text(time));
        writeln!(
            out,
            "  {lines} too far out of order, the first of them behind line {line} ({time}): decided too late; \
             raise --reorder, or sort the log by time"
        )?;
    }
    if traffic.evicted > 0 {
        let counters = counted(traffic.evicted, "counter");
        writeln!(
            out,
            "  {counters} dropped while in use, so too little was denied: raise --max-keys"
        )?;
    }
    for rule in &traffic.concurrency_rules {
        let rule = escape(rule);
        writeln!(
            out,
            "  {rule} limits concurrency and denies too much: a log does not say when requests end"
        )?;
    }
    Ok(())
}

fn print_side(side: &SideReport, requests: u64, out: &mut impl Write) -> io::Result<()> {
    let SideReport { name, denied, rules, unused, unmatched, unmatched_example } = side;
    writeln!(out, "\n{name}: {} denied, {}", number(denied.requests), shares(denied, requests))?;
    if !rules.is_empty() {
        print_rules(rules, out)?;
    }
    if *unused > 0 {
        writeln!(out, "  {} without requests", counted(*unused as u64, "rule"))?;
    }
    if let Some(example) = unmatched_example {
        let (descriptors, example) = (counted(*unmatched, "descriptor"), escape(example));
        writeln!(out, "  {descriptors} without a rule, first {example}: `weir explain` shows why")?;
    }
    Ok(())
}

fn print_rules(rules: &[RuleReport], out: &mut impl Write) -> io::Result<()> {
    let row = |rule: &RuleReport| {
        [
            escape(&rule.name).into_owned(),
            number(rule.requests),
            number(rule.denied.requests),
            share(&rule.denied, rule.requests),
            worst_minute(&rule.denied).unwrap_or_default(),
        ]
    };
    let listed = &rules[..rules.len().min(MAX_RULES)];
    let head = ["RULE", "REQUESTS", "DENIED", "SHARE", "WORST MINUTE"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(listed.iter().map(row)).collect();
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max();
        widest.unwrap_or(0).min(MAX_COLUMN_WIDTH)
    };
    let [a, b, c, d] = [0, 1, 2, 3].map(width);
    for (i, [name, requests, denied, share, worst]) in rows.iter().enumerate() {
        let mut name = name.as_str();
        if name.chars().count() > a {
            // The columns stay aligned under a long name.
            writeln!(out, "  {name}")?;
            name = "";
        }
        let line = format!("  {name:a$}  {requests:>b$}  {denied:>c$}  {share:>d$}  {worst}");
        writeln!(out, "{}", line.trim_end())?;
        let Some(rule) = i.checked_sub(1).and_then(|i| listed.get(i)) else { continue };
        if rule.is_shadow && rule.denied.requests > 0 {
            writeln!(out, "    in shadow mode: these requests pass")?;
        }
        print_keys(&rule.denied, out)?;
    }
    if rules.len() > listed.len() {
        writeln!(out, "  and {} more rules: see --output json", rules.len() - listed.len())?;
    }
    Ok(())
}

fn print_keys(count: &Count, out: &mut impl Write) -> io::Result<()> {
    for (key, denied) in count.worst_keys.iter().take(MAX_KEYS) {
        writeln!(out, "    {:>10}  {}", number(*denied), escape(key))?;
    }
    let more = count.keys.saturating_sub(MAX_KEYS as u64);
    if count.is_cut {
        writeln!(out, "    and more keys than there is memory for: these may not be the worst")?;
    } else if more > 0 {
        let keys = if more == 1 { "key" } else { "keys" };
        writeln!(out, "    and {} more {keys}", number(more))?;
    }
    Ok(())
}

fn print_comparison(
    comparison: &Comparison,
    requests: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    for (title, Difference { total, rules }) in [
        ("newly denied", &comparison.newly_denied),
        ("no longer denied", &comparison.no_longer_denied),
    ] {
        writeln!(out, "\n{title}: {}, {}", number(total.requests), shares(total, requests))?;
        for (rule, count) in rules.iter().take(MAX_RULES) {
            writeln!(out, "  {:>10}  by {}", number(*count), escape(rule))?;
        }
        print_keys(total, out)?;
    }
    Ok(())
}

fn shares(count: &Count, requests: u64) -> String {
    let worst = worst_minute(count).map(|worst| format!(", worst minute {worst}"));
    share(count, requests) + &worst.unwrap_or_default()
}

fn worst_minute(count: &Count) -> Option<String> {
    let (minute, most) = count.worst_minute?;
    Some(format!("{} with {}", stamp(minute).strftime("%Y-%m-%d %H:%M"), number(most)))
}

fn share(count: &Count, requests: u64) -> String {
    percent(count.share_of(requests))
}

fn time_text(time: Micros) -> String {
    stamp(time).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// The timestamp of a time of a log, which is before 2100.
pub(super) fn stamp(time: Micros) -> Timestamp {
    Timestamp::from_microsecond(time as i64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(value), text);
        }
    }
}

//! `weir replay --output text`: prints the report for people.

use std::io::{self, Write};

use jiff::Timestamp;

use super::report::{
    Comparison, Count, Difference, KeyCount, LateAfter, Report, RuleCount, RuleReport, SideReport,
    Traffic, WorstMinute, counted, number, percent,
};
use weir_common::escape::escape;

const MAX_RULES: usize = 100;
const MAX_KEYS: usize = 5;

/// Characters of the widest column that is padded.
const MAX_COLUMN_WIDTH: usize = 60;

pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    print_traffic(&report.traffic, out)?;
    if report.traffic.requests == 0 {
        return Ok(());
    }
    print_side(&report.rules, out)?;
    if let Some(comparison) = &report.comparison {
        print_side(&comparison.other, out)?;
        print_comparison(comparison, out)?;
    }
    Ok(())
}

fn print_traffic(traffic: &Traffic, out: &mut impl Write) -> io::Result<()> {
    let (name, domain) = (escape(&traffic.name), escape(&traffic.domain));
    write!(out, "{name}: {} for domain {domain}", counted(traffic.requests, "request"))?;
    match traffic.first.zip(traffic.last) {
        Some((first, last)) => writeln!(out, ", {} to {}", time_text(first), time_text(last))?,
        None => writeln!(out)?,
    }
    if traffic.invalid > 0 {
        writeln!(out, "  {} skipped as invalid:", counted(traffic.invalid, "line"))?;
    }
    for invalid in &traffic.invalid_lines {
        writeln!(out, "    line {}: {}", invalid.line, escape(&invalid.error))?;
    }
    for descriptor in &traffic.descriptors {
        if let Some(field) = &descriptor.first_missing_field {
            let lines = counted(descriptor.lines_without_it, "line");
            let text = escape(&descriptor.descriptor);
            writeln!(out, "  {lines} without {text}: no field `{}`", escape(field))?;
        }
    }
    for descriptor in &traffic.descriptors {
        if let Some(warning) = descriptor.warning() {
            writeln!(out, "  {}: {warning}", escape(&descriptor.descriptor))?;
        }
    }
    if traffic.without_descriptors > 0 {
        let lines = counted(traffic.without_descriptors, "line");
        writeln!(out, "  {lines} without any descriptor: Envoy would send no request")?;
    }
    if let Some(LateAfter { line, time }) = &traffic.late_after {
        let (lines, time) = (counted(traffic.late, "line"), time_text(*time));
        writeln!(
            out,
            "  {lines} too far out of order, the first of them behind line {line} ({time}): decided too late; \
             raise --reorder, or sort the log by time"
        )?;
    }
    if traffic.evicted_counters > 0 {
        let counters = counted(traffic.evicted_counters, "counter");
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

fn print_side(side: &SideReport, out: &mut impl Write) -> io::Result<()> {
    let SideReport { files, denied, rules, .. } = side;
    writeln!(out, "\n{files}: {} denied, {}", number(denied.requests), shares(denied))?;
    if !rules.is_empty() {
        print_rules(rules, out)?;
    }
    if side.unused_rules > 0 {
        writeln!(out, "  {} without requests", counted(side.unused_rules as u64, "rule"))?;
    }
    if let Some(example) = &side.unmatched_example {
        let descriptors = counted(side.unmatched_descriptors, "descriptor");
        let example = escape(example);
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
            percent(rule.denied.share),
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
        if let Some(bans) = rule.bans {
            writeln!(out, "    {}", counted(bans, "ban"))?;
        }
        print_keys(&rule.denied, out)?;
    }
    if rules.len() > listed.len() {
        writeln!(out, "  and {} more rules: see --output json", rules.len() - listed.len())?;
    }
    Ok(())
}

fn print_keys(count: &Count, out: &mut impl Write) -> io::Result<()> {
    for KeyCount { key, requests } in count.worst_keys.iter().take(MAX_KEYS) {
        writeln!(out, "    {:>10}  {}", number(*requests), escape(key))?;
    }
    let more = count.keys.saturating_sub(MAX_KEYS as u64);
    if !count.keys_are_complete {
        writeln!(out, "    and more keys than there is memory for: these may not be the worst")?;
    } else if more > 0 {
        writeln!(out, "    and {}", counted(more, "more key"))?;
    }
    Ok(())
}

fn print_comparison(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    for (title, Difference { total, rules }) in [
        ("newly denied", &comparison.newly_denied),
        ("no longer denied", &comparison.no_longer_denied),
    ] {
        writeln!(out, "\n{title}: {}, {}", number(total.requests), shares(total))?;
        for RuleCount { name, requests } in rules.iter().take(MAX_RULES) {
            writeln!(out, "  {:>10}  by {}", number(*requests), escape(name))?;
        }
        print_keys(total, out)?;
    }
    Ok(())
}

fn shares(count: &Count) -> String {
    let worst = worst_minute(count).map(|worst| format!(", worst minute {worst}"));
    percent(count.share) + &worst.unwrap_or_default()
}

fn worst_minute(count: &Count) -> Option<String> {
    let WorstMinute { start, requests } = count.worst_minute.as_ref()?;
    Some(format!("{} with {}", start.strftime("%Y-%m-%d %H:%M"), number(*requests)))
}

fn time_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
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

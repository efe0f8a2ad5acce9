//! What was read, and why it matters where something was not counted as it is.

use std::io::{self, Write};

use super::super::report::{DescriptorReport, InvalidLine, Report, SideReport, Traffic};
use super::text::{code, counted, cut, number, prose};
use super::time::{length, range};

const MAX_EXAMPLES: usize = 10;
const MAX_DESCRIPTORS: usize = 20;
const MAX_CONCURRENCY_RULES: usize = 20;
const MAX_ERROR_CHARS: usize = 300;

/// Prints what was read.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let traffic = &report.traffic;
    writeln!(
        out,
        r#"<section id="traffic" aria-labelledby="traffic-h"><h2 id="traffic-h">What was read</h2>"#
    )?;
    writeln!(out, r#"<dl class="facts"><dt>Traffic</dt><dd>{}</dd>"#, code(&traffic.name))?;
    if let Some((from, to)) = traffic.span {
        let lasted = length(to.saturating_sub(from));
        writeln!(out, "<dt>Time</dt><dd>{} ({lasted})</dd>", range(from, to))?;
    }
    writeln!(out, "<dt>Domain</dt><dd>{}</dd>", code(&traffic.domain))?;
    writeln!(out, "<dt>Descriptors of each request</dt>")?;
    for descriptor in traffic.descriptors.iter().take(MAX_DESCRIPTORS) {
        writeln!(
            out,
            "<dd>{}{}{}</dd>",
            code(&descriptor.text),
            missing(descriptor, read_lines(traffic)),
            descriptor.warning().map_or_else(String::new, |warning| {
                format!(r#" <span class="note place">{}</span>"#, prose(&warning))
            })
        )?;
    }
    match traffic.descriptors.len() {
        0 => writeln!(out, "<dd>none</dd>")?,
        count if count > MAX_DESCRIPTORS => {
            writeln!(out, "<dd>and {} more</dd>", number((count - MAX_DESCRIPTORS) as u64))?;
        }
        _ => {}
    }
    writeln!(out, "</dl>")?;
    print_lines(report, out)?;
    writeln!(out, "</section>")
}

/// Returns the lines that could be read.
fn read_lines(traffic: &Traffic) -> u64 {
    traffic.requests.saturating_add(traffic.without_descriptors)
}

/// Returns how many of some lines lack a field of a descriptor, and which, as HTML.
fn missing(descriptor: &DescriptorReport, lines: u64) -> String {
    let DescriptorReport { missing, missing_field, .. } = descriptor;
    if *missing == 0 {
        return String::new();
    }
    let of = match *missing >= lines {
        true => r#"<b class="denied-text">no line has its fields</b>"#.to_owned(),
        false => {
            let verb = if *missing == 1 { "lacks" } else { "lack" };
            format!("{} of {} {verb} a field", number(*missing), counted(lines, "line"))
        }
    };
    let first = missing_field.as_deref().map(|field| format!(", first missing: {}", code(field)));
    format!(r#" <span class="note place">{of}{}</span>"#, first.unwrap_or_default())
}

/// Prints how many lines were read, and what was not counted as it is.
fn print_lines(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let traffic = &report.traffic;
    writeln!(
        out,
        r#"<table class="read"><caption>Lines of the log</caption><thead><tr><th scope="col">What</th><th scope="col" class="n">Number</th></tr></thead><tbody>"#
    )?;
    row("Lines", traffic.lines, "", out)?;
    row("Requests that were decided", traffic.requests, "", out)?;
    print_skipped(traffic, out)?;
    print_unmatched(report, out)?;
    note(
        "Counters dropped",
        traffic.evicted,
        "More counters were in use than <code class=\"word\">--max-keys</code> allows, so too few \
         requests were denied. Raise <code class=\"word\">--max-keys</code>.",
        out,
    )?;
    let rules = traffic.concurrency_rules.iter().take(MAX_CONCURRENCY_RULES);
    let why = format!(
        "A log does not say when requests end, so these deny too much: {}",
        rules.map(|rule| code(rule)).collect::<Vec<_>>().join(", ")
    );
    note("Rules that limit concurrency", traffic.concurrency_rules.len() as u64, &why, out)?;
    writeln!(out, "</tbody></table>")?;
    match (traffic.invalid, traffic.without_descriptors, traffic.late) {
        (0, 0, 0) => writeln!(out, r#"<p class="hint">No line was skipped or late.</p>"#),
        _ => Ok(()),
    }
}

fn print_skipped(traffic: &Traffic, out: &mut impl Write) -> io::Result<()> {
    let mut why = "They cannot be read, and are missing from all numbers.".to_owned();
    let examples = by_error(&traffic.examples);
    if !examples.is_empty() {
        why += " The first:<ul>";
        for (lines, error) in examples {
            why += &format!("<li>{lines}: {}</li>", prose(&cut(error, MAX_ERROR_CHARS)));
        }
        why += "</ul>";
    }
    note("Invalid lines", traffic.invalid, &why, out)?;
    note(
        "Lines without a descriptor",
        traffic.without_descriptors,
        "No descriptor has all its fields in these lines. Envoy sends no rate-limit request then, so \
         they pass. If there are many, compare the names of the fields with the log.",
        out,
    )?;
    note(
        "Late lines",
        traffic.late,
        "They are further out of order than <code class=\"word\">--reorder</code> allows, and were \
         decided at the earliest time still allowed, so their decisions may differ from real ones. \
         Raise <code class=\"word\">--reorder</code>, or sort the log by time.",
        out,
    )
}

/// Returns each error once, with the lines that have it: `lines 17, 20`. These have no commas, so that
/// they can be searched for.
fn by_error(examples: &[InvalidLine]) -> Vec<(String, &str)> {
    let mut errors: Vec<(String, &str)> = Vec::new();
    for InvalidLine { line, error } in examples.iter().take(MAX_EXAMPLES) {
        match errors.iter_mut().find(|(_, other)| other == error) {
            Some((lines, _)) => {
                if let Some(first) = lines.strip_prefix("line ") {
                    *lines = format!("lines {first}");
                }
                *lines += &format!(", {line}");
            }
            None => errors.push((format!("line {line}"), error)),
        }
    }
    errors
}

fn print_unmatched(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut print = |title: &str, side: &SideReport| {
        let mut why = "Nothing limits these, so they pass.".to_owned();
        if let Some(example) = &side.unmatched_example {
            why += &format!(
                " The first is {}. <code>weir explain</code> shows the closest rule.",
                code(example)
            );
        }
        note(title, side.unmatched, &why, out)
    };
    match &report.comparison {
        None => print("Descriptors without a rule", &report.rules),
        Some(comparison) => {
            for side in [&report.rules, &comparison.other] {
                print(&format!("Descriptors without a rule in {}", code(&side.name)), side)?;
            }
            Ok(())
        }
    }
}

/// Prints a number and why it matters, unless it is 0.
fn note(title: &str, count: u64, why: &str, out: &mut impl Write) -> io::Result<()> {
    if count == 0 { Ok(()) } else { row(title, count, why, out) }
}

fn row(title: &str, count: u64, why: &str, out: &mut impl Write) -> io::Result<()> {
    write!(out, r#"<tr><th scope="row">{title}"#)?;
    if !why.is_empty() {
        write!(out, r#"<div class="why">{why}</div>"#)?;
    }
    writeln!(out, r#"</th><td class="n">{}</td></tr>"#, number(count))
}

/// Returns why there are no requests, in a sentence.
pub(super) fn why_empty(traffic: &Traffic) -> String {
    if traffic.lines == 0 {
        return format!("{} has no lines.", code(&traffic.name));
    }
    let mut reasons = Vec::new();
    if traffic.invalid > 0 {
        reasons.push(format!("{} cannot be read", counted(traffic.invalid, "line")));
    }
    if traffic.without_descriptors > 0 {
        let lines = counted(traffic.without_descriptors, "line");
        reasons.push(format!("{lines} lack a field of every descriptor"));
    }
    if reasons.is_empty() {
        reasons.push(format!("{} was read", counted(traffic.lines, "line")));
    }
    format!(r##"{}: see <a href="#traffic">what was read</a>."##, reasons.join(", and "))
}

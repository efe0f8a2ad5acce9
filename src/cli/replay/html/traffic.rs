//! What was read, and why it matters where something was not counted as it is.

use std::io::{self, Write};

use super::super::report::{Report, SideReport, Traffic};
use super::text::{code, counted, cut, html, number};
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
        writeln!(out, "<dd>{}</dd>", code(&descriptor.text))?;
    }
    match traffic.descriptors.len() {
        0 => writeln!(out, "<dd>none</dd>")?,
        count if count > MAX_DESCRIPTORS => {
            writeln!(out, "<dd>and {} more</dd>", number((count - MAX_DESCRIPTORS) as u64))?;
        }
        _ => {}
    }
    writeln!(out, "</dl>")?;
    writeln!(
        out,
        r#"<table class="read"><caption>Lines and what became of them</caption><thead><tr><th scope="col">What</th><th scope="col" class="n">Number</th></tr></thead><tbody>"#
    )?;
    row("Lines", traffic.lines, "", out)?;
    row("Requests that were decided", traffic.requests, "", out)?;
    print_skipped(traffic, out)?;
    print_unmatched(report, out)?;
    row(
        "Keys forgotten",
        traffic.evicted,
        "The memory for keys was full, and keys in use were forgotten. They started again without \
         any requests, so that fewer requests were refused than really would be.",
        out,
    )?;
    let rules = traffic.concurrency_rules.iter().take(MAX_CONCURRENCY_RULES);
    let why = format!(
        "A log does not say when requests end, so these refuse too much: {}",
        rules.map(|rule| code(rule)).collect::<Vec<_>>().join(", ")
    );
    row("Rules that limit concurrency", traffic.concurrency_rules.len() as u64, &why, out)?;
    writeln!(out, "</tbody></table></section>")
}

fn print_skipped(traffic: &Traffic, out: &mut impl Write) -> io::Result<()> {
    let mut why = "They cannot be read, and are missing from all numbers. The first:".to_owned();
    if traffic.examples.is_empty() {
        why = "They cannot be read, and are missing from all numbers.".to_owned();
    } else {
        why += r#"<ul>"#;
        for example in traffic.examples.iter().take(MAX_EXAMPLES) {
            let error = html(&cut(&example.error, MAX_ERROR_CHARS));
            why += &format!("<li>line {}: {error}</li>", number(example.line));
        }
        why += "</ul>";
    }
    row("Invalid lines", traffic.invalid, &why, out)?;
    row(
        "Lines without a descriptor",
        traffic.without_descriptors,
        "They lack the fields that the descriptors are made of. Envoy would not ask for such a \
         request, so it passes. If there are many, compare the names of the fields with the log.",
        out,
    )?;
    row(
        "Late lines",
        traffic.late,
        "They are further out of order than <code class=\"word\">--reorder</code> allows, and were decided at the \
         earliest time still allowed. Their limits may have been fuller or emptier than they really were.",
        out,
    )
}

fn print_unmatched(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut print = |title: &str, side: &SideReport| {
        let mut why = "Nothing limits these, so they pass.".to_owned();
        if let Some(example) = &side.unmatched_example {
            why += &format!(
                " The first is {}. <code>weir explain</code> shows which rule comes near.",
                code(example)
            );
        }
        row(title, side.unmatched, &why, out)
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

/// Prints a number, and unless it is 0 why it matters.
fn row(title: &str, count: u64, why: &str, out: &mut impl Write) -> io::Result<()> {
    write!(out, r#"<tr><th scope="row">{title}"#)?;
    if count > 0 && !why.is_empty() {
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
        reasons.push(format!("{lines} lack the fields of all descriptors"));
    }
    if reasons.is_empty() {
        reasons.push(format!("{} was read", counted(traffic.lines, "line")));
    }
    format!(r##"{}: see <a href="#traffic">what was read</a>."##, reasons.join(", and "))
}

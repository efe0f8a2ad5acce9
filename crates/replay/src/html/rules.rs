//! The rules of one side, and the keys that they deny most.

use std::io::{self, Write};

use super::super::report::{Report, RuleReport, SideReport};
use super::axis::Bins;
use super::bars::{and_keys, print_worst_keys};
use super::plot::{Layer, print_small};
use super::text::{code, counted, cut, html, number, percent};
use super::time::{clock, per};
use weir_limit::Micros;

/// Rules that are listed.
const MAX_RULES: usize = 100;
/// Keys of one rule that are listed.
const MAX_KEYS: usize = 10;
const MAX_PLACE_CHARS: usize = 200;
const MAX_LIMITS_CHARS: usize = 200;
/// Bins of the small plots.
const MAX_SMALL_BINS: usize = 72;

/// Prints a table of the rules, and the worst keys of each, which are shown without a click for the first
/// `max_open`.
pub(super) fn print(
    side: &SideReport,
    id: &str,
    max_open: usize,
    report: &Report,
    out: &mut impl Write,
) -> io::Result<()> {
    let heading = match report.comparison {
        Some(_) => format!("Rules of {}", code(&side.name)),
        None => "Rules".to_owned(),
    };
    writeln!(out, r#"<section id="{id}" aria-labelledby="{id}-h"><h2 id="{id}-h">{heading}</h2>"#)?;
    if side.rules.is_empty() {
        writeln!(out, "<p>No rule has requests.</p>")?;
    } else {
        print_table(side, report, out)?;
    }
    print_notes(side, out)?;
    print_keys(side, max_open, out)?;
    writeln!(out, "</section>")
}

/// Columns: the title, and the class of its cells.
const COLUMNS: [(&str, &str); 6] = [
    ("Rule", ""),
    ("Requests", "n"),
    ("Denied", "n"),
    ("Share", "n"),
    ("Worst minute", ""),
    ("Over time", ""),
];

fn print_table(side: &SideReport, report: &Report, out: &mut impl Write) -> io::Result<()> {
    let bins = Bins::new(report.plot_start, report.bucket, report.series.len(), MAX_SMALL_BINS);
    // The roles stay where a narrow page shows rows as cards, which takes the table's own away.
    writeln!(
        out,
        r#"<table class="rules" role="table"><caption>Rules with requests, most denied first. The small plots show requests per {}, with <span class="denied-text">those denied</span> in front.</caption><thead role="rowgroup"><tr role="row">"#,
        per(bins.width)
    )?;
    for (title, class) in COLUMNS {
        writeln!(out, r#"<th role="columnheader" scope="col" class="{class}">{title}</th>"#)?;
    }
    writeln!(out, r#"</tr></thead><tbody role="rowgroup">"#)?;
    for rule in side.rules.iter().take(MAX_RULES) {
        print_rule(rule, &bins, report.traffic.span, out)?;
    }
    writeln!(out, "</tbody></table>")?;
    match side.rules.len().saturating_sub(MAX_RULES) {
        0 => Ok(()),
        more => {
            let enforced = side.rules.iter().skip(MAX_RULES).filter(|rule| !rule.is_shadow);
            let denied = enforced.map(|rule| rule.denied.requests).fold(0, u64::saturating_add);
            writeln!(
                out,
                r#"<p class="hint">{} with requests denied {}. <code class="word">--output csv</code> lists them all.</p>"#,
                counted(more as u64, "more rule"),
                counted(denied, "request")
            )
        }
    }
}

fn print_rule(
    rule: &RuleReport,
    bins: &Bins,
    span: Option<(Micros, Micros)>,
    out: &mut impl Write,
) -> io::Result<()> {
    let place = match rule.origin.position.line() {
        Some(line) => format!("{}:{line}", rule.origin.file),
        None => rule.origin.file.to_string(),
    };
    let denied = rule.denied.requests;
    let row = if denied == 0 { "none" } else { "" };
    write!(out, r#"<tr role="row" class="{row}"><th role="rowheader" scope="row">"#)?;
    write!(out, "{}", code(&rule.name))?;
    if rule.is_shadow {
        write!(out, r#" <span class="badge">shadow</span>"#)?;
    }
    writeln!(
        out,
        r#"<span class="place">{}</span><span class="note place">{}</span></th>"#,
        html(&cut(&rule.limits, MAX_LIMITS_CHARS)),
        html(&cut(&place, MAX_PLACE_CHARS))
    )?;
    let worst = match rule.denied.worst_minute {
        Some((at, 1)) => clock(at, span),
        Some((at, count)) => {
            format!(r#"{} <span class="note">{} denied</span>"#, clock(at, span), number(count))
        }
        None => "none".to_owned(),
    };
    let cells = [
        number(rule.requests),
        match rule.is_shadow && denied > 0 {
            true => format!(r#"{} <span class="note">would be</span>"#, number(denied)),
            false => number(denied),
        },
        percent(rule.denied.share_of(rule.requests)),
        worst,
    ];
    for ((title, class), text) in COLUMNS.iter().skip(1).zip(cells) {
        writeln!(
            out,
            r#"<td role="cell" class="{class}" data-label="{title}"><span>{text}</span></td>"#
        )?;
    }
    let (requests, over) = (bins.sums(&rule.series), bins.sums(&rule.denied.series));
    let class = if rule.is_shadow { "shadow" } else { "denied" };
    let layers = [
        Layer { class: "passed", name: "requests", values: &requests },
        Layer { class, name: "denied", values: &over },
    ];
    let description = format!(
        "Over time: up to {} and {} denied per {}",
        counted(requests.iter().copied().max().unwrap_or_default(), "request"),
        number(over.iter().copied().max().unwrap_or_default()),
        per(bins.width)
    );
    write!(out, r#"<td role="cell" class="small">"#)?;
    print_small(&layers, bins.count, &description, out)?;
    writeln!(out, "</td></tr>")
}

fn print_notes(side: &SideReport, out: &mut impl Write) -> io::Result<()> {
    if side.rules.iter().any(|rule| rule.is_shadow) {
        writeln!(
            out,
            r#"<p class="hint"><span class="badge">shadow</span> The rule counts and reports, but lets every request pass: its numbers are what it would deny if it were enforced.</p>"#
        )?;
    }
    match side.unused {
        0 => Ok(()),
        unused => {
            let unused = counted(unused as u64, "rule");
            writeln!(out, r#"<p class="hint">{unused} without requests.</p>"#)
        }
    }
}

fn print_keys(side: &SideReport, max_open: usize, out: &mut impl Write) -> io::Result<()> {
    let denying = side.rules.iter().take(MAX_RULES).filter(|rule| rule.denied.requests > 0);
    let with_keys: Vec<_> = denying.filter(|rule| !rule.denied.worst_keys.is_empty()).collect();
    if with_keys.is_empty() {
        return Ok(());
    }
    writeln!(out, "<h3>Worst keys of each rule</h3>")?;
    for (i, rule) in with_keys.into_iter().enumerate() {
        let open = if i < max_open { " open" } else { "" };
        let (class, denied, title) = match rule.is_shadow {
            true => (r#" class="shadow-side""#, "would be denied", "Would be denied"),
            false => ("", "denied", "Denied"),
        };
        writeln!(
            out,
            r#"<details{class}{open}><summary>{} <span class="note">{} {denied}{}</span></summary>"#,
            code(&rule.name),
            number(rule.denied.requests),
            and_keys(", ", &rule.denied)
        )?;
        print_worst_keys(&rule.denied, ("Keys denied most by this rule", title), MAX_KEYS, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

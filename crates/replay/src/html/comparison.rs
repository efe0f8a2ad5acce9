//! What the rules of `--compare` change.

use std::io::{self, Write};

use super::super::report::{Comparison, Difference, Report, SideReport, Traffic};
use super::axis::Bins;
use super::bars::{Bars, and_keys, key_count, print_worst_keys};
use super::plot::{Layer, Plot};
use super::text::{code, counted, number, percent};
use super::time::{clock, per};

/// Rules of a difference that are listed.
const MAX_RULES: usize = 20;
const MAX_KEYS: usize = 15;
const MAX_BINS: usize = 120;

/// Prints both sides' figures and the two differences.
pub(super) fn print(
    comparison: &Comparison,
    report: &Report,
    out: &mut impl Write,
) -> io::Result<()> {
    let (now, other) = (&report.rules, &comparison.other);
    writeln!(
        out,
        r#"<section id="comparison" aria-labelledby="comparison-h"><h2 id="comparison-h">Compared with {}</h2>"#,
        code(&other.name)
    )?;
    print_sides(now, other, &report.traffic, out)?;
    let bins = Bins::new(report.plot_start, report.bucket, report.series.len(), MAX_BINS);
    let series = [&comparison.newly_denied, &comparison.no_longer_denied]
        .map(|difference| bins.sums(&difference.total.series));
    // One scale for both plots.
    let largest = series.iter().flatten().copied().max().unwrap_or_default();
    writeln!(out, r#"<div class="columns">"#)?;
    let kinds = [
        Kind {
            id: "newly",
            title: "Newly denied",
            class: "denied",
            meaning: format!(
                "pass with {} and are denied with {}",
                code(&now.name),
                code(&other.name)
            ),
            difference: &comparison.newly_denied,
        },
        Kind {
            id: "no-longer",
            title: "No longer denied",
            class: "freed",
            meaning: format!(
                "are denied with {} and pass with {}",
                code(&now.name),
                code(&other.name)
            ),
            difference: &comparison.no_longer_denied,
        },
    ];
    for (kind, values) in std::iter::zip(kinds, &series) {
        kind.print(values, largest, &bins, report, out)?;
    }
    writeln!(out, "</div></section>")
}

/// Prints the figures of both sides.
fn print_sides(
    now: &SideReport,
    other: &SideReport,
    traffic: &Traffic,
    out: &mut impl Write,
) -> io::Result<()> {
    let Traffic { requests, span, .. } = *traffic;
    let worst = |side: &SideReport| match side.denied.worst_minute {
        Some((at, 1)) => clock(at, span),
        Some((at, count)) => {
            format!(r#"{} <span class="note">{} denied</span>"#, clock(at, span), number(count))
        }
        None => "none".to_owned(),
    };
    let rows: [(&str, [String; 2]); 7] = [
        ("Denied", [now, other].map(|side| number(side.denied.requests))),
        ("Share", [now, other].map(|side| percent(side.denied.share_of(requests)))),
        ("Worst minute", [now, other].map(worst)),
        ("Keys denied", [now, other].map(|side| key_count(&side.denied))),
        ("Rules with requests", [now, other].map(|side| number(side.rules.len() as u64))),
        ("Rules without requests", [now, other].map(|side| number(side.unused as u64))),
        ("Descriptors without a rule", [now, other].map(|side| number(side.unmatched))),
    ];
    writeln!(
        out,
        r#"<table class="sides"><caption>The same {} with each set of rules</caption><thead><tr><td></td><th scope="col" class="n">{}</th><th scope="col" class="n">{}</th></tr></thead><tbody>"#,
        counted(requests, "request"),
        code(&now.name),
        code(&other.name)
    )?;
    for (title, [now, other]) in rows {
        writeln!(
            out,
            r#"<tr><th scope="row">{title}</th><td class="n">{now}</td><td class="n">{other}</td></tr>"#
        )?;
    }
    writeln!(out, "</tbody></table>")
}

/// A heading, a class and words for requests that only one set of rules denies.
struct Kind<'a> {
    id: &'static str,
    title: &'static str,
    /// The class of the difference in the style sheet.
    class: &'static str,
    /// What these requests do, as HTML.
    meaning: String,
    difference: &'a Difference,
}

impl Kind<'_> {
    fn print(
        &self,
        values: &[u64],
        largest: u64,
        bins: &Bins,
        report: &Report,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Kind { id, title, class, meaning, difference } = self;
        let Difference { total, rules } = difference;
        writeln!(
            out,
            r#"<section class="{class}-side" aria-labelledby="{id}-h"><h3 id="{id}-h">{title}</h3>"#
        )?;
        if total.requests == 0 {
            return writeln!(out, "<p>No requests {meaning}.</p></section>");
        }
        let share = percent(total.share_of(report.traffic.requests));
        writeln!(
            out,
            "<p><strong>{}</strong> ({share}){} {meaning}.{}</p>",
            counted(total.requests, "request"),
            and_keys(" of ", total),
            match total.worst_minute {
                Some((at, count)) if count > 1 => {
                    let at = clock(at, report.traffic.span);
                    format!(" The worst minute is {at} with {}.", number(count))
                }
                _ => String::new(),
            }
        )?;
        let description = format!(
            "{title} over time: {} in all, up to {} per {}",
            counted(total.requests, "request"),
            number(values.iter().copied().max().unwrap_or_default()),
            per(bins.width)
        );
        let plot = Plot {
            title: &format!("{title} per {}", per(bins.width)),
            legend: &[],
            description: &description,
            layers: &[Layer { class, name: title, values }],
            at_least: largest,
            mark: None,
            size: "short",
        };
        plot.print(bins, out)?;
        print_rules(rules, total.requests, out)?;
        if !total.worst_keys.is_empty() {
            print_worst_keys(total, ("Keys with most of them", "Requests"), MAX_KEYS, out)?;
        }
        writeln!(out, "</section>")
    }
}

fn print_rules(rules: &[(String, u64)], requests: u64, out: &mut impl Write) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    let bars =
        Bars { caption: "By the rule that denies", columns: ["Rule", "Requests"], of: requests };
    bars.print(rules.iter().take(MAX_RULES), out)?;
    match rules.len().saturating_sub(MAX_RULES) {
        0 => Ok(()),
        more => writeln!(out, r#"<p class="hint">And {}.</p>"#, counted(more as u64, "more rule")),
    }
}

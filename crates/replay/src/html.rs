//! `weir replay --output html`: one page that needs nothing else, with plots.
//!
//! Names and keys come from clients and files: all of them go through [`text`], which escapes and cuts
//! them. Every list has a bound, so that the page has one.

mod axis;
mod bars;
mod comparison;
mod plot;
mod rules;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod traffic;

use std::io::{self, Write};

use super::report::{Report, SideReport};
use crate::VERSION;
use axis::Bins;
use plot::{Layer, Mark, Plot};
use text::{code, counted, cut, html, number, percent};
use time::{clock, day, is_one_day, per, range, time_of_day};

/// The style sheet: that of all pages, and what this one adds.
const CSS: &str = concat!(include_str!("style.css"), include_str!("html/page.css"));

/// The icon of the page: two bars, part of the right one denied.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath fill='%237ea2ee' d='M2 7h5v8H2zM9 1h5v14H9z'/%3E%3Cpath fill='%23c2410c' d='M9 9h5v6H9z'/%3E%3C/svg%3E";

/// Bins of the large plots.
const MAX_BINS: usize = 300;
const MAX_KEYS: usize = 20;
/// Bytes of names of rule files in the headline.
const MAX_HEADLINE_NAME: usize = 60;
/// Characters of names of rule files in the list of contents.
const MAX_LINK_NAME: usize = 40;
/// Rules whose keys are shown without a click.
const MAX_OPEN: usize = 5;

/// Colours, as classes of the style sheet, and what they mean.
const PASSED_AND_DENIED: [(&str, &str); 2] = [("passed", "passed"), ("denied", "denied")];

/// Prints the page.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    print_head(report, out)?;
    print_headline(report, out)?;
    print_contents(report, out)?;
    writeln!(out, "<main>")?;
    if report.traffic.requests > 0 {
        print_over_time(report, out)?;
        if let Some(comparison) = &report.comparison {
            comparison::print(comparison, report, out)?;
        }
        rules::print(&report.rules, "rules", MAX_OPEN, report, out)?;
        print_all_keys(&report.rules, out)?;
        if let Some(comparison) = &report.comparison {
            rules::print(&comparison.other, "other-rules", 0, report, out)?;
        }
    }
    traffic::print(report, out)?;
    writeln!(out, "</main>")?;
    writeln!(
        out,
        "<footer><p>All times are UTC. Made by <code>weir replay</code> {VERSION}.</p></footer></body></html>"
    )
}

fn print_head(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let denied = &report.rules.denied;
    let share = percent(denied.share_of(report.traffic.requests));
    let requests = counted(report.traffic.requests, "request");
    // Nothing is loaded from anywhere, whatever a name contains.
    writeln!(
        out,
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">
<title>weir replay: {share} of {requests} denied</title>
<link rel="icon" href="{ICON}">
<style>
{CSS}</style></head><body>"#
    )
}

fn print_headline(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let (traffic, side) = (&report.traffic, &report.rules);
    writeln!(
        out,
        r#"<header><p class="source"><b>weir replay</b> <span>{} with the rules {}</span></p>"#,
        code(&traffic.name),
        code(&side.name)
    )?;
    let (Some((from, to)), 1..) = (traffic.span, traffic.requests) else {
        let why = traffic::why_empty(traffic);
        return writeln!(out, "<h1>No requests to replay.</h1><p>{why}</p></header>");
    };
    let requests = counted(traffic.requests, "request");
    let denied = match side.denied.requests {
        0 => format!("none of {requests}"),
        denied => {
            let share = percent(side.denied.share_of(traffic.requests));
            format!(r#"<strong>{} of {requests} ({share})</strong>"#, number(denied))
        }
    };
    let when = range(from, to);
    let limits = match report.comparison {
        Some(_) if side.name.len() <= MAX_HEADLINE_NAME => code(&side.name),
        _ => "these limits".to_owned(),
    };
    writeln!(out, "<h1>{when}, {limits} would have denied {denied}.</h1>")?;
    if let Some(comparison) = &report.comparison {
        let other = &comparison.other;
        let now = code(&side.name);
        writeln!(
            out,
            r#"<p class="lead">{} would have denied {} ({}). It denies {} that {now} lets pass, and lets {} pass that {now} denies.</p>"#,
            code(&other.name),
            number(other.denied.requests),
            percent(other.denied.share_of(traffic.requests)),
            counted(comparison.newly_denied.total.requests, "request"),
            number(comparison.no_longer_denied.total.requests)
        )?;
    }
    print_tiles(report, out)?;
    writeln!(out, "</header>")
}

/// Prints the most important numbers.
fn print_tiles(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let side = &report.rules;
    let denied = &side.denied;
    let denying = side.rules.iter().filter(|rule| rule.denied.requests > 0 && !rule.is_shadow);
    let worst = match denied.worst_minute {
        Some((at, count)) => {
            let count = number(count);
            let note = match is_one_day(report.traffic.span) {
                true => format!("{count} denied in this minute"),
                false => format!("on {}, {count} denied", day(at)),
            };
            (time_of_day(at), note)
        }
        None => ("none".to_owned(), "no request was denied".to_owned()),
    };
    let tiles = [
        (
            "Denied",
            percent(denied.share_of(report.traffic.requests)),
            counted(denied.requests, "request"),
        ),
        ("Worst minute", worst.0, worst.1),
        ("Keys denied", bars::key_count(denied), String::new()),
        (
            "Rules that deny",
            number(denying.count() as u64),
            format!("of {}", counted((side.rules.len() + side.unused) as u64, "rule")),
        ),
    ];
    let class = if denied.requests > 0 { "tiles denying" } else { "tiles" };
    writeln!(out, r#"<dl class="{class}">"#)?;
    for (title, value, note) in tiles {
        writeln!(out, "<div><dt>{title}</dt><dd><b>{value}</b> <span>{note}</span></dd></div>")?;
    }
    writeln!(out, "</dl>")
}

fn print_contents(report: &Report, out: &mut impl Write) -> io::Result<()> {
    if report.traffic.requests == 0 {
        return Ok(());
    }
    let mut links = vec![("time", "Over time".to_owned())];
    match &report.comparison {
        None => links.push(("rules", "Rules".to_owned())),
        Some(comparison) => {
            let rules = |side: &SideReport| {
                let name = html(&cut(&side.name, MAX_LINK_NAME));
                format!("Rules of {name}")
            };
            links.push(("comparison", "Comparison".to_owned()));
            links.push(("rules", rules(&report.rules)));
            links.push(("other-rules", rules(&comparison.other)));
        }
    }
    links.push(("traffic", "What was read".to_owned()));
    write!(out, r#"<nav aria-label="Contents"><ul>"#)?;
    for (id, title) in links {
        write!(out, r##"<li><a href="#{id}">{title}</a></li>"##)?;
    }
    writeln!(out, "</ul></nav>")
}

/// Prints all requests and the denied ones over time, as plots and as a table.
fn print_over_time(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let bins = Bins::new(report.plot_start, report.bucket, report.series.len(), MAX_BINS);
    let (requests, denied) = (bins.sums(&report.series), bins.sums(&report.rules.denied.series));
    let width = per(bins.width);
    writeln!(out, r#"<section id="time" aria-labelledby="time-h"><h2 id="time-h">Over time</h2>"#)?;
    let largest = |values: &[u64]| number(values.iter().copied().max().unwrap_or_default());
    let all = Layer { class: "passed", name: "requests", values: &requests };
    let over = Layer { class: "denied", name: "denied", values: &denied };
    let description = format!(
        "Requests over time: up to {} per {width}, up to {} of them denied",
        largest(&requests),
        largest(&denied)
    );
    let plot = Plot {
        title: &format!("Requests per {width}"),
        legend: if report.rules.denied.requests > 0 { &PASSED_AND_DENIED } else { &[] },
        description: &description,
        layers: &[all, over],
        at_least: 0,
        mark: None,
        size: "tall",
    };
    plot.print(&bins, out)?;
    if report.rules.denied.requests > 0 {
        let worst = report.rules.denied.worst_minute;
        // A mark on the only bar says nothing, and neither does one of many minutes with one request.
        let worst = worst.filter(|(_, count)| bins.count > 1 && *count > 1);
        let mark = worst.and_then(|(at, count)| {
            let (place, width) = bins.of_minute(at)?;
            let at = clock(at, report.traffic.span);
            let text = format!("worst minute {at}: {}\u{a0}denied", number(count));
            Some(Mark { place, width, text })
        });
        let description =
            format!("Denied requests over time: up to {} per {width}", largest(&denied));
        let plot = Plot {
            title: &format!("Denied per {width}, on its own scale"),
            legend: &[],
            description: &description,
            layers: &[Layer { class: "denied", name: "denied", values: &denied }],
            at_least: 0,
            mark,
            size: "short",
        };
        plot.print(&bins, out)?;
    }
    print_series(&bins, &requests, &denied, out)?;
    writeln!(out, "</section>")
}

/// Prints the numbers behind the plots.
fn print_series(
    bins: &Bins,
    requests: &[u64],
    denied: &[u64],
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(
        out,
        r#"<details class="series"><summary>The numbers of these plots</summary><table><caption>Requests per {}</caption><thead><tr><th scope="col">From (UTC)</th><th scope="col" class="n">Requests</th><th scope="col" class="n">Denied</th></tr></thead><tbody>"#,
        per(bins.width)
    )?;
    for (bin, (requests, denied)) in std::iter::zip(requests, denied).enumerate() {
        writeln!(
            out,
            r#"<tr><th scope="row">{}</th><td class="n">{}</td><td class="n">{}</td></tr>"#,
            bins.label(bin),
            number(*requests),
            number(*denied)
        )?;
    }
    writeln!(out, "</tbody></table></details>")
}

/// Prints the worst keys of all rules together, where there are several rules.
fn print_all_keys(side: &SideReport, out: &mut impl Write) -> io::Result<()> {
    let denying = side.rules.iter().filter(|rule| rule.denied.requests > 0 && !rule.is_shadow);
    if side.denied.worst_keys.is_empty() || denying.count() < 2 {
        return Ok(());
    }
    writeln!(
        out,
        r#"<section aria-labelledby="keys-h"><h2 id="keys-h">Worst keys of all rules</h2>"#
    )?;
    bars::print_worst_keys(&side.denied, ("Keys denied most", "Denied"), MAX_KEYS, out)?;
    writeln!(out, "</section>")
}

//! `weir replay --output csv`: one line for each rule.

use std::io::{self, Write};

use super::report::{Difference, Report, SideReport};
use super::text::stamp;
use weir_common::escape::escape;

const HEADER: &str = "files,rule,origin,shadow,requests,refused,share,worst_minute,\
                      worst_minute_refused,worst_key,worst_key_refused,refused_by_this_set_only";

/// Prints the rules that requests matched, and those of `--compare` after them.
pub(super) fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{HEADER}")?;
    let comparison = report.comparison.as_ref();
    print_side(&report.rules, comparison.map(|it| &it.no_longer_denied), out)?;
    match comparison {
        Some(comparison) => print_side(&comparison.other, Some(&comparison.newly_denied), out),
        None => Ok(()),
    }
}

/// Prints the rules of a set. `only` are the requests that the other set lets pass.
fn print_side(
    side: &SideReport,
    only: Option<&Difference>,
    out: &mut impl Write,
) -> io::Result<()> {
    for rule in &side.rules {
        let denied = &rule.denied;
        let worst = denied.worst_minute;
        let key = denied.worst_keys.first();
        let only = only.map(|only| only.rules.iter().find(|(name, _)| *name == rule.name));
        writeln!(
            out,
            "{},{},{},{},{},{},{:.6},{},{},{},{},{}",
            quoted(&side.name),
            quoted(&rule.name),
            quoted(&rule.origin.to_string()),
            rule.is_shadow,
            rule.requests,
            denied.requests,
            denied.share_of(rule.requests),
            worst.map(|(minute, _)| stamp(minute).to_string()).unwrap_or_default(),
            worst.map(|(_, count)| count.to_string()).unwrap_or_default(),
            key.map(|(key, _)| quoted(key)).unwrap_or_default(),
            key.map(|(_, count)| count.to_string()).unwrap_or_default(),
            only.map(|only| only.map_or(0, |(_, count)| *count).to_string()).unwrap_or_default(),
        )?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escape(text).replace('"', "\"\""))
}

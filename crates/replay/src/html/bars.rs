//! Names with their numbers, as bars.

use std::io::{self, Write};

use super::super::report::Count;
use super::text::{code, counted, number, percent};

/// A table of names and numbers.
pub(super) struct Bars<'a> {
    pub caption: &'a str,
    pub columns: [&'a str; 2],
    /// What all numbers add up to, with those that are not listed.
    pub of: u64,
}

impl Bars<'_> {
    pub fn print<'a>(
        &self,
        listed: impl Iterator<Item = &'a (String, u64)> + Clone,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Bars { caption, columns: [name, count], of } = self;
        let largest = listed.clone().map(|(_, count)| *count).max().unwrap_or_default().max(1);
        writeln!(
            out,
            r#"<table class="bars"><caption>{caption}</caption><thead><tr><th scope="col">{name}</th><th scope="col" class="n">{count}</th></tr></thead><tbody>"#
        )?;
        for (name, count) in listed {
            let width = 100.0 * *count as f64 / largest as f64;
            writeln!(
                out,
                r#"<tr><th scope="row"><div><span>{}</span><span class="bar"><i style="width:{width:.2}%"></i></span></div></th><td class="n">{} <span class="note">{}</span></td></tr>"#,
                code(name),
                number(*count),
                percent(*count as f64 / (*of).max(1) as f64)
            )?;
        }
        writeln!(out, "</tbody></table>")
    }
}

/// Returns how many keys were denied: `312`.
pub(super) fn key_count(denied: &Count) -> String {
    let more = if denied.is_cut { "at least " } else { "" };
    format!("{more}{}", number(denied.keys))
}

/// Returns the number of denied keys after a separator: `, 312 keys`.
pub(super) fn and_keys(separator: &str, denied: &Count) -> String {
    let noun = if denied.keys == 1 { "key" } else { "keys" };
    format!("{separator}{}\u{a0}{noun}", key_count(denied))
}

/// Prints the keys with most denied requests, as bars with numbers; `count` is the title of these.
pub(super) fn print_worst_keys(
    denied: &Count,
    (caption, count): (&str, &str),
    max: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let listed = denied.worst_keys.iter().take(max);
    let bars = Bars { caption, columns: ["Key", count], of: denied.requests };
    bars.print(listed.clone(), out)?;
    let sum = listed.clone().map(|(_, count)| *count).fold(0, u64::saturating_add);
    let other_keys = denied.keys.saturating_sub(listed.len() as u64);
    let others = denied.requests.saturating_sub(sum);
    if denied.is_cut {
        writeln!(
            out,
            r#"<p class="hint">There were more keys than are counted separately: some that were denied may be missing.</p>"#
        )
    } else if other_keys > 0 && others > 0 {
        writeln!(
            out,
            r#"<p class="hint">{} with {} together.</p>"#,
            counted(other_keys, "more key"),
            counted(others, "request")
        )
    } else {
        Ok(())
    }
}

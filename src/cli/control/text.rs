//! What a change of a control did, for people.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::control_text::{action, left, matched};
use crate::cli::print::{line, list, text};
use crate::cli::top::print_rows;

/// The most rules that are listed.
const MAX_RULES: usize = 10;

/// Prints a control that was put, or would be. Warnings go to `err`.
pub(in crate::cli) fn print(
    written: &Value,
    is_dry_run: bool,
    now: Timestamp,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<()> {
    let control = &written["control"];
    let would = if is_dry_run { " (dry run: nothing has changed)" } else { "" };
    line(out, &format!("{}{would}", text(&control["id"])))?;
    line(out, &format!("  action:  {}", action(control)))?;
    line(out, &format!("  matches: {}", matched(control)))?;
    line(out, &format!("  lasts:   {}", left(control, now)))?;
    let names: Vec<&str> = list(&written["rules"]).map(text).collect();
    if !names.is_empty() {
        let more = match names.len().saturating_sub(MAX_RULES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = names.get(..MAX_RULES).unwrap_or(&names).join(", ");
        line(out, &format!("  rules:   {shown}{more}"))?;
    }
    line(out, &format!("  shared:  {}", shared(written)))?;
    line(out, &format!("  kept:    {}", kept(written)))?;
    if list(&written["matched"]).next().is_some() {
        line(out, "  keys with the most hits that it matches:")?;
        print_rows(list(&written["matched"]), 4, out)?;
    }
    if written["kept"] == false {
        warn(err, "not kept: it ends when weir restarts, unless controls.file names a file");
    }
    print_warnings(written, is_dry_run, err);
    Ok(())
}

/// Prints a control that was deleted. Warnings go to `err`.
pub(in crate::cli) fn print_deleted(
    written: &Value,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<()> {
    let control = &written["control"];
    let (id, what) = (text(&control["id"]), matched(control));
    line(out, &format!("deleted {id}: {} {what}", action(control)))?;
    print_warnings(written, false, err);
    Ok(())
}

fn shared(written: &Value) -> &'static str {
    match written["shared"] == true {
        true => "all replicas apply it within a second",
        false => "no",
    }
}

fn kept(written: &Value) -> &'static str {
    match written["kept"] == true {
        true => "it outlives a restart",
        false => "no",
    }
}

fn print_warnings(written: &Value, is_dry_run: bool, err: &mut impl Write) {
    if written["shared"] == false {
        let changes = if is_dry_run { "would change now" } else { "has changed" };
        let follow = "with Redis others follow when it answers";
        warn(err, &format!("not shared: only this replica {changes}; {follow}"));
    }
    list(&written["warnings"]).for_each(|warning| warn(err, text(warning)));
}

fn warn(err: &mut impl Write, warning: &str) {
    // Standard error may be closed.
    let _ = line(err, &format!("warning: {warning}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(written: &Value, is_dry_run: bool) -> (String, String) {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        print(written, is_dry_run, now, &mut out, &mut err).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn block() -> Value {
        json!({
            "id": "block-1", "domain": "shop", "entries": [{ "key": "user", "value": "m\n1" }],
            "action": "block", "until": "2026-01-01T01:00:00Z",
        })
    }

    #[test]
    fn the_answer_says_what_a_control_does_and_matches() {
        let rules: Vec<String> = (0..12).map(|i| format!("shop.r{i}")).collect();
        let written = json!({
            "control": block(), "shared": true, "kept": true, "rules": rules, "warnings": [],
            "matched": [{
                "domain": "shop", "entries": [{ "key": "user", "value": "m\n1" }], "count": 7, "error": 0,
            }],
        });
        let wanted = "\
block-1
  action:  block
  matches: shop user=m\\n1
  lasts:   1h
  rules:   shop.r0, shop.r1, shop.r2, shop.r3, shop.r4, shop.r5, shop.r6, shop.r7, shop.r8, shop.r9 and 2 more
  shared:  all replicas apply it within a second
  kept:    it outlives a restart
  keys with the most hits that it matches:
    HITS  ERROR  DOMAIN  KEY
       7      0  shop    user=m\\n1
";
        assert_eq!(printed(&written, false), (wanted.to_owned(), String::new()));
    }

    #[test]
    fn a_control_that_is_not_shared_or_kept_has_warnings() {
        let mut written = json!({
            "control": block(), "shared": false, "kept": false, "warnings": ["no rule matches"],
        });
        written["control"]["until"] = Value::Null;
        let (out, err) = printed(&written, true);
        let start = "block-1 (dry run: nothing has changed)\n";
        assert!(out.starts_with(start) && out.contains("forever"), "{out}");
        let warnings: Vec<&str> = err.lines().collect();
        assert_eq!(warnings.len(), 3, "{err}");
        for (warning, part) in std::iter::zip(warnings, ["controls.file", "replica", "no rule"]) {
            assert!(warning.starts_with("warning: ") && warning.contains(part), "{err}");
        }
    }
}

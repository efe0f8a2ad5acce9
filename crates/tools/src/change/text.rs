//! Prints what a command such as `weir block` changed. A control is a block, an allow or a limit of an operator.

use std::io::{self, Write};

use crate::describe::{left, matched};
use crate::print::{line, shortened};
use crate::top::print_rows;
use weir_api::messages::{ChangedControl, ShownControl, WrittenControl};

const MAX_RULES: usize = 10;

/// Prints a control that the server has stored, or would store. Warnings go to `err`, those about the control first.
pub(crate) fn print(
    written: &WrittenControl,
    is_dry_run: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let WrittenControl { change, rules, .. } = written;
    let ShownControl { control, left_ms } = &change.control;
    written.warnings.iter().for_each(|warning| warn(err, warning));
    let would = if is_dry_run { " (dry run: nothing has changed)" } else { "" };
    line(out, &format!("{}{would}", control.id))?;
    line(out, &format!("  action:  {}", control.action))?;
    line(out, &format!("  matches: {}", matched(control)))?;
    line(out, &format!("  lasts:   {}", left(*left_ms)))?;
    if !rules.is_empty() {
        line(out, &format!("  rules:   {}", shortened(rules, MAX_RULES)))?;
    }
    let shared = if change.shared { "all replicas apply it within a second" } else { "no" };
    let kept = if change.kept { "it outlives a restart" } else { "no" };
    line(out, &format!("  shared:  {shared}"))?;
    line(out, &format!("  kept:    {kept}"))?;
    if !written.matched.is_empty() {
        line(out, "  keys with the most hits that it matches:")?;
        print_rows(&written.matched, 4, out)?;
    }
    if !change.kept {
        let cause = change.not_kept_because.as_deref().map(|cause| format!(": {cause}"));
        let cause = cause.as_deref().unwrap_or(", unless controls.file names a file");
        warn(err, &format!("not kept: it ends when weir restarts{cause}"));
    }
    warn_of_others(change, err);
    Ok(())
}

pub(crate) fn print_deleted(
    deleted: &ChangedControl,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<()> {
    let control = &deleted.control.control;
    line(out, &format!("deleted {}: {} {}", control.id, control.action, matched(control)))?;
    if let Some(cause) = &deleted.not_kept_because {
        warn(err, &format!("not kept: the control is back when weir restarts: {cause}"));
    }
    warn_of_others(deleted, err);
    Ok(())
}

fn warn_of_others(change: &ChangedControl, err: &mut dyn Write) {
    if change.store_is_shared && !change.shared {
        warn(err, "not shared yet: other replicas follow once Redis accepts it");
    }
}

pub(super) fn warn(err: &mut dyn Write, warning: &str) {
    // Standard error may be closed.
    let _ = line(err, &format!("warning: {warning}"));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(written: &Value, is_dry_run: bool) -> (String, String) {
        let written = serde_json::from_value(written.clone()).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        print(&written, is_dry_run, &mut out, &mut err).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn block() -> Value {
        json!({
            "id": "block-1", "domain": "shop", "entries": [{ "key": "user", "value": "m\n1" }],
            "action": "block", "until": "2026-01-01T01:00:00Z", "left_ms": 3_600_000,
            "at": "2026-01-01T00:00:00Z",
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
    HITS  OVERCOUNT  DOMAIN  KEY
       7          0  shop    user=m\\n1
";
        assert_eq!(printed(&written, false), (wanted.to_owned(), String::new()));
    }

    #[test]
    fn the_cause_why_a_change_is_not_kept_is_shown() {
        let cause = "controls.file /c cannot be written: no space left";
        let mut written = json!({
            "control": block(), "shared": true, "kept": false, "not_kept_because": cause,
            "rules": [], "warnings": [], "matched": [],
        });
        let wanted = format!("warning: not kept: it ends when weir restarts: {cause}\n");
        assert_eq!(printed(&written, false).1, wanted);
        written["control"] = block();
        let deleted = serde_json::from_value(written).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        print_deleted(&deleted, &mut out, &mut err).unwrap();
        let wanted =
            format!("warning: not kept: the control is back when weir restarts: {cause}\n");
        assert_eq!(String::from_utf8(err).unwrap(), wanted);
    }

    #[test]
    fn a_control_that_is_not_shared_or_kept_has_warnings() {
        let mut written = json!({
            "control": block(), "shared": false, "store_is_shared": true, "kept": false, "rules": [],
            "warnings": ["no rule matches"], "matched": [],
        });
        written["control"]["left_ms"] = Value::Null;
        let (out, err) = printed(&written, true);
        let start = "block-1 (dry run: nothing has changed)\n";
        assert!(out.starts_with(start) && out.contains("forever"), "{out}");
        let warnings: Vec<&str> = err.lines().collect();
        assert_eq!(warnings.len(), 3, "{err}");
        for (warning, part) in std::iter::zip(warnings, ["no rule", "controls.file", "replica"]) {
            assert!(warning.starts_with("warning: ") && warning.contains(part), "{err}");
        }
        // Without a store that replicas share, there are no others to follow.
        written["store_is_shared"] = false.into();
        let (out, err) = printed(&written, false);
        assert!(out.contains("shared:  no\n") && !err.contains("replica"), "{out}{err}");
    }
}

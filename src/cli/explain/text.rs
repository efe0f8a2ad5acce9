//! `weir explain --output text`, from the JSON that it or a server has made.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::control_text;
use crate::cli::print::{entries, line, list, number, place, text};
use crate::cli::state::state_lines;
use weir_common::descriptor::descriptor_text;

/// The most descriptors of a level that are listed as not tried.
const MAX_LATER: usize = 5;

/// Prints the explanation, one paragraph for each descriptor.
pub(super) fn print(explained: &Value, out: &mut impl Write) -> io::Result<()> {
    for (i, descriptor) in list(&explained["descriptors"]).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        line(out, &format!("{}: {}", text(&explained["domain"]), entries(&descriptor["entries"])))?;
        for step in list(&descriptor["steps"]) {
            print_step(step, out)?;
        }
        print_result(descriptor, out)?;
    }
    Ok(())
}

fn print_step(step: &Value, out: &mut impl Write) -> io::Result<()> {
    let entry = descriptor_text(&[(text(&step["key"]), text(&step["value"]))]);
    let matched = &step["matched"];
    if matched.is_null() {
        return line(out, &format!("  {entry} matches nothing"));
    }
    let candidate = |it: &Value| format!("'{}' ({})", text(&it["descriptor"]), place(it));
    let by = match text(&matched["by"]) {
        "value" => "by its value",
        "wildcard" => "by a wildcard",
        _ => "by its key alone",
    };
    line(out, &format!("  {entry} matches {} {by}", candidate(matched)))?;
    match number(&step["wildcards_tried"]) {
        0 => {}
        1 => line(out, "    after 1 wildcard that does not match")?,
        tried => line(out, &format!("    after {tried} wildcards that do not match"))?,
    }
    let count = list(&step["later"]).count();
    let mut later: Vec<String> = list(&step["later"]).take(MAX_LATER).map(candidate).collect();
    if let more @ 1.. = count - later.len() {
        later.push(format!("{more} more"));
    }
    if !later.is_empty() {
        let matches = if count == 1 { "matches" } else { "match" };
        line(out, &format!("    before {}, which {matches} too", later.join(", ")))?;
    }
    Ok(())
}

fn print_result(descriptor: &Value, out: &mut impl Write) -> io::Result<()> {
    let sent = &descriptor["sent_limit"];
    if !descriptor["rule"].is_null() {
        print_rule(descriptor, out)?;
    } else if !sent.is_null() {
        line(out, "  no rule is used: the request has a limit for this descriptor")?;
        // Such a limit is one of envoyproxy/ratelimit.
        line(out, &format!("  limit:  {}; denied hits count too", text(sent)))?;
    } else {
        let unlimited = if descriptor["control"].is_null() { ": not limited" } else { "" };
        line(out, &format!("  no rule{unlimited}"))?;
        for near in list(&descriptor["near_misses"]) {
            line(out, &format!("  note: {}", text(&near["message"])))?;
        }
    }
    let control = &descriptor["control"];
    if !control.is_null() {
        let control = control_text::described(control, Timestamp::now());
        line(out, &format!("  control: {control}"))?;
    }
    let replaced_by = &descriptor["replaced_by"];
    if !replaced_by.is_null() {
        let by = format!("'{}' ({})", text(&replaced_by["rule"]), place(replaced_by));
        let index = number(&replaced_by["descriptor"]).saturating_add(1);
        let text = format!("  replaced by {by}, the rule of descriptor {index}: not limited");
        return line(out, &text);
    }
    if let Some(key) = descriptor["key"].as_str() {
        let shared = match descriptor["share_threshold"] == true {
            true => ", which all values of the wildcard share",
            false => "",
        };
        line(out, &format!("  key:    {key}{shared}"))?;
    }
    if let Some(metric) = descriptor["metric"].as_str() {
        line(out, &format!("  metric: {metric}"))?;
    }
    state_lines(&descriptor["state"]).iter().try_for_each(|text| line(out, text))
}

fn print_rule(descriptor: &Value, out: &mut impl Write) -> io::Result<()> {
    let rule = &descriptor["rule"];
    line(out, &format!("  rule:   {} ({})", text(&rule["rule"]), place(rule)))?;
    for patch in list(&descriptor["patches"]) {
        line(out, &format!("  patch:  {}", text(patch)))?;
    }
    if rule["unlimited"] == true {
        line(out, "  limit:  unlimited: nothing is counted")?;
    }
    for (limit, parameters) in std::iter::zip(list(&descriptor["limits"]), list(&rule["limits"])) {
        let name = match text(&parameters["name"]) {
            "" => String::new(),
            name => format!(", named {name}"),
        };
        let denied = match parameters["charge_denied"] == true {
            true => "; denied hits count too",
            false => "",
        };
        line(out, &format!("  limit:  {}{name}{denied}", text(limit)))?;
    }
    if rule["shadow_mode"] == true {
        line(out, "  shadow mode: it counts, but never denies")?;
    }
    if descriptor["quota"] == true {
        line(out, "  quota:  it denies only if all quotas of the request are used up")?;
    }
    if descriptor["charge"] == "together" && descriptor["replaced_by"].is_null() {
        line(out, "  charge: together: all descriptors of the request are charged, or none")?;
    }
    let replaces: Vec<&str> = list(&rule["replaces"]).map(text).collect();
    if !replaces.is_empty() {
        let names = replaces.join(", ");
        line(out, &format!("  replaces rules with the name {names} in the same request"))?;
    }
    Ok(())
}

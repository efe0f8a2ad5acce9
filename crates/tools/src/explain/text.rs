//! Prints the result of `weir explain` as text, and in `weir why` the part that explains the key.

use std::io::{self, Write};

use crate::describe;
use crate::print::{entries, line};
use crate::state::{print_counted, print_local};
use weir_common::clock::{Clock, WallClock};
use weir_limiter::ReadState;
use weir_limiter::explain::{
    Explained, ExplainedCandidate, ExplainedDescriptor, ExplainedStep, LiveDescriptor,
};
use weir_rules::{MatchKind, ReserveStep, RuleDescription};

/// The most descriptors of one level of the rule tree that are listed as not tried.
const MAX_LATER: usize = 5;

pub(crate) fn print(explained: &Explained<LiveDescriptor>, out: &mut dyn Write) -> io::Result<()> {
    for (i, LiveDescriptor { explained: descriptor, state, .. }) in
        explained.descriptors.iter().enumerate()
    {
        if i > 0 {
            writeln!(out)?;
        }
        line(out, &format!("{}: {}", explained.domain, entries(&descriptor.entries)))?;
        for step in &descriptor.steps {
            print_step(step, out)?;
            if let Some(list) = &step.list_name {
                line(out, &format!("    its value is the name of '{list}', but not in that list"))?;
            }
        }
        print_result(descriptor, out)?;
        match state {
            Some(ReadState { error: Some(error), state, .. }) => {
                line(out, &format!("  state:  unknown: {error}"))?;
                print_local(state, out)?;
            }
            Some(ReadState { state, .. }) => print_counted(state, WallClock.now(), out)?,
            None => {}
        }
    }
    Ok(())
}

fn print_step(step: &ExplainedStep, out: &mut dyn Write) -> io::Result<()> {
    let entry = entries(std::slice::from_ref(&step.entry));
    match step.reserve {
        Some(ReserveStep::Reserve) => {
            return line(out, &format!("  {entry} names the reservation"));
        }
        Some(ReserveStep::Settle) => return line(out, &format!("  {entry} marks a settling call")),
        Some(ReserveStep::NoId) | None => {}
    }
    let Some(matched) = &step.matched else {
        return line(out, &format!("  {entry} matches nothing"));
    };
    let candidate = |candidate: &ExplainedCandidate| {
        format!("'{}' ({})", candidate.descriptor, candidate.origin)
    };
    let by = match matched.by {
        MatchKind::Value => "by its value".to_owned(),
        MatchKind::Network | MatchKind::List => {
            format!("in {}", matched.within.as_deref().unwrap_or("a list"))
        }
        MatchKind::Wildcard => "by a wildcard".to_owned(),
        MatchKind::Key => "by its key alone".to_owned(),
    };
    line(out, &format!("  {entry} matches {} {by}", candidate(matched)))?;
    let count = step.later.len();
    let mut later: Vec<String> = step.later.iter().take(MAX_LATER).map(candidate).collect();
    if let more @ 1.. = count - later.len() {
        later.push(format!("{more} more"));
    }
    if !later.is_empty() {
        let matches = if count == 1 { "matches" } else { "match" };
        line(out, &format!("    before {}, which {matches} too", later.join(", ")))?;
    }
    Ok(())
}

fn print_result(descriptor: &ExplainedDescriptor, out: &mut dyn Write) -> io::Result<()> {
    if let Some(rule) = &descriptor.rule {
        print_rule(descriptor, rule, out)?;
    } else {
        let unlimited = if descriptor.control.is_none() { ": not limited" } else { "" };
        line(out, &format!("  no rule{unlimited}"))?;
        for near in &descriptor.near_misses {
            line(out, &format!("  note: {}", near.message))?;
        }
    }
    if let Some(control) = &descriptor.control {
        let control = describe::described(control, WallClock.now());
        line(out, &format!("  control: {control}"))?;
    }
    if let Some(by) = &descriptor.replaced_by {
        let index = by.descriptor.saturating_add(1);
        let by = format!("'{}' ({})", by.rule, by.origin);
        let text = format!("  replaced by {by}, the rule of descriptor {index}: not limited");
        return line(out, &text);
    }
    if let Some(key) = &descriptor.key {
        let mut matched = descriptor.steps.iter().filter_map(|step| step.matched.as_ref());
        let shared = matched.find(|matched| matched.share_threshold);
        let shared = match shared.map(|matched| matched.by) {
            None => "",
            Some(MatchKind::Network) => ", which all values of the network share",
            Some(MatchKind::List) => ", which all values of the list share",
            Some(_) => ", which all values of the wildcard share",
        };
        line(out, &format!("  key:    {key}{shared}"))?;
    }
    match &descriptor.metric {
        Some(metric) => line(out, &format!("  metric: {metric}")),
        None => Ok(()),
    }
}

fn print_rule(
    descriptor: &ExplainedDescriptor,
    rule: &RuleDescription,
    out: &mut dyn Write,
) -> io::Result<()> {
    line(out, &format!("  rule:   {} ({})", rule.rule, rule.origin))?;
    for patch in descriptor.patches.iter().flatten() {
        line(out, &format!("  patch:  {patch}"))?;
    }
    if rule.unlimited {
        line(out, "  limit:  unlimited: nothing is counted")?;
    }
    for (limit, parameters) in std::iter::zip(&descriptor.limits, &rule.limits) {
        let name = describe::part(", named ", &parameters.name);
        let denied = if parameters.charge_denied { "count too" } else { "do not count" };
        line(out, &format!("  limit:  {limit}{name}; denied hits {denied}"))?;
    }
    if let Some(ban) = &rule.ban {
        line(out, &format!("  ban:    {}", ban.text))?;
    }
    if let Some(reserve) = &rule.reserve {
        line(out, &format!("  reserve: {reserve}"))?;
    }
    if rule.lease == Some(false) {
        line(out, "  lease:  false: no hits are charged before they are asked for")?;
    }
    if rule.shadow_mode {
        line(out, "  shadow mode: it counts, but never denies")?;
    }
    if descriptor.quota {
        line(out, "  quota:  it denies only if all quotas of the request are used up")?;
    }
    if descriptor.charge.as_deref() == Some("together") && descriptor.replaced_by.is_none() {
        line(out, "  charge: together: all descriptors of the request are charged, or none")?;
    }
    if !rule.replaces.is_empty() {
        let names = rule.replaces.join(", ");
        line(out, &format!("  replaces rules with the name {names} in the same request"))?;
    }
    Ok(())
}

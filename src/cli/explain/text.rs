//! `weir explain --output text`.

use std::io::{self, Write};

use super::explained::{Explained, ExplainedDescriptor, ExplainedStep, entry_text};
use crate::escape::escape;
use crate::limit::Limit;
use crate::rules::{Candidate, Domain, Rule};

/// The most descriptors of a level that are listed as not tried.
const MAX_LATER: usize = 5;

/// Prints the explanation, one paragraph for each descriptor.
pub(super) fn print(explained: &Explained<'_>, out: &mut impl Write) -> io::Result<()> {
    for (i, descriptor) in explained.descriptors.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let entries: Vec<String> =
            descriptor.entries.iter().map(|(key, value)| entry_text((key, value))).collect();
        line(out, &format!("{}: {}", explained.domain, entries.join(",")))?;
        for (entry, step) in std::iter::zip(&entries, &descriptor.steps) {
            print_step(entry, step, out)?;
        }
        print_result(descriptor, explained.rules, out)?;
    }
    Ok(())
}

fn print_step(entry: &str, step: &ExplainedStep<'_>, out: &mut impl Write) -> io::Result<()> {
    let Some(matched) = step.matched else {
        return line(out, &format!("  {entry} matches nothing"));
    };
    let place = |candidate: &Candidate<'_>| format!("'{}' ({})", candidate.text, candidate.origin);
    line(out, &format!("  {entry} matches {} {}", place(&matched), matched.kind.words()))?;
    match step.wildcards_tried {
        0 => {}
        1 => line(out, "    after 1 wildcard that does not match")?,
        tried => line(out, &format!("    after {tried} wildcards that do not match"))?,
    }
    let mut later: Vec<String> = step.later.iter().take(MAX_LATER).map(place).collect();
    if let more @ 1.. = step.later.len() - later.len() {
        later.push(format!("{more} more"));
    }
    if !later.is_empty() {
        let matches = if step.later.len() == 1 { "matches" } else { "match" };
        line(out, &format!("    before {}, which {matches} too", later.join(", ")))?;
    }
    Ok(())
}

fn print_result(
    descriptor: &ExplainedDescriptor<'_>,
    domain: Option<&Domain>,
    out: &mut impl Write,
) -> io::Result<()> {
    match (descriptor.rule, &descriptor.sent) {
        (Some(rule), _) => print_rule(rule, descriptor, domain, out)?,
        (None, Some(limit)) => {
            line(out, "  no rule is used: the request has a limit for this descriptor")?;
            print_limit(limit, out)?;
        }
        (None, None) => {
            line(out, "  no rule: not limited")?;
            for near in &descriptor.near {
                line(out, &format!("  note: {}", near.message))?;
            }
        }
    }
    if let Some((index, rule)) = descriptor.replaced_by {
        let by = format!("'{}' ({})", rule.path(), rule.origin);
        return line(
            out,
            &format!("  replaced by {by}, the rule of descriptor {}: not limited", index + 1),
        );
    }
    if let Some(key) = &descriptor.key {
        let shared = match descriptor.share_threshold {
            true => ", which all values of the wildcard share",
            false => "",
        };
        line(out, &format!("  key:    {key}{shared}"))?;
    }
    match &descriptor.metric {
        Some(metric) => line(out, &format!("  metric: {metric}")),
        None => Ok(()),
    }
}

fn print_rule(
    rule: &Rule,
    descriptor: &ExplainedDescriptor<'_>,
    domain: Option<&Domain>,
    out: &mut impl Write,
) -> io::Result<()> {
    line(out, &format!("  rule:   {} ({})", rule.path(), rule.origin))?;
    let domain_patches = domain.map_or(&[][..], |domain| &domain.patches);
    for patch in rule.patches.iter().chain(domain_patches) {
        line(out, &format!("  patch:  {patch}"))?;
    }
    match &rule.plan {
        None => line(out, "  limit:  unlimited: nothing is counted")?,
        Some(plan) => plan.limits().iter().try_for_each(|limit| print_limit(limit, out))?,
    }
    if rule.shadow_mode {
        line(out, "  shadow mode: it counts, but never denies")?;
    }
    if descriptor.is_quota {
        line(out, "  quota:  it denies only if all quotas of the request are used up")?;
    }
    if domain.is_some_and(|domain| domain.together) && descriptor.replaced_by.is_none() {
        line(out, "  charge: together: all descriptors of the request are charged, or none")?;
    }
    if !rule.replaces.is_empty() {
        let names = rule.replaces.join(", ");
        line(out, &format!("  replaces rules with the name {names} in the same request"))?;
    }
    Ok(())
}

fn print_limit(limit: &Limit, out: &mut impl Write) -> io::Result<()> {
    let name = match &*limit.name {
        "" => String::new(),
        name => format!(", named {name}"),
    };
    let denied = if limit.charge_denied { "; denied hits count too" } else { "" };
    line(out, &format!("  limit:  {limit}{name}{denied}"))
}

fn line(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", escape(text))
}

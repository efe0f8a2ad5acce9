//! The last step of `weir check --envoy`: compares the descriptors that Envoy sends with the rules.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::actions::{SentEntry, Values};
use super::filter::Sent;
use super::findings::Findings;
use weir_common::suggest::Suggester;
use weir_rules::{Candidate, Level, MatchKind, Position, Rule, RuleSet};

/// Reports descriptors that no rule matches. If `sent` is all that Envoy sends (`is_complete`), also unused rules.
pub(super) fn compare(rules: &RuleSet, sent: &[Sent], is_complete: bool, findings: &mut Findings) {
    let mut reached = HashSet::new();
    let mut used = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    let mut compared = HashMap::new();
    let (mut meant, mut unmatched) = (HashSet::new(), Vec::new());
    let names: BTreeSet<&str> = rules.rules().map(Rule::domain).collect();
    let mut suggester = Suggester::default();
    for sent in sent {
        let Some(domain) = rules.domain(&sent.domain) else {
            if unknown.insert(&sent.domain) {
                let message = format!("there are no rules for the domain '{}'", sent.domain);
                let help = match suggester.nearest(&sent.domain, names.iter().copied()) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => "write rules for it, or name the domain of the rules".to_owned(),
                };
                findings.add_at(&sent.origin, message, "", &help);
            }
            continue;
        };
        used.insert(sent.domain.as_str());
        // Many routes send the same.
        let known = compared.entry((sent.domain.as_str(), sent.entries.as_slice()));
        let is_meant = match known {
            Entry::Occupied(is_meant) => *is_meant.get(),
            Entry::Vacant(new) => {
                let position = sent.origin.position;
                let Some(ends) = ends(domain.level(), &sent.entries, position, findings) else {
                    return;
                };
                reached.extend(ends.iter().filter_map(|end| end.rule).map(address));
                let is_meant = |end: &Candidate<'_>| end.rule.is_some() || end.below.is_empty();
                *new.insert(ends.iter().any(is_meant))
            }
        };
        if is_meant && sent.is_shared {
            meant.insert((&sent.origin.file, sent.origin.position, sent.entries.as_slice()));
        }
        if !sent.has_limit && !is_meant && !findings.has_error(&sent.origin) {
            unmatched.push(sent);
        }
    }
    for sent in unmatched {
        // Filters of two domains both send what routes and virtual hosts have.
        let place = (&sent.origin.file, sent.origin.position, sent.entries.as_slice());
        if !meant.contains(&place) {
            let descriptor = describe(sent);
            let message = format!("no rule of the domain '{}' matches '{descriptor}'", sent.domain);
            let help = format!(
                "write a rule with these entries in this order; `weir explain RULES -d {} {descriptor}` \
                 shows which are near",
                sent.domain
            );
            findings.add_at(&sent.origin, message, "", &help);
        }
    }
    if !is_complete {
        return;
    }
    let mut unused = BTreeSet::new();
    for rule in rules.rules() {
        if !used.contains(rule.domain()) {
            if unused.insert(rule.domain()) {
                let message = format!("Envoy never asks about the domain '{}'", rule.domain());
                let help = "set `domain` of a rate-limit filter to it, or remove its rules";
                findings.add_at(&rule.origin, message, "", help);
            }
        } else if !reached.contains(&address(rule)) {
            let message = format!("no action of Envoy sends what '{}' matches", rule.path());
            let help = "add actions for its entries, in this order, or remove the rule";
            findings.add_at(&rule.origin, message, "", help);
        }
    }
}

fn address(rule: &Rule) -> usize {
    std::ptr::from_ref(rule) as usize
}

/// Returns a descriptor as `key=value`, with `…` for what a request decides.
fn describe(sent: &Sent) -> String {
    let entry = |(key, values): &SentEntry| match values {
        Values::Any | Values::Path => format!("{key}=…"),
        Values::OneOf(values) => format!("{key}={}", values.join("|")),
    };
    sent.entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// The descriptors of the rule file that the last entry may match; none if that takes too long.
pub(super) fn ends<'s>(
    level: Level<'s>,
    entries: &[SentEntry],
    position: Position,
    findings: &mut Findings,
) -> Option<Vec<Candidate<'s>>> {
    let mut levels = vec![level];
    let mut ends: Vec<Candidate<'s>> = Vec::new();
    // Candidates whose rules reserve, with the number of entries after their own.
    let mut reserving: Vec<(Candidate<'s>, usize)> = Vec::new();
    for (key, values) in entries {
        let effort = |level: &Level<'_>| match values {
            Values::Any | Values::Path => level.size(),
            Values::OneOf(values) => values.len().saturating_mul(1 + level.wildcards()),
        };
        let effort = levels.iter().map(effort).fold(1 + reserving.len(), usize::saturating_add);
        if !findings.spend(position, effort) {
            return None;
        }
        let matches = |level: Level<'s>| match values {
            Values::Any | Values::Path => level.reachable(key),
            Values::OneOf(values) => values
                .iter()
                .filter_map(|value| level.matches((key, value)).into_iter().next())
                .collect(),
        };
        ends = levels.into_iter().flat_map(matches).collect();
        // Several values may match one descriptor.
        let mut seen = HashSet::new();
        ends.retain(|end| seen.insert(std::ptr::from_ref(end.origin)));
        if *values == Values::Path {
            for end in ends.iter().filter(|end| end.kind == MatchKind::Value) {
                findings.add_exact_path(end.origin, end.text);
            }
        }
        levels = ends.iter().map(|end| end.below).collect();
        let reserve = |end: &Candidate<'s>| end.rule.and_then(|rule| rule.reserve.as_deref());
        reserving.retain_mut(|(end, further)| {
            let is_next = reserve(end)
                .is_some_and(|reserve| reserve.next_key(*further) == Some(key.as_str()));
            *further += 1;
            is_next
        });
        ends.extend(reserving.iter().map(|(end, _)| *end));
        let new = ends.iter().take(levels.len()).filter(|end| reserve(end).is_some());
        reserving.extend(new.map(|end| (*end, 0)));
    }
    Some(ends)
}

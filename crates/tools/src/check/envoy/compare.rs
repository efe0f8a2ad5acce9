//! The last step of `weir check --envoy`: compares the descriptors that Envoy sends with the rules.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ptr;

use super::actions::{SentEntry, Values};
use super::ends::ends;
use super::filter::Sent;
use super::findings::Findings;
use super::quotas;
use weir_common::suggest::Suggester;
use weir_rules::{Candidate, Rule, RuleSet};

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
        let known = compared.entry((sent.domain.as_str(), sent.entries.as_slice(), sent.is_quota));
        let is_meant = match known {
            Entry::Occupied(is_meant) => *is_meant.get(),
            Entry::Vacant(new) => {
                let (level, position) = (domain.level(), sent.origin.position);
                let ends = match sent.is_quota {
                    true => quotas::ends(level, sent, findings),
                    false => ends(level, &sent.entries, position, findings),
                };
                let Some(ends) = ends else { return };
                reached.extend(ends.iter().filter_map(|end| end.rule).map(ptr::from_ref));
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
        } else if !reached.contains(&ptr::from_ref(rule)) {
            let message = format!("no action of Envoy sends what '{}' matches", rule.path());
            let help = "add actions for its entries, in this order, or remove the rule";
            findings.add_at(&rule.origin, message, "", help);
        }
    }
}

/// Returns a descriptor as `key=value`, with `…` for what a request decides.
fn describe(sent: &Sent) -> String {
    let entry = |(key, values): &SentEntry| match values {
        Values::Any | Values::Path => format!("{key}=…"),
        Values::OneOf(values) => format!("{key}={}", values.join("|")),
    };
    sent.entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

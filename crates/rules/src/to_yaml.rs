//! Writes compiled rules as rule files, from which an equal set is read.
//!
//! The files have what decides requests, as overlays have patched it: no comments, no anchors, and the keys
//! that have their defaults omitted.

mod flow;
mod limits;

use std::collections::HashSet;
use std::fmt::Write;

use crate::matcher::{Child, MatcherNode};
use crate::model::rule::Rule;
use crate::model::value_set::{Group, SetKind, ValueSet};
use crate::source::YAML_HEADER;
use crate::{Domain, RuleSet};
use flow::{FlowMap, text};

/// What comes before each document.
const SEPARATOR: &str = "---\n";

impl RuleSet {
    /// Returns the rules as YAML, one document for each domain, after [`YAML_HEADER`].
    pub fn to_yaml(&self) -> String {
        let mut out = YAML_HEADER.to_owned();
        for (name, domain) in self.domains_in_order() {
            out += SEPARATOR;
            write_domain(name, domain, &mut out);
        }
        out
    }

    /// Returns the rules of one domain as a rule file; none if there is no such domain.
    pub fn domain_to_yaml(&self, name: &str) -> Option<String> {
        let mut out = String::new();
        write_domain(name, self.domain(name)?, &mut out);
        Some(out)
    }

    /// Returns the domains in the order of their first rules, and then those without rules.
    fn domains_in_order(&self) -> Vec<(&str, &Domain)> {
        let mut seen = HashSet::new();
        let mut names: Vec<&str> =
            self.rules().map(Rule::domain).filter(|name| seen.insert(*name)).collect();
        let mut others: Vec<&str> =
            self.domains.keys().map(|name| &**name).filter(|name| !seen.contains(name)).collect();
        others.sort_unstable();
        names.append(&mut others);
        names.into_iter().filter_map(|name| Some((name, self.domain(name)?))).collect()
    }
}

fn write_domain(name: &str, domain: &Domain, out: &mut String) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "domain: {}", text(name));
    if domain.together {
        *out += "charge: together\n";
    }
    if let Some(policy) = domain.on_store_failure {
        let _ = writeln!(out, "on_store_failure: {}", policy.name());
    }
    write_descriptors(&domain.root, "", domain.together, out);
}

/// Writes the descriptors of a node, if it has any. `indent` is that of the key `descriptors`.
fn write_descriptors(node: &MatcherNode, indent: &str, together: bool, out: &mut String) {
    if node.children().is_empty() {
        return;
    }
    let _ = writeln!(out, "{indent}descriptors:");
    let keys = format!("{indent}  ");
    for child in node.children() {
        write_descriptor(child, &keys, together, out);
        write_descriptors(&child.below, &keys, together, out);
    }
}

/// Writes a descriptor without those below it. `keys` is the indent of its keys.
fn write_descriptor(child: &Child, keys: &str, together: bool, out: &mut String) {
    let (key, value) = child.entry();
    let indent = keys.strip_suffix("  ").unwrap_or(keys);
    let _ = writeln!(out, "{indent}- key: {}", text(key));
    match child.set.as_deref() {
        None if value.is_empty() => {}
        None => {
            let _ = writeln!(out, "{keys}value: {}", text(value));
        }
        Some(set) => write_set(set, value, keys, out),
    }
    let rule = child.rule.as_deref();
    let is_set = |get: fn(&Rule) -> bool| rule.is_some_and(get);
    for (name, is_set) in [
        ("share_threshold", child.flags.share_threshold),
        ("value_to_metric", child.flags.value_to_metric),
        ("detailed_metric", is_set(|rule| rule.detailed_metric)),
        ("shadow_mode", is_set(|rule| rule.shadow_mode)),
        ("quota_mode", is_set(|rule| rule.quota_mode)),
    ] {
        if is_set {
            let _ = writeln!(out, "{keys}{name}: true");
        }
    }
    let Some(rule) = rule else { return };
    if !rule.lease {
        let _ = writeln!(out, "{keys}lease: false");
    }
    if let Some(metadata) = &rule.metadata {
        let _ = writeln!(out, "{keys}metadata: {}", FlowMap::from(metadata));
    }
    limits::write(rule, keys, together, out);
}

/// Writes the network or the list of a descriptor. `value` stands for it in names.
fn write_set(set: &ValueSet, value: &str, keys: &str, out: &mut String) {
    let _ = match &set.kind {
        SetKind::Network(_) => writeln!(out, "{keys}network: {}", text(value)),
        SetKind::List(_) => {
            let file = value.strip_prefix('@').unwrap_or(value);
            writeln!(out, "{keys}values_file: {}", text(file))
        }
    };
    let Group { v4, v6 } = set.group;
    if set.group != Group::default() {
        let _ = writeln!(out, "{keys}group: {{ v4: {v4}, v6: {v6} }}");
    }
}

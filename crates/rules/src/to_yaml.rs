//! Writes compiled rules as YAML, for `/v1/rules?format=yaml`. An equal rule set is compiled from it.
//!
//! It has what decides requests, with the patches of overlays applied, but no comments, anchors and default values.

mod flow;

use std::collections::HashSet;
use std::fmt::Write;

use flow::{FlowMap, Text, list};

use crate::matcher::{Child, Domain, MatcherNode, RuleSet};
use crate::model::keys::limits::{ParameterValue, charges_denied_by_default, parameters};
use crate::model::reserve::{Reserve, default_at_most};
use crate::model::rule::Rule;
use crate::model::value_set::{Group, SetKind, ValueSet};
use crate::source::YAML_HEADER;
use weir_limit::{AlgorithmKind, Ban, Limit, Micros, SECOND};

impl RuleSet {
    /// Returns the rules as YAML, one document for each domain, after [`YAML_HEADER`].
    pub fn to_yaml(&self) -> String {
        let mut out = YAML_HEADER.to_owned();
        for (name, domain) in self.domains_in_order() {
            out += "---\n";
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
    let _ = writeln!(out, "domain: {}", Text(name));
    if domain.together {
        *out += "charge: together\n";
    }
    if let Some(policy) = domain.on_store_failure {
        let _ = writeln!(out, "on_store_failure: {}", policy.name());
    }
    write_descriptors(&domain.root, "", domain.together, out);
}

/// Writes the descriptors of a node, if it has any. `indent` comes before the key `descriptors`.
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
    let _ = writeln!(out, "{indent}- key: {}", Text(key));
    match child.set.as_deref() {
        None if value.is_empty() => {}
        None => {
            let _ = writeln!(out, "{keys}value: {}", Text(value));
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
    write_limits(rule, keys, together, out);
}

/// Writes the network, the values or the list of a descriptor. `value` stands for it in names.
fn write_set(set: &ValueSet, value: &str, keys: &str, out: &mut String) {
    let _ = match &set.kind {
        SetKind::Network(_) => writeln!(out, "{keys}network: {}", Text(value)),
        SetKind::Values(items) => {
            let items = items.iter().map(|item| Text(&item.text));
            writeln!(out, "{keys}values: {}", list(items))
        }
        SetKind::List(_) => {
            let file = value.strip_prefix('@').unwrap_or(value);
            writeln!(out, "{keys}values_file: {}", Text(file))
        }
    };
    let Group { v4, v6 } = set.group;
    if set.group != Group::default() {
        let _ = writeln!(out, "{keys}group: {{ v4: {v4}, v6: {v6} }}");
    }
}

/// Writes the limits of a rule, with its name and what it replaces, and how it reserves hits of them.
fn write_limits(rule: &Rule, indent: &str, together: bool, out: &mut String) {
    let limits = rule.limits();
    let replaces = replaces_of_each(rule, limits);
    let all: Vec<&str> = rule.replaces.iter().map(|name| &**name).collect();
    let reserves = rule.reserve.is_some();
    let _ = match limits {
        [] => {
            let mut map = FlowMap::default();
            map.add("unlimited", true);
            map.add_name(&rule.limit_name);
            map.add_replaces(&all);
            writeln!(out, "{indent}rate_limit: {map}")
        }
        [limit] if !limit.shadow_mode => {
            writeln!(out, "{indent}rate_limit: {}", limit_map(limit, &all, !together, reserves))
        }
        limits => {
            let _ = writeln!(out, "{indent}rate_limits:");
            limits.iter().zip(&replaces).try_for_each(|(limit, replaces)| {
                writeln!(out, "{indent}- {}", limit_map(limit, replaces, false, reserves))
            })
        }
    };
    if let Some(reserve) = &rule.reserve {
        write_reserve(reserve, limits, indent, out);
    }
    if let Some(ban) = rule.ban() {
        write_ban(ban, indent, out);
    }
}

/// Distributes what a rule replaces to its limits, in order: none may replace its own name.
fn replaces_of_each<'r>(rule: &'r Rule, limits: &[Limit]) -> Vec<Vec<&'r str>> {
    let mut of_each = vec![Vec::new(); limits.len()];
    let mut at = 0;
    for name in &rule.replaces {
        while at + 1 < limits.len() && limits[at].name == *name {
            at += 1;
        }
        if let Some(replaces) = of_each.get_mut(at) {
            replaces.push(&**name);
        }
    }
    of_each
}

fn write_reserve(reserve: &Reserve, limits: &[Limit], indent: &str, out: &mut String) {
    let Reserve { id, settle, estimate, at_least, at_most, timeout, has_own_id: _ } = reserve;
    let mut map = FlowMap::default();
    map.add("id", Text(id));
    if let Some(settle) = settle {
        map.add("settle", Text(settle));
    }
    if let Some(estimate) = estimate {
        map.add("estimate", estimate);
    }
    map.add_unless(1, "at_least", *at_least);
    map.add_unless(default_at_most(limits, *at_least, *estimate), "at_most", *at_most);
    if *timeout != Reserve::DEFAULT_TIMEOUT {
        map.add("timeout", duration(Micros::from(*timeout) * SECOND));
    }
    let _ = writeln!(out, "{indent}reserve: {map}");
}

fn write_ban(ban: &Ban, indent: &str, out: &mut String) {
    let Ban { after, within, lengths, forget } = ban;
    let mut map = FlowMap::default();
    map.add("after", after);
    map.add("within", duration(*within));
    let shown = lengths.iter().map(|length| duration(*length));
    map.add("for", if lengths.len() == 1 { shown.collect() } else { list(shown) });
    if *forget != Ban::default_forget(lengths) {
        map.add("forget", duration(*forget));
    }
    let _ = writeln!(out, "{indent}ban: {map}");
}

/// `is_alone`: the limit is in a `rate_limit` without `charge: together`. `reserves`: its rule reserves hits.
fn limit_map(limit: &Limit, replaces: &[&str], is_alone: bool, reserves: bool) -> FlowMap {
    let mut map = FlowMap::default();
    let (n, kind) = (limit.requests_per_unit, limit.algorithm.kind());
    map.add_name(&limit.name);
    if kind != AlgorithmKind::FixedWindow {
        map.add("algorithm", limit.algorithm.name());
    }
    match limit.unit {
        Some(unit) if limit.in_days => {
            map.add("period", duration(unit.period(limit.unit_multiplier).unwrap_or_default()));
        }
        Some(unit) => {
            map.add("unit", unit.name());
            map.add_unless(1, "unit_multiplier", limit.unit_multiplier);
        }
        None => {}
    }
    map.add("requests_per_unit", n);
    let mut parameters = parameters(limit);
    parameters.retain(|parameter| parameter.value != parameter.default);
    for parameter in &parameters {
        match parameter.value {
            ParameterValue::Number(number) => map.add(parameter.key, number),
            ParameterValue::Duration(time) => map.add(parameter.key, duration(time)),
            ParameterValue::Flag(flag) => map.add(parameter.key, flag),
            ParameterValue::Text(value) => map.add(parameter.key, Text(value.unwrap_or_default())),
        }
    }
    let has_hold_id = parameters.iter().any(|parameter| parameter.key == "hold_id");
    let default = charges_denied_by_default(kind, is_alone && !reserves, has_hold_id);
    map.add_unless(default, "charge_denied", limit.charge_denied);
    map.add_unless(false, "shadow_mode", limit.shadow_mode);
    map.add_replaces(replaces);
    map
}

/// Returns a duration that rule files read exactly: `90s`, `1s250000us`, `5ms`.
fn duration(time: Micros) -> String {
    match (time / SECOND, time % SECOND) {
        (0, micros) if micros % 1_000 == 0 => format!("{}ms", micros / 1_000),
        (0, micros) => format!("{micros}us"),
        (seconds, 0) => format!("{seconds}s"),
        (seconds, micros) => format!("{seconds}s{micros}us"),
    }
}

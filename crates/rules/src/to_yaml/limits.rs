//! The limits of a rule as YAML: `rate_limit`, or `rate_limits` where only these can say it.

use std::fmt::Write;

use super::flow::{FlowMap, text};
use crate::model::keys::limits::{ParameterValue, charges_denied_by_default, parameters};
use crate::model::reserve::{Reserve, default_at_most};
use crate::model::rule::Rule;
use weir_limit::{AlgorithmKind, Limit, Micros, SECOND};

/// Writes the limits of a rule, with its name and what it replaces, and how it reserves hits of them.
pub(super) fn write(rule: &Rule, indent: &str, together: bool, out: &mut String) {
    let limits = rule.plan.as_ref().map_or(&[][..], |plan| plan.limits());
    let replaces = replaces_of_each(rule, limits);
    let all: Vec<&str> = rule.replaces.iter().map(|name| &**name).collect();
    let reserves = rule.reserve.is_some();
    // Writing to a string cannot fail, here and below.
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

/// Writes how a rule reserves hits of its limits.
fn write_reserve(reserve: &Reserve, limits: &[Limit], indent: &str, out: &mut String) {
    let Reserve { id, settle, estimate, at_least, at_most, timeout, has_own_id: _ } = reserve;
    let mut map = FlowMap::default();
    map.add("id", text(id));
    if let Some(settle) = settle {
        map.add("settle", text(settle));
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

/// Returns the keys of a limit. `is_alone`: in a `rate_limit` without `charge: together`. `reserves`: its rule
/// does.
fn limit_map(limit: &Limit, replaces: &[&str], is_alone: bool, reserves: bool) -> FlowMap {
    let mut map = FlowMap::default();
    let (n, kind) = (limit.requests_per_unit, limit.algorithm.kind());
    map.add_name(&limit.name);
    if kind != AlgorithmKind::FixedWindow {
        map.add("algorithm", limit.algorithm.name());
    }
    if let Some(unit) = limit.unit {
        map.add("unit", unit.name());
        map.add_unless(1, "unit_multiplier", limit.unit_multiplier);
    }
    map.add("requests_per_unit", n);
    let mut parameters = parameters(limit);
    parameters.retain(|parameter| parameter.value != parameter.default);
    for parameter in &parameters {
        match parameter.value {
            ParameterValue::Number(number) => map.add(parameter.key, number),
            ParameterValue::Duration(time) => map.add(parameter.key, duration(time)),
            ParameterValue::Flag(flag) => map.add(parameter.key, flag),
            ParameterValue::Text(value) => map.add(parameter.key, text(value.unwrap_or_default())),
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

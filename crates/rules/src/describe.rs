//! Rules as the debug pages and `weir check` show them.

use serde_json::{Map, Value, json};

use super::position::Position;
use super::{Domain, Rule, RuleSet};
use weir_limit::{Algorithm, FixedWindow, Limit, Parameter, SECOND};

impl RuleSet {
    /// Returns all rules as JSON, one a line, in the order of the files.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"rules\":[");
        for (i, rule) in self.rules().enumerate() {
            out += if i > 0 { ",\n" } else { "\n" };
            let mut json = rule.to_json();
            if let Some(domain) = self.domain(rule.domain()) {
                json["share_threshold"] = domain.root.share_thresholds(rule.entries()).into();
                json["charge"] = if domain.together { "together" } else { "each" }.into();
                json["on_store_failure"] =
                    domain.on_store_failure.map(|policy| policy.name()).into();
            }
            out += &json.to_string();
        }
        out + "\n]}\n"
    }
}

impl Rule {
    /// Returns the limits in words.
    pub fn limits_text(&self) -> String {
        match &self.plan {
            None => "unlimited".to_owned(),
            Some(plan) => {
                plan.limits().iter().map(Limit::to_string).collect::<Vec<_>>().join(" + ")
            }
        }
    }

    /// Returns the rule as JSON, with the names of rule files.
    pub fn to_json(&self) -> Value {
        let limits = self.plan.iter().flat_map(|plan| plan.limits());
        let entries = self.entries().map(|(key, value)| json!({ "key": key, "value": value }));
        let mut json = json!({
            "domain": self.domain(),
            "rule": self.path(),
            "entries": entries.collect::<Vec<_>>(),
            "file": &*self.origin.file,
            "line": self.origin.position.line(),
            "column": Position::column(self.origin.position),
            "unlimited": self.plan.is_none(),
            "limits": limits.map(limit_json).collect::<Vec<_>>(),
            "name": self.limit_name(0),
            "replaces": self.replaces,
            "shadow_mode": self.shadow_mode,
            "quota_mode": self.quota_mode,
            "detailed_metric": self.detailed_metric,
            "value_to_metric": self.value_to_metric,
            "metadata": self.metadata,
        });
        if !self.patches.is_empty() {
            json["patches"] = self.patches.iter().map(ToString::to_string).collect();
        }
        json
    }
}

fn limit_json(limit: &Limit) -> Value {
    let mut json = Map::new();
    let mut add = |key: &str, value: Value| drop(json.insert(key.to_owned(), value));
    add("requests_per_unit", limit.requests_per_unit.into());
    add("unit", limit.unit.map(|unit| unit.name()).into());
    add("unit_multiplier", limit.unit_multiplier.into());
    add("algorithm", limit.algorithm.name().into());
    add("charge_denied", limit.charge_denied.into());
    add("shadow_mode", limit.shadow_mode.into());
    add("name", (*limit.name).into());
    limit.algorithm.parameters(&mut |key, value| {
        let value = match value {
            Parameter::Number(number) => number.into(),
            Parameter::Duration(time) => (time as f64 / SECOND as f64).into(),
            Parameter::Flag(flag) => flag.into(),
            Parameter::Text(text) => text.into(),
        };
        add(key, value);
    });
    Value::Object(json)
}

/// Returns what a rule has that the reference's line about it cannot show; empty if nothing.
pub(super) fn extensions(rule: &Rule, domain: Option<&Domain>) -> String {
    let mut out = String::new();
    let limits = rule.plan.as_ref().map_or(&[][..], |plan| plan.limits());
    if !matches!(limits, [] | [_]) || !limits.iter().all(is_of_the_reference) {
        let limits: Vec<String> = limits.iter().map(limit_text).collect();
        out += &format!(", limits: {}", limits.join(" + "));
    }
    if let Some(domain) = domain {
        if domain.together {
            out += ", charge: together";
        }
        if let Some(policy) = domain.on_store_failure {
            out += &format!(", on_store_failure: {}", policy.name());
        }
    }
    out
}

/// Whether the reference knows every key of the limit.
fn is_of_the_reference(limit: &Limit) -> bool {
    let of_epoch = |window: &FixedWindow| window.calendar.is_none();
    limit.unit.is_some()
        && limit.unit_multiplier == 1
        && limit.charge_denied
        && !limit.shadow_mode
        && matches!(&limit.algorithm, Algorithm::FixedWindow(window) if of_epoch(window))
}

fn limit_text(limit: &Limit) -> String {
    let is_fixed = matches!(limit.algorithm, Algorithm::FixedWindow(_));
    match limit.charge_denied == is_fixed {
        true => limit.to_string(),
        false => format!("{limit}, charge_denied: {}", limit.charge_denied),
    }
}

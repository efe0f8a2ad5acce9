//! The output of `weir check --output json`.

use serde_json::json;

use super::MANY_WILDCARDS;
use crate::rules::{Loaded, Origin, Position, Problem, Rule};

/// Returns the rules and problems as JSON.
pub(super) fn as_json(loaded: &Loaded) -> serde_json::Value {
    json!({
        "ok": loaded.is_good(),
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "omitted": { "errors": loaded.omitted.errors, "warnings": loaded.omitted.warnings },
        "rules": match loaded.is_good() {
            true => loaded.rules.rules().map(rule_json).collect::<Vec<_>>(),
            false => Vec::new(),
        },
        "many_wildcards": loaded.rules.wildcards(MANY_WILDCARDS).iter()
            .map(|(node, count)| json!({ "node": node, "wildcards": count }))
            .collect::<Vec<_>>(),
    })
}

fn problem_json(problem: &Problem) -> serde_json::Value {
    json!({
        "severity": if problem.is_error() { "error" } else { "warning" },
        "file": problem.file,
        "line": problem.position.and_then(Position::line),
        "column": problem.position.and_then(Position::column),
        "message": problem.message,
        "text": problem.text,
        "first": problem.first.as_deref().map(origin_json),
        "help": problem.help,
    })
}

fn origin_json(Origin { file, position }: &Origin) -> serde_json::Value {
    json!({ "file": &**file, "line": position.line(), "column": position.column() })
}

fn rule_json(rule: &Rule) -> serde_json::Value {
    let limits = rule.plan.iter().flat_map(|plan| plan.limits()).map(|limit| {
        json!({
            "requests_per_unit": limit.requests_per_unit,
            "unit": limit.unit.map(|unit| unit.name()),
            "unit_multiplier": limit.unit_multiplier,
            "algorithm": limit.algorithm.name(),
            "charge_denied": limit.charge_denied,
            "shadow_mode": limit.shadow_mode,
            "name": limit.name,
        })
    });
    json!({
        "domain": rule.domain(),
        "rule": rule.path(),
        "file": &*rule.origin.file,
        "line": rule.origin.position.line(),
        "unlimited": rule.plan.is_none(),
        "limits": limits.collect::<Vec<_>>(),
        "name": rule.limit_name(0),
        "replaces": rule.replaces,
        "shadow_mode": rule.shadow_mode,
        "quota_mode": rule.quota_mode,
        "detailed_metric": rule.detailed_metric,
        "value_to_metric": rule.value_to_metric,
        "metadata": rule.metadata,
    })
}

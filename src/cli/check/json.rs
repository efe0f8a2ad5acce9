//! The output of `weir check --output json`.

use serde_json::json;

use weir_rules::{Loaded, Position, Problem, Rule, SourceFile};

/// Returns the rules and problems as JSON.
pub(super) fn as_json(loaded: &Loaded<SourceFile>, is_good: bool) -> serde_json::Value {
    json!({
        "ok": is_good,
        "problems": loaded.problems.iter().map(problem_json).collect::<Vec<_>>(),
        "omitted": { "errors": loaded.omitted.errors, "warnings": loaded.omitted.warnings },
        "rules": match loaded.is_good() {
            true => loaded.rules.rules().map(Rule::describe).collect::<Vec<_>>(),
            false => Vec::new(),
        },
    })
}

/// Returns a problem as JSON.
fn problem_json(problem: &Problem) -> serde_json::Value {
    json!({
        "severity": if problem.is_error() { "error" } else { "warning" },
        "file": problem.file,
        "line": problem.position.and_then(Position::line),
        "column": problem.position.and_then(Position::column),
        "message": problem.message,
        "text": problem.text,
        "first": problem.first,
        "help": problem.help,
    })
}

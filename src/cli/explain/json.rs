//! `weir explain --output json`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::explained::{Explained, ExplainedDescriptor, ExplainedStep, kind_name, line_column};
use crate::escape::escape;
use crate::rules::{Candidate, Rule};

/// Prints the explanation as JSON, without any control character.
pub(super) fn print(explained: &Explained<'_>, out: &mut impl Write) -> io::Result<()> {
    let json = json!({
        "domain": explained.domain,
        "descriptors": explained.descriptors.iter().map(descriptor).collect::<Vec<_>>(),
    });
    format!("{json:#}").lines().try_for_each(|line| writeln!(out, "{}", escape(line)))
}

fn descriptor(explained: &ExplainedDescriptor<'_>) -> Value {
    let entries = explained.entries.iter();
    let steps = std::iter::zip(&explained.entries, &explained.steps);
    let near = explained.near.iter();
    json!({
        "entries": entries.map(|(key, value)| json!({ "key": key, "value": value })).collect::<Vec<_>>(),
        "matched": explained.is_matched(),
        "steps": steps.map(|(entry, found)| step(entry, found)).collect::<Vec<_>>(),
        "rule": explained.rule.map(Rule::to_json),
        "replaced_by": explained.replaced_by.map(|(index, rule)| json!({
            "descriptor": index,
            "rule": rule.path(),
        })),
        "sent_limit": explained.sent.as_ref().map(ToString::to_string),
        "limits": explained.rule.iter().filter_map(|rule| rule.plan.as_ref())
            .flat_map(|plan| plan.limits()).map(ToString::to_string).collect::<Vec<_>>(),
        "key": explained.key,
        "share_threshold": explained.share_threshold,
        "metric": explained.metric,
        "quota": explained.is_quota,
        "near_misses": near
            .map(|near| json!({ "kind": near.kind, "message": near.message }))
            .collect::<Vec<_>>(),
    })
}

fn step((key, value): &(String, String), step: &ExplainedStep<'_>) -> Value {
    json!({
        "key": key,
        "value": value,
        "matched": step.matched.map(candidate),
        "later": step.later.iter().copied().map(candidate).collect::<Vec<_>>(),
        "wildcards_tried": step.wildcards_tried,
    })
}

fn candidate(candidate: Candidate<'_>) -> Value {
    let (line, column) = line_column(candidate.origin.position);
    json!({
        "descriptor": candidate.text,
        "by": kind_name(candidate.kind),
        "file": &*candidate.origin.file,
        "line": line,
        "column": column,
        "has_limit": candidate.rule.is_some(),
        "share_threshold": candidate.share_threshold,
    })
}

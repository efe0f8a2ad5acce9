//! An explanation as JSON.

use serde_json::{Value, json};

use super::{Explained, ExplainedDescriptor, ExplainedStep};
use weir_rules::{Candidate, MatchKind, Origin, Position, Rule};

impl Explained<'_> {
    /// Returns all of it as JSON.
    pub fn to_json(&self) -> Value {
        let mut descriptors = Vec::with_capacity(self.descriptors.len());
        for explained in &self.descriptors {
            let mut json = descriptor(explained);
            if let Some(domain) = self.rules.filter(|_| explained.rule.is_some()) {
                let patches = explained.rule.iter().flat_map(|rule| rule.patches.iter());
                let patches = patches.chain(domain.patches.iter()).map(ToString::to_string);
                json["patches"] = patches.collect();
                json["charge"] = if domain.together { "together" } else { "each" }.into();
            }
            descriptors.push(json);
        }
        json!({ "domain": self.domain, "descriptors": descriptors })
    }
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
        "replaced_by": explained.replaced_by.map(|(index, rule)| {
            let mut json = place(&rule.origin);
            json["descriptor"] = index.into();
            json["rule"] = rule.path().into();
            json
        }),
        "control": explained.effect.map(|effect| effect.control()),
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
    let mut json = place(candidate.origin);
    json["descriptor"] = candidate.text.into();
    json["by"] = kind_name(candidate.kind).into();
    json["has_limit"] = candidate.rule.is_some().into();
    json["share_threshold"] = candidate.share_threshold.into();
    json
}

fn place(origin: &Origin) -> Value {
    json!({
        "file": &*origin.file,
        "line": origin.position.line(),
        "column": Position::column(origin.position),
    })
}

/// A machine-readable name of how an entry matched.
fn kind_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Value => "value",
        MatchKind::Wildcard => "wildcard",
        MatchKind::Key => "key",
    }
}

//! What applies to the descriptors of a request, in full: which rule each matches and why, its limits and
//! its key, and what a control does to it. `weir explain` and `GET /v1/explain` show it.

mod live;
mod near;
#[cfg(test)]
mod tests;

pub use self::live::LiveDescriptor;

use serde::{Deserialize, Serialize};

use self::near::describe;
use crate::applied::{Applied, applied};
use crate::controls::{ActiveView, Control};
use crate::{Descriptor, Request};
use weir_common::entry::OwnedEntry;
use weir_limit::Limit;
use weir_rules::{Candidate, MatchKind, Origin, ReserveStep, Rule, RuleDescription, Step};

/// An explained request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained<D = ExplainedDescriptor> {
    pub domain: String,
    pub descriptors: Vec<D>,
}

/// An explained descriptor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedDescriptor {
    pub entries: Vec<OwnedEntry>,
    /// Whether a rule applies to it, or would but for another rule of the request.
    pub matched: bool,
    pub steps: Vec<ExplainedStep>,
    /// The rule that all entries match, replaced or not.
    pub rule: Option<RuleDescription>,
    /// The rule of the request that replaces it.
    pub replaced_by: Option<ReplacedBy>,
    pub control: Option<Control>,
    /// The limits of the rule, in words.
    pub limits: Vec<String>,
    /// The key in Redis.
    pub key: Option<String>,
    /// Whether a pattern replaces a value in the key.
    pub share_threshold: bool,
    /// The name in metrics, with the domain.
    pub metric: Option<String>,
    pub quota: bool,
    /// The rules that the descriptor was probably meant to match.
    pub near_misses: Vec<Near>,
    /// The places of the patches of the rule and of its domain; none without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<Vec<String>>,
    /// `together` or `each`; none without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
}

/// The look-up of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedStep {
    #[serde(flatten)]
    pub entry: OwnedEntry,
    pub matched: Option<ExplainedCandidate>,
    /// What matches too, with a lower precedence.
    pub later: Vec<ExplainedCandidate>,
    /// The part of an entry in a reservation, if it comes after those of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReserveStep>,
}

/// A descriptor of the rules that an entry matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedCandidate {
    #[serde(flatten)]
    pub origin: Origin,
    /// `key` or `key_value`.
    pub descriptor: String,
    pub by: MatchKind,
    pub has_limit: bool,
    pub share_threshold: bool,
    /// Where the network or the list of the descriptor has the value: `10.0.0.0/8 of lists/blocked.txt:17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A rule that replaces another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedBy {
    #[serde(flatten)]
    pub origin: Origin,
    /// The index of the descriptor that it matches.
    pub descriptor: usize,
    /// The path of the rule.
    pub rule: String,
}

/// A near miss, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Near {
    pub kind: String,
    pub message: String,
}

/// Explains a request whose descriptors have no limits of their own. `key_prefix` is that of keys in Redis.
///
/// # Errors
///
/// A descriptor has an invalid limit.
pub fn explain<'s>(
    active: impl Into<ActiveView<'s>>,
    request: &Request<'_>,
    key_prefix: &str,
) -> Result<Explained, String> {
    let active = active.into();
    let rules = active.rules;
    let domain = rules.domain(request.domain);
    let all = applied(active, request, key_prefix)
        .map_err(|(i, why)| format!("descriptor {} has an invalid limit: {why}", i + 1))?;
    let find = |descriptor: &Descriptor<'_>| Some(domain?.find(descriptor.entries)?.rule);
    let found: Vec<Option<&Rule>> = request.descriptors.iter().map(find).collect();
    let descriptors = std::iter::zip(request.descriptors, all).zip(&found);
    let descriptors = descriptors.map(|((descriptor, applied), rule)| {
        let Applied { rule: used, effect, key, metric_path, is_quota, .. } = applied;
        let entries = descriptor.entries;
        let trace = domain.map(|domain| domain.trace(entries)).unwrap_or_default();
        let replaced_by = rule.filter(|_| used.is_none()).and_then(|rule| {
            let replaces = |other: &Rule| {
                let names: Vec<&str> = other.replaces.iter().map(AsRef::as_ref).collect();
                rule.is_named_by(&names)
            };
            let others = found.iter().enumerate().filter_map(|(i, other)| Some((i, (*other)?)));
            others.into_iter().find(|(_, other)| replaces(other))
        });
        let replaced_by = replaced_by.map(|(descriptor, rule)| ReplacedBy {
            origin: rule.origin.clone(),
            descriptor,
            rule: rule.path().to_owned(),
        });
        let near = match rule {
            None => rules.near_misses(request.domain, entries),
            Some(_) => Vec::new(),
        };
        let shares = |step: &Step<'_>| step.matched.is_some_and(|matched| matched.share_threshold);
        let limits = rule.iter().filter_map(|rule| rule.plan.as_ref());
        let of_domain = domain.zip(*rule);
        ExplainedDescriptor {
            entries: OwnedEntry::copied(entries.iter().copied()),
            matched: rule.is_some(),
            share_threshold: trace.steps.iter().any(shares),
            steps: std::iter::zip(entries, trace.steps)
                .map(|(entry, step)| ExplainedStep {
                    entry: (*entry).into(),
                    matched: step.matched.map(candidate),
                    later: step.later.into_iter().map(candidate).collect(),
                    reserve: step.reserve,
                })
                .collect(),
            rule: rule.map(Rule::describe),
            replaced_by,
            control: effect.map(|effect| effect.control().clone()),
            limits: limits.flat_map(|plan| plan.limits()).map(Limit::to_string).collect(),
            key,
            metric: metric_path.map(|path| format!("{}.{path}", request.domain)),
            quota: is_quota,
            near_misses: near
                .into_iter()
                .map(|near| describe(near, request.domain, entries))
                .collect(),
            patches: of_domain.map(|(domain, rule)| {
                rule.patches.iter().chain(domain.patches.iter()).map(ToString::to_string).collect()
            }),
            charge: of_domain.map(|(domain, _)| domain.charge().to_owned()),
        }
    });
    Ok(Explained { domain: request.domain.to_owned(), descriptors: descriptors.collect() })
}

fn candidate(candidate: Candidate<'_>) -> ExplainedCandidate {
    ExplainedCandidate {
        origin: candidate.origin.clone(),
        descriptor: candidate.text.to_owned(),
        by: candidate.kind,
        has_limit: candidate.rule.is_some(),
        share_threshold: candidate.share_threshold,
        within: candidate.within.map(|within| within.to_string()),
    }
}

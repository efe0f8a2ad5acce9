//! What applies to the descriptors of a request, in full: which rule each matches and why, its limits and
//! its key, and what a control does to it. `weir explain` and `GET /v1/explain` show it.

mod json;
mod live;
mod near;
#[cfg(test)]
mod tests;

pub use self::live::explain_live;

use self::near::describe;
use crate::controls::{ActiveView, Effect};
use crate::{Applied, Request, applied};
use weir_limit::Limit;
use weir_rules::{Candidate, Domain, Rule};

/// An explained request.
#[derive(Debug)]
pub struct Explained<'s> {
    pub domain: String,
    /// None if there are no rules for it.
    pub rules: Option<&'s Domain>,
    pub descriptors: Vec<ExplainedDescriptor<'s>>,
}

/// An explained descriptor.
#[derive(Debug)]
pub struct ExplainedDescriptor<'s> {
    pub entries: Vec<(String, String)>,
    pub steps: Vec<ExplainedStep<'s>>,
    /// The rule that all entries match, replaced or not.
    pub rule: Option<&'s Rule>,
    /// What a control does to it.
    pub effect: Option<Effect<'s>>,
    /// The rule of the request that replaces it, and the index of that one's descriptor.
    pub replaced_by: Option<(usize, &'s Rule)>,
    /// The limit that was sent with the descriptor, which is used instead of the rules.
    pub sent: Option<Limit>,
    /// The key in Redis.
    pub key: Option<String>,
    /// Whether a pattern replaces a value in the key.
    pub share_threshold: bool,
    /// The name in metrics, with the domain.
    pub metric: Option<String>,
    pub is_quota: bool,
    /// What it was probably meant to match.
    pub near: Vec<Near>,
}

/// The look-up of one entry.
#[derive(Debug)]
pub struct ExplainedStep<'s> {
    pub matched: Option<Candidate<'s>>,
    pub later: Vec<Candidate<'s>>,
    pub wildcards_tried: usize,
}

/// A near miss, in words.
#[derive(Debug)]
pub struct Near {
    pub kind: &'static str,
    pub message: String,
}

impl ExplainedDescriptor<'_> {
    /// Whether a rule or a limit of its own applies to it, or would but for another rule of the request.
    pub fn is_matched(&self) -> bool {
        self.rule.is_some() || self.sent.is_some()
    }
}

/// Explains a request. `key_prefix` is that of keys in Redis.
///
/// # Errors
///
/// A descriptor has an invalid limit.
pub fn explain<'s>(
    active: impl Into<ActiveView<'s>>,
    request: &Request<'_>,
    key_prefix: &str,
) -> Result<Explained<'s>, String> {
    let active = active.into();
    let rules = active.rules;
    let domain = rules.domain(request.domain);
    let all = applied(active, request)
        .map_err(|(i, why)| format!("descriptor {} has an invalid limit: {why}", i + 1))?;
    let found: Vec<Option<&Rule>> = request
        .descriptors
        .iter()
        .map(|descriptor| match descriptor.limit {
            Some(_) => None,
            None => domain?.find(descriptor.entries).map(|found| found.rule),
        })
        .collect();
    let descriptors = std::iter::zip(request.descriptors, all).zip(&found);
    let descriptors = descriptors.map(|((descriptor, applied), rule)| {
        let Applied { rule: used, effect, plan, key, metric_path, is_quota } = applied;
        let entries = descriptor.entries;
        let sent = descriptor.limit.and(plan.as_ref()).and_then(|plan| plan.limits().first());
        let trace = match (domain, &sent) {
            (Some(domain), None) => domain.trace(entries),
            _ => Default::default(),
        };
        let replaced_by = rule.filter(|_| used.is_none()).and_then(|rule| {
            let replaces = |other: &Rule| {
                let names: Vec<&str> = other.replaces.iter().map(AsRef::as_ref).collect();
                rule.is_named_by(&names)
            };
            let others = found.iter().enumerate().filter_map(|(i, other)| Some((i, (*other)?)));
            others.into_iter().find(|(_, other)| replaces(other))
        });
        let near = match (rule, &sent) {
            (None, None) => rules.near_misses(request.domain, entries),
            _ => Vec::new(),
        };
        ExplainedDescriptor {
            entries: entries
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            share_threshold: trace
                .steps
                .iter()
                .any(|step| step.matched.is_some_and(|matched| matched.share_threshold)),
            steps: trace
                .steps
                .into_iter()
                .map(|step| ExplainedStep {
                    matched: step.matched,
                    later: step.later,
                    wildcards_tried: step.wildcards_tried,
                })
                .collect(),
            rule: *rule,
            effect,
            replaced_by,
            sent: sent.cloned(),
            key: key.map(|key| format!("{key_prefix}{key}")),
            metric: metric_path.map(|path| format!("{}.{path}", request.domain)),
            is_quota,
            near: near.into_iter().map(|near| describe(near, request.domain, entries)).collect(),
        }
    });
    let descriptors = descriptors.collect();
    Ok(Explained { domain: request.domain.to_owned(), rules: domain, descriptors })
}

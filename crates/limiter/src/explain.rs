//! What applies to the descriptors of a request: which rule each matches and why, its limits and its key, and what a
//! control (an operator's block, allow or limit) does; without a rule, what was probably meant. `GET /v1/explain` adds
//! what the keys have counted.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::applied::{Applied, applied};
use crate::inspect::ReadState;
use crate::limiter::Limiter;
use crate::request::{Descriptor, Request};
use weir_common::descriptor::descriptor_text;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::value;
use weir_controls::{ActiveView, Control};
use weir_limit::Limit;
use weir_rules::{
    Candidate, MatchKind, NearMiss, Origin, ReserveStep, Rule, RuleDescription, TraceStep,
};
use weir_store::States;

/// An explained request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explained<D = ExplainedDescriptor> {
    /// The domain of the request.
    pub domain: String,
    /// One for each descriptor, in order.
    pub descriptors: Vec<D>,
}

/// An explained descriptor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedDescriptor {
    /// The entries as they were sent.
    pub entries: Vec<OwnedEntry>,
    /// Whether a rule applies to it, or would but for another rule of the request.
    pub matched: bool,
    /// The look-up of its entries, in order.
    pub steps: Vec<ExplainedStep>,
    /// The rule that all entries match, replaced or not.
    pub rule: Option<RuleDescription>,
    /// The rule of the request that replaces it.
    pub replaced_by: Option<ReplacedBy>,
    /// The control that decides about it, or changes its limit.
    pub control: Option<Control>,
    /// The limits of the rule, in words.
    pub limits: Vec<String>,
    /// The key in Redis.
    pub key: Option<String>,
    /// Whether a pattern replaces a value in the key.
    pub share_threshold: bool,
    /// The name in metrics, with the domain.
    pub metric: Option<String>,
    /// Whether it counts as a quota.
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
    /// The entry.
    #[serde(flatten)]
    pub entry: OwnedEntry,
    /// The descriptor of the rules that it matches.
    pub matched: Option<ExplainedCandidate>,
    /// What matches too, with a lower precedence.
    pub later: Vec<ExplainedCandidate>,
    /// The list whose name the value is, if it is none of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_name: Option<String>,
    /// The part of an entry in a reservation, if it comes after those of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReserveStep>,
}

/// A descriptor of the rules that an entry matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedCandidate {
    /// Where the descriptor is written.
    #[serde(flatten)]
    pub origin: Origin,
    /// `key` or `key_value`.
    pub descriptor: String,
    /// How it matches.
    pub by: MatchKind,
    /// Whether a rule is on this level.
    pub has_limit: bool,
    /// Whether all values that it matches count together.
    pub share_threshold: bool,
    /// Where the network or the list of the descriptor has the value: `10.0.0.0/8 of lists/blocked.txt:17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// A rule that replaces another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedBy {
    /// Where the rule is written.
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
    /// The kind of the near miss.
    pub kind: String,
    /// What is near, and what to write.
    pub message: String,
}

const MAX_NEAR_RULES: usize = 20;

/// Explains a request whose descriptors have no limits of their own. With `near`, the near misses of a descriptor have
/// up to 20 rules whose first entry it has, too. `key_prefix` is that of keys in Redis.
pub fn explain<'s>(
    active: impl Into<ActiveView<'s>>,
    request: &Request<'_>,
    near: bool,
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
        let misses = rule.is_none().then(|| rules.near_misses(request.domain, entries));
        let misses = misses.into_iter().flatten();
        let misses = misses.map(|miss| describe(miss, request.domain, entries));
        let first = domain.zip(entries.first()).filter(|_| near && rule.is_none()).into_iter();
        let near_rules = first.flat_map(|(domain, first)| domain.level().rules_of(*first));
        let near_rules = near_rules.take(MAX_NEAR_RULES).map(|rule| {
            let (path, origin, limits) = (rule.path(), &rule.origin, rule.limits_text());
            let message = format!("the first entry leads to '{path}' ({origin}): {limits}");
            Near { kind: "first_entry".to_owned(), message }
        });
        let shares =
            |step: &TraceStep<'_>| step.matched.is_some_and(|matched| matched.share_threshold);
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
                    list_name: step.list_name.map(str::to_owned),
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
            near_misses: misses.chain(near_rules).collect(),
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

fn describe(near: NearMiss<'_>, domain: &str, entries: &[Entry<'_>]) -> Near {
    let entry = |at: usize| descriptor_text(&[entries[at]]);
    let list = |order: &[usize]| order.iter().map(|&at| entry(at)).collect::<Vec<_>>().join(",");
    let (kind, message) = match near {
        NearMiss::Domain(near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            ("domain", format!("there are no rules for the domain '{domain}'{near}"))
        }
        NearMiss::Exempt(end) => (
            "exempt",
            format!("'{}' ({}) has no limit: this descriptor is exempt", end.text, end.origin),
        ),
        NearMiss::MoreEntries(end) => {
            let next: Vec<String> =
                end.below.texts().take(3).map(|(text, _)| format!("'{text}'")).collect();
            let (text, origin, next) = (end.text, end.origin, next.join(", "));
            ("depth", format!("the rules below '{text}' ({origin}) need one more entry: {next}"))
        }
        NearMiss::FewerEntries(at, end) => {
            let (text, origin, count) = (end.text, end.origin, entries.len() - at - 1);
            let more = if count == 1 { "1 entry" } else { &format!("{count} entries") };
            let why = format!("has no rules below it: the descriptor has {more} too many");
            ("depth", format!("'{text}' ({origin}) {why}"))
        }
        NearMiss::Reserve(at, rule, key) => {
            let (path, origin, sent) = (rule.path(), &rule.origin, entries[at].0);
            let next = format!("comes one with the key '{key}', not '{sent}'");
            let message =
                format!("after the entries of '{path}' ({origin}), which reserves hits, {next}");
            ("key", message)
        }
        NearMiss::Key(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let place = if at == 0 { "the first level" } else { "this level" };
            ("key", format!("no rule on {place} has the key '{}'{near}", entries[at].0))
        }
        NearMiss::Value(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let (key, value) = (entries[at].0, value::shown(entries[at].1));
            ("value", format!("rules have the key '{key}', but not the value '{value}'{near}"))
        }
        NearMiss::Order(order, rule) => {
            ("order", format!("in another order it matches '{}': {}", rule.path(), list(&order)))
        }
        NearMiss::Subset(order, rule) => {
            ("depth", format!("with fewer entries it matches '{}': {}", rule.path(), list(&order)))
        }
        NearMiss::NotTried(at, candidate, rule) => {
            let (text, origin, entry) = (candidate.text, candidate.origin, entry(at));
            let leads = match rule.path() == text {
                true => String::new(),
                false => format!(" and leads to '{}'", rule.path()),
            };
            let message = format!(
                "'{text}' ({origin}) matches {entry} too{leads}, but only the first match counts"
            );
            ("first_match", message)
        }
        NearMiss::OtherDomain(rule) => {
            let (domain, path, origin) = (rule.domain(), rule.path(), &rule.origin);
            ("domain", format!("in the domain '{domain}' it matches '{path}' ({origin})"))
        }
    };
    Near { kind: kind.to_owned(), message }
}

/// The most descriptors of one explanation: each reads a key of its own.
const MAX_DESCRIPTORS: usize = 16;

/// A descriptor that a running service explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveDescriptor {
    /// The descriptor without its state.
    #[serde(flatten)]
    pub explained: ExplainedDescriptor,
    /// What is counted for a request with this descriptor alone; none if nothing is.
    pub state: Option<ReadState>,
    /// The entries as denials show them, with hashes in place of secret values; none if rule files explain it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<OwnedEntry>,
}

impl<S: States> Limiter<S> {
    /// Explains a request with these descriptors, as [`explain`] does, and reads what the key of each has counted.
    /// Changes nothing. Ends within `timeout`. Failures of the store are part of the result.
    ///
    /// # Errors
    /// The domain is empty, or there are no descriptors or too many; the error is one for the client.
    pub async fn explain<'s>(
        &self,
        active: impl Into<ActiveView<'s>>,
        (domain, descriptors): (&str, &[Vec<Entry<'_>>]),
        near: bool,
        timeout: Duration,
    ) -> Result<Explained<LiveDescriptor>, String> {
        let (active, end) = (active.into(), Instant::now() + timeout);
        if domain.is_empty() {
            return Err("the domain is empty".to_owned());
        }
        if !(1..=MAX_DESCRIPTORS).contains(&descriptors.len()) {
            let count = descriptors.len();
            return Err(format!("there are {count} descriptors: write 1 to {MAX_DESCRIPTORS}"));
        }
        let descriptors: Vec<Descriptor<'_>> = descriptors
            .iter()
            .map(|entries| Descriptor { entries, ..Descriptor::default() })
            .collect();
        let request = Request { domain, descriptors: &descriptors, ..Request::default() };
        let Explained { domain, descriptors: explained } =
            explain(active, &request, near, &self.options.key_prefix)?;
        let mut live = Vec::with_capacity(explained.len());
        for (descriptor, explained) in std::iter::zip(&descriptors, explained) {
            let rest = end.saturating_duration_since(Instant::now());
            let state = match explained.key {
                Some(_) => {
                    Some(self.inspect(active, &domain, descriptor, &[], rest).await?.describe())
                }
                None => None,
            };
            let (shown, _) = self.denials.shown(descriptor.entries);
            live.push(LiveDescriptor { explained, state, shown });
        }
        Ok(Explained { domain, descriptors: live })
    }
}

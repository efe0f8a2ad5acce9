//! What applies to the descriptors of a request, in full.

use crate::limit::Limit;
use crate::limiter::{Applied, Request, applied};
use crate::rules::{Candidate, Domain, MatchKind, NearMiss, Position, Rule, RuleSet};

/// An explained request.
pub(super) struct Explained<'s> {
    pub domain: String,
    /// None if there are no rules for it.
    pub rules: Option<&'s Domain>,
    pub descriptors: Vec<ExplainedDescriptor<'s>>,
}

pub(super) struct ExplainedDescriptor<'s> {
    pub entries: Vec<(String, String)>,
    pub steps: Vec<ExplainedStep<'s>>,
    /// The rule that all entries match, replaced or not.
    pub rule: Option<&'s Rule>,
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
pub(super) struct ExplainedStep<'s> {
    pub matched: Option<Candidate<'s>>,
    pub later: Vec<Candidate<'s>>,
    pub wildcards_tried: usize,
}

/// A near miss, in words.
pub(super) struct Near {
    pub kind: &'static str,
    pub message: String,
}

impl ExplainedDescriptor<'_> {
    /// Whether a rule or a limit of its own applies to it, or would but for another rule of the request.
    pub fn is_matched(&self) -> bool {
        self.rule.is_some() || self.sent.is_some()
    }
}

/// Explains a request.
///
/// # Errors
///
/// A descriptor has an invalid limit.
pub(super) fn explain<'s>(
    rules: &'s RuleSet,
    request: &Request<'_>,
    key_prefix: &str,
) -> Result<Explained<'s>, String> {
    let domain = rules.domain(request.domain);
    let all = applied(rules, request)
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
        let Applied { rule: active, plan, key, metric_path, is_quota, .. } = applied;
        let entries = descriptor.entries;
        let sent = descriptor.limit.and(plan.as_ref()).and_then(|plan| plan.limits().first());
        let trace = match (domain, &sent) {
            (Some(domain), None) => domain.trace(entries),
            _ => Default::default(),
        };
        let replaced_by = rule.filter(|_| active.is_none()).and_then(|rule| {
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

fn describe(near: NearMiss<'_>, domain: &str, entries: &[(&str, &str)]) -> Near {
    let entry = |at: usize| entry_text(entries[at]);
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
        NearMiss::FewerEntries(at, end) => (
            "depth",
            format!(
                "'{}' ({}) has no rules below it: the descriptor has {} too many",
                end.text,
                end.origin,
                counted(entries.len() - at - 1, "entry", "entries")
            ),
        ),
        NearMiss::Key(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let place = if at == 0 { "the first level" } else { "this level" };
            ("key", format!("no rule on {place} has the key '{}'{near}", entries[at].0))
        }
        NearMiss::Value(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let (key, value) = entries[at];
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
        NearMiss::OtherDomain(rule) => (
            "domain",
            format!(
                "in the domain '{}' it matches '{}' ({})",
                rule.domain(),
                rule.path(),
                rule.origin
            ),
        ),
    };
    Near { kind, message }
}

/// `key=value`, escaped as arguments are.
pub(super) fn entry_text((key, value): (&str, &str)) -> String {
    let escape = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    format!("{}={}", escape(key), escape(value))
}

pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A machine-readable name of how an entry matched.
pub(super) fn kind_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Value => "value",
        MatchKind::Wildcard => "wildcard",
        MatchKind::Key => "key",
    }
}

/// The line and column of a position, if it has any.
pub(super) fn line_column(position: Position) -> (Option<u32>, Option<u32>) {
    (position.line(), position.column())
}

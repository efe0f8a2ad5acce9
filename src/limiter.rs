//! One request in, one decision out: looks every descriptor up, charges what matched, and says
//! what the whole comes to.

mod decision;
mod holds;
mod request;
mod stats;
#[cfg(test)]
mod tests;

pub use decision::{RequestDecision, RequestError, ShownLimit, Status};
pub use holds::Holds;
pub use request::{Descriptor, Override, Request};

use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::limit::{Limit, Op, Plan, SECOND, Unit};
use crate::rules::{Found, Rule, RuleSet};
use crate::store::{Answers, Batch, Charge, Entry, Key, Role, Store, StoreError};

/// How requests are decided, apart from the rules.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Every request passes; statuses still tell the truth.
    pub shadow_mode: bool,
    /// Every descriptor counts as a quota.
    pub quota_mode: bool,
    /// The part of a limit above which hits count as near it.
    pub near_limit_ratio: f32,
    pub max_descriptors: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            shadow_mode: false,
            quota_mode: false,
            near_limit_ratio: 0.8,
            max_descriptors: 256,
        }
    }
}

/// What the limiter counts beside the rules' own counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests for a decision, refused ones too.
    pub requests: AtomicU64,
    /// Requests answered as over their limit.
    pub over_limit: AtomicU64,
    /// Descriptors whose domain has no rules.
    pub domain_not_found: AtomicU64,
    /// Requests let through by the global shadow mode.
    pub global_shadow_mode: AtomicU64,
    /// Requests refused for what they are.
    pub service_error: AtomicU64,
    /// Requests refused because the store failed.
    pub store_error: AtomicU64,
}

/// Decides requests by rules, counting in a store.
#[derive(Debug)]
pub struct Limiter<S> {
    store: S,
    options: Options,
    counts: Counts,
}

/// What applies to one descriptor.
enum Match<'s> {
    /// No rule, or one that another rule set aside.
    Nothing,
    Rule(Found<'s>),
    Override(Arc<Plan>),
}

impl<'s> Match<'s> {
    fn rule(&self) -> Option<&'s Rule> {
        match self {
            Match::Rule(found) => Some(found.rule),
            _ => None,
        }
    }

    fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Match::Nothing => None,
            Match::Rule(found) => found.rule.plan.as_ref(),
            Match::Override(plan) => Some(plan),
        }
    }
}

impl<S: Store> Limiter<S> {
    pub fn new(store: S, options: Options) -> Limiter<S> {
        Limiter { store, options, counts: Counts::default() }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    /// The most descriptors that a request may have.
    pub fn max_descriptors(&self) -> usize {
        self.options.max_descriptors
    }

    /// Counts a request that was refused before it came here.
    pub fn count_refused(&self) {
        add(&self.counts.requests);
        add(&self.counts.service_error);
    }

    /// Decides one request by the rules of one snapshot, within `budget`. What it takes of concurrency
    /// limits is added to `holds`, also where the outcome is an error.
    pub async fn decide<'s>(
        &self,
        rules: Option<&'s RuleSet>,
        request: &Request<'_>,
        budget: Duration,
        holds: &mut Holds,
    ) -> Result<RequestDecision<'s>, RequestError> {
        let decided = match self.look_up(rules, request) {
            Ok(matched) => self.charge(rules, request, &matched, budget, holds).await,
            Err(refused) => Err(refused),
        };
        add(&self.counts.requests);
        match &decided {
            Ok(decision) if decision.over_limit => add(&self.counts.over_limit),
            Ok(_) => {}
            Err(RequestError::Store(_)) => add(&self.counts.store_error),
            Err(_) => add(&self.counts.service_error),
        }
        decided
    }

    /// What applies to each descriptor of a request, in order.
    fn look_up<'s>(
        &self,
        rules: Option<&'s RuleSet>,
        request: &Request<'_>,
    ) -> Result<SmallVec<[Match<'s>; 4]>, RequestError> {
        if request.domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        let rules = rules.ok_or(RequestError::NoRules)?;
        let (sent, most) = (request.descriptors.len(), self.options.max_descriptors);
        if sent > most || request.beyond > 0 {
            return Err(RequestError::TooManyDescriptors(sent + request.beyond, most));
        }
        let domain = rules.domain(request.domain);
        if domain.is_none() {
            self.counts.domain_not_found.fetch_add(sent as u64, Ordering::Relaxed);
        }
        let mut matched = SmallVec::with_capacity(sent);
        for (i, descriptor) in request.descriptors.iter().enumerate() {
            let bad = |why| RequestError::BadDescriptor(i, why);
            // An override is checked even where its domain has no rules: it is as wrong there.
            let plan = match &descriptor.limit {
                Some(sent) => Some(override_plan(sent).map_err(bad)?),
                None => None,
            };
            matched.push(match (domain, plan) {
                (None, _) => Match::Nothing,
                (Some(_), Some(plan)) => Match::Override(plan),
                (Some(domain), None) => {
                    domain.find(descriptor.entries).map_or(Match::Nothing, Match::Rule)
                }
            });
        }
        drop_replaced(&mut matched);
        Ok(matched)
    }

    async fn charge<'s>(
        &self,
        rules: Option<&'s RuleSet>,
        request: &Request<'_>,
        matched: &[Match<'s>],
        budget: Duration,
        holds: &mut Holds,
    ) -> Result<RequestDecision<'s>, RequestError> {
        let domain = rules.and_then(|rules| rules.domain(request.domain));
        // Where a rule shares its threshold, the key has the pattern in place of the value.
        let patched: SmallVec<[Option<Vec<Entry<'_>>>; 4]> = zip(matched, request.descriptors)
            .map(|(matched, descriptor)| match (matched, domain) {
                (Match::Rule(found), Some(domain)) if found.shares => {
                    Some(domain.shared_entries(descriptor.entries))
                }
                _ => None,
            })
            .collect();
        let mut charges: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
        // Whether a quota descriptor passes whatever the store says.
        let mut quota_passes = false;
        for ((matched, descriptor), patched) in zip(zip(matched, request.descriptors), &patched) {
            let quota = self.is_quota(matched);
            let shadow = matched.rule().is_some_and(|rule| rule.shadow_mode);
            let Some(plan) = matched.plan() else {
                quota_passes |= quota;
                continue;
            };
            quota_passes |= quota && shadow;
            let mut entries = patched.as_deref().unwrap_or(descriptor.entries);
            let mut hold = None;
            if plan.hold_id().is_some()
                && let [others @ .., (_, id)] = entries
            {
                (entries, hold) = (others, Some(*id));
            }
            charges.push(Charge {
                key: Key { domain: request.domain, entries },
                plan,
                op: op(request, descriptor),
                hold,
                // In the global shadow mode no denial denies the request.
                role: match (shadow || self.options.shadow_mode, quota) {
                    (true, _) => Role::Shadow,
                    (_, true) => Role::Quota,
                    _ => Role::Enforced,
                },
            });
        }
        let mut answers = Answers::new();
        if !charges.is_empty() {
            let together = domain.is_some_and(|domain| domain.together);
            let on_failure = domain.and_then(|domain| domain.on_store_failure);
            let batch = Batch { charges: &charges, together, quota_passes, budget, on_failure };
            self.store.charge(batch, &mut answers).await;
            holds.add(&batch, &answers);
        }
        self.conclude(request, matched, answers)
    }

    /// Makes statuses of a store's answers, counts them, and says what the request comes to.
    fn conclude<'s>(
        &self,
        request: &Request<'_>,
        matched: &[Match<'s>],
        answers: Answers,
    ) -> Result<RequestDecision<'s>, RequestError> {
        let mut answers = answers.into_iter();
        let mut statuses: SmallVec<[Status<'s>; 4]> = SmallVec::with_capacity(matched.len());
        let (mut over, mut quotas, mut quotas_over) = (false, 0, 0);
        for (matched, descriptor) in zip(matched, request.descriptors) {
            let mut status = Status { quota: self.is_quota(matched), ..Status::default() };
            if let Some(plan) = matched.plan() {
                let decision = answers.next().unwrap_or(Err(StoreError::Unavailable))?;
                let limit = &plan.limits()[usize::from(decision.limit)];
                let mut shadow = false;
                let mut name = "";
                if let Match::Rule(Found { rule, .. }) = matched {
                    let ratio = self.options.near_limit_ratio;
                    let hits = match op(request, descriptor) {
                        Op::Take(hits) => hits,
                        Op::GiveBack(_) => 0,
                    };
                    stats::count(rule, hits, limit, &decision, ratio);
                    shadow = rule.shadow_mode;
                    status.metadata = rule.metadata.as_ref();
                    name = rule.limit_name(decision.limit);
                }
                status.over_limit = !decision.allowed && !shadow;
                status.limit = Some(ShownLimit::new(limit, name));
                if decision.allowed {
                    status.remaining = u32::try_from(decision.remaining).unwrap_or(u32::MAX);
                }
                let wait = if decision.allowed { None } else { decision.retry_after };
                let wait = wait.unwrap_or(decision.reset_after);
                status.reset_seconds = wait.div_ceil(SECOND).max(1);
            } else if let Match::Rule(found) = matched {
                status.remaining = u32::MAX;
                status.metadata = None;
                debug_assert!(found.rule.plan.is_none(), "only an unlimited rule has no plan");
            }
            quotas += usize::from(status.quota);
            quotas_over += usize::from(status.quota && status.over_limit);
            over |= status.over_limit && !status.quota;
            statuses.push(status);
        }
        over |= quotas > 0 && quotas == quotas_over;
        if over && self.options.shadow_mode {
            add(&self.counts.global_shadow_mode);
            over = false;
        }
        Ok(RequestDecision { over_limit: over, statuses })
    }

    /// Whether a descriptor counts as a quota. With the global quota mode, one that nothing
    /// applies to does; an unlimited one never does.
    fn is_quota(&self, matched: &Match<'_>) -> bool {
        match matched {
            Match::Rule(found) if found.rule.plan.is_none() => false,
            Match::Rule(found) => self.options.quota_mode || found.rule.quota_mode,
            _ => self.options.quota_mode,
        }
    }
}

/// Drops every rule whose name any matched rule of the request replaces, itself replaced or not. A
/// rule that is unlimited stays, as in the reference.
fn drop_replaced(matched: &mut [Match<'_>]) {
    if matched.iter().all(|a| a.rule().is_none_or(|rule| rule.replaces.is_empty())) {
        return;
    }
    let replaced: Vec<&str> = matched
        .iter()
        .filter_map(Match::rule)
        .flat_map(|rule| rule.replaces.iter().map(AsRef::as_ref))
        .collect();
    for matched in matched {
        if matched.rule().is_some_and(|rule| rule.plan.is_some() && rule.is_named_by(&replaced)) {
            *matched = Match::Nothing;
        }
    }
}

/// What a descriptor asks for. Hits saturate at 2^32 - 1; a descriptor's own 0 only looks.
fn op(request: &Request<'_>, descriptor: &Descriptor<'_>) -> Op {
    let hits = descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)));
    let hits = hits.min(u64::from(u32::MAX));
    if descriptor.is_negative_hits { Op::GiveBack(hits) } else { Op::Take(hits) }
}

/// The plan of a limit sent along: a fixed window that shares its counters with a rule of the
/// same period.
fn override_plan(sent: &Override) -> Result<Arc<Plan>, &'static str> {
    let unit = match sent.unit {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => {
            return Err(
                "limit.unit is unknown: use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR",
            );
        }
    };
    let multiplier = sent.unit_multiplier.unwrap_or(1);
    if multiplier == 0 {
        return Err("limit.unit_multiplier is 0: leave it out, or say 1 or more");
    }
    let limit = Limit::fixed_window(sent.requests_per_unit, unit, multiplier)
        .ok_or("limit.unit_multiplier makes a period of over 100 years")?;
    Ok(Arc::new(Plan::new(vec![limit])))
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

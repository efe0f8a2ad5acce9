//! One request in, one decision out: looks every descriptor up, charges what matched, and says
//! what the whole comes to.

mod account;
mod decision;
mod holds;
mod request;
#[cfg(test)]
mod tests;

pub use decision::{Decision, Refused, ShownLimit, Status};
pub use holds::Holds;
pub use request::{Descriptor, Override, Request};

use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use crate::limit::{Limit, Op, Plan, SECOND, Unit};
use crate::rules::{Found, Rule, RuleSet};
use crate::store::{Answers, Batch, Charge, Entry, Failed, Key, Role, Store};

/// How requests are judged, apart from the rules.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Every request passes; statuses still tell the truth.
    pub shadow_mode: bool,
    /// Every descriptor counts as a quota.
    pub quota_mode: bool,
    /// The part of a limit above which hits count as near it.
    pub near_limit_ratio: f32,
    pub max_descriptors: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
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
    behaviour: Behaviour,
    counts: Counts,
}

/// What applies to one descriptor.
enum Applies<'s> {
    /// No rule, or one that another rule set aside.
    Nothing,
    Rule(Found<'s>),
    Override(Arc<Plan>),
}

impl<'s> Applies<'s> {
    fn rule(&self) -> Option<&'s Rule> {
        match self {
            Applies::Rule(found) => Some(found.rule),
            _ => None,
        }
    }

    fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Applies::Nothing => None,
            Applies::Rule(found) => found.rule.plan.as_ref(),
            Applies::Override(plan) => Some(plan),
        }
    }
}

impl<S: Store> Limiter<S> {
    pub fn new(store: S, behaviour: Behaviour) -> Limiter<S> {
        Limiter { store, behaviour, counts: Counts::default() }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    /// The most descriptors that a request may have.
    pub fn max_descriptors(&self) -> usize {
        self.behaviour.max_descriptors
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
    ) -> Result<Decision<'s>, Refused> {
        let decided = match self.look_up(rules, request) {
            Ok(applies) => self.charge(rules, request, &applies, budget, holds).await,
            Err(refused) => Err(refused),
        };
        add(&self.counts.requests);
        match &decided {
            Ok(decision) if decision.over_limit => add(&self.counts.over_limit),
            Ok(_) => {}
            Err(Refused::Store(_)) => add(&self.counts.store_error),
            Err(_) => add(&self.counts.service_error),
        }
        decided
    }

    /// What applies to each descriptor of a request, in order.
    fn look_up<'s>(
        &self,
        rules: Option<&'s RuleSet>,
        request: &Request<'_>,
    ) -> Result<SmallVec<[Applies<'s>; 4]>, Refused> {
        if request.domain.is_empty() {
            return Err(Refused::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return Err(Refused::NoDescriptors);
        }
        let rules = rules.ok_or(Refused::NoRules)?;
        let (sent, most) = (request.descriptors.len(), self.behaviour.max_descriptors);
        if sent > most || request.beyond > 0 {
            return Err(Refused::TooManyDescriptors(sent + request.beyond, most));
        }
        let domain = rules.domain(request.domain);
        if domain.is_none() {
            self.counts.domain_not_found.fetch_add(sent as u64, Ordering::Relaxed);
        }
        let mut applies = SmallVec::with_capacity(sent);
        for (i, descriptor) in request.descriptors.iter().enumerate() {
            let bad = |why| Refused::BadDescriptor(i, why);
            // An override is checked even where its domain has no rules: it is as wrong there.
            let plan = match &descriptor.limit {
                Some(sent) => Some(override_plan(sent).map_err(bad)?),
                None => None,
            };
            applies.push(match (domain, plan) {
                (None, _) => Applies::Nothing,
                (Some(_), Some(plan)) => Applies::Override(plan),
                (Some(domain), None) => {
                    domain.find(descriptor.entries).map_or(Applies::Nothing, Applies::Rule)
                }
            });
        }
        set_replaced_aside(&mut applies);
        Ok(applies)
    }

    async fn charge<'s>(
        &self,
        rules: Option<&'s RuleSet>,
        request: &Request<'_>,
        applies: &[Applies<'s>],
        budget: Duration,
        holds: &mut Holds,
    ) -> Result<Decision<'s>, Refused> {
        let domain = rules.and_then(|rules| rules.domain(request.domain));
        // Where a rule shares its threshold, the key has the pattern in place of the value.
        let patched: SmallVec<[Option<Vec<Entry<'_>>>; 4]> = zip(applies, request.descriptors)
            .map(|(applies, descriptor)| match (applies, domain) {
                (Applies::Rule(found), Some(domain)) if found.shares => {
                    Some(domain.shared_entries(descriptor.entries))
                }
                _ => None,
            })
            .collect();
        let mut charges: SmallVec<[Charge<'_>; 4]> = SmallVec::new();
        // Whether a quota descriptor passes whatever the store says.
        let mut quota_passes = false;
        for ((applies, descriptor), patched) in zip(zip(applies, request.descriptors), &patched) {
            let quota = self.is_quota(applies);
            let shadow = applies.rule().is_some_and(|rule| rule.shadow_mode);
            let Some(plan) = applies.plan() else {
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
                role: match (shadow || self.behaviour.shadow_mode, quota) {
                    (true, _) => Role::Shadow,
                    (_, true) => Role::Quota,
                    _ => Role::Binds,
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
        self.conclude(request, applies, answers)
    }

    /// Makes statuses of a store's answers, counts them, and says what the request comes to.
    fn conclude<'s>(
        &self,
        request: &Request<'_>,
        applies: &[Applies<'s>],
        answers: Answers,
    ) -> Result<Decision<'s>, Refused> {
        let mut answers = answers.into_iter();
        let mut statuses: SmallVec<[Status<'s>; 4]> = SmallVec::with_capacity(applies.len());
        let (mut over, mut quotas, mut quotas_over) = (false, 0, 0);
        for (applies, descriptor) in zip(applies, request.descriptors) {
            let mut status = Status { quota: self.is_quota(applies), ..Status::default() };
            if let Some(plan) = applies.plan() {
                let judged = answers.next().unwrap_or(Err(Failed::Unavailable))?;
                let limit = &plan.limits()[usize::from(judged.limit)];
                let mut shadow = false;
                let mut name = "";
                if let Applies::Rule(Found { rule, .. }) = applies {
                    let ratio = self.behaviour.near_limit_ratio;
                    let hits = match op(request, descriptor) {
                        Op::Take(hits) => hits,
                        Op::GiveBack(_) => 0,
                    };
                    account::count(rule, hits, limit, &judged, ratio);
                    shadow = rule.shadow_mode;
                    status.metadata = rule.metadata.as_ref();
                    name = rule.limit_name(judged.limit);
                }
                status.over_limit = !judged.allowed && !shadow;
                status.limit = Some(ShownLimit::new(limit, name));
                if judged.allowed {
                    status.remaining = u32::try_from(judged.remaining).unwrap_or(u32::MAX);
                }
                let wait = if judged.allowed { None } else { judged.retry_after };
                let wait = wait.unwrap_or(judged.reset_after);
                status.reset_seconds = wait.div_ceil(SECOND).max(1);
            } else if let Applies::Rule(found) = applies {
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
        if over && self.behaviour.shadow_mode {
            add(&self.counts.global_shadow_mode);
            over = false;
        }
        Ok(Decision { over_limit: over, statuses })
    }

    /// Whether a descriptor counts as a quota. With the global quota mode, one that nothing
    /// applies to does; an unlimited one never does.
    fn is_quota(&self, applies: &Applies<'_>) -> bool {
        match applies {
            Applies::Rule(found) if found.rule.plan.is_none() => false,
            Applies::Rule(found) => self.behaviour.quota_mode || found.rule.quota_mode,
            _ => self.behaviour.quota_mode,
        }
    }
}

/// Drops every rule whose name any matched rule of the request replaces, itself replaced or not. A
/// rule that is unlimited stays, as in the reference.
fn set_replaced_aside(applies: &mut [Applies<'_>]) {
    if applies.iter().all(|a| a.rule().is_none_or(|rule| rule.replaces.is_empty())) {
        return;
    }
    let replaced: Vec<&str> = applies
        .iter()
        .filter_map(Applies::rule)
        .flat_map(|rule| rule.replaces.iter().map(AsRef::as_ref))
        .collect();
    for applies in applies {
        if applies.rule().is_some_and(|rule| rule.plan.is_some() && rule.is_named_by(&replaced)) {
            *applies = Applies::Nothing;
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

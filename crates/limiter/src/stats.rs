//! Counts the hits of a decision: by rule, split as the reference splits them, and by key for the lists of top keys.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::Limiter;
use super::decision::{Answered, Decided};
use super::lookup::{Match, Matched};
use crate::top::{NearAdmission, Outcome, Recorded, Top};
use weir_limit::{Decision, Limit, NearLimit, Plan, Source};
use weir_rules::{Domain, Found, Rule, RuleStats};
use weir_store::Charge;

/// The hits of a charge that the store decided, split.
pub(super) struct CountedHits<'a> {
    pub charge: &'a Charge<'a>,
    pub decision: &'a Decision,
    /// The limit that decided.
    pub limit: &'a Limit,
    near_threshold: f32,
    hits: u64,
    split: HitSplit,
}

impl<'a> CountedHits<'a> {
    /// Splits the hits by the limit that decided.
    #[inline]
    pub fn new(charge: &'a Charge<'a>, decision: &'a Decision, near_ratio: f32) -> CountedHits<'a> {
        let limit = &charge.plan.limits()[usize::from(decision.limit)];
        let hits = charge.op.charged(decision);
        let near_threshold = limit.near_threshold(near_ratio);
        let split = split(hits, decision.used_before, limit.requests_per_unit, near_threshold);
        CountedHits { charge, decision, limit, near_threshold, hits, split }
    }

    /// Whether all limits admit the hits, those in shadow mode too.
    fn is_within(&self) -> bool {
        self.decision.allowed && self.decision.would_deny == 0
    }

    /// Whether only the shadow mode of limits admits the hits.
    fn passes_by_limits(&self) -> bool {
        self.decision.allowed && self.decision.would_deny > 0
    }

    fn is_denied_locally(&self) -> bool {
        self.decision.source == Source::DeniedLocally
    }

    /// The hits beyond the n of the limit that decided, admitted or not.
    pub fn beyond(&self) -> u64 {
        self.split.over
    }

    fn over(&self) -> u64 {
        if self.are_all_over() { self.hits } else { self.split.over }
    }

    /// Whether all hits are over: without a call to the store, and where a limit in shadow mode denies beside
    /// the one that decided, the hits used before are not known.
    fn are_all_over(&self) -> bool {
        let decided = self.decision.would_deny >> self.decision.limit & 1 > 0;
        self.is_denied_locally() || self.passes_by_limits() && !decided
    }

    /// Counts the hits over the limit for the limit that denied them, or for those in shadow mode that would have.
    fn add_to_limits(&self, rule: &Rule) {
        if self.passes_by_limits() {
            let limits = (0..16).filter(|at| self.decision.would_deny >> at & 1 > 0);
            limits.for_each(|at| rule.count_denied(at, self.over()));
        } else {
            rule.count_denied(self.decision.limit, self.over());
        }
    }

    /// Adds the hits to the counts of a rule, or of a series of a rule.
    // The callers for series must not turn it into a call where most rules have it inlined.
    #[inline(always)]
    fn add_to(&self, stats: &RuleStats, shadow: bool) {
        add(&stats.total_hits, self.hits);
        if self.is_within() {
            add(&stats.near_limit, self.split.near);
            return add(&stats.within_limit, self.hits);
        }
        if self.is_denied_locally() {
            add(&stats.over_limit_with_local_cache, self.hits);
        } else if !self.are_all_over() {
            add(&stats.near_limit, self.split.near);
        }
        add(&stats.over_limit, self.over());
        if shadow || self.passes_by_limits() {
            add(&stats.shadow_mode, self.over());
        }
    }

    /// Adds the hits to the counts of what applies to their descriptor.
    #[inline]
    pub fn count(&self, domain: Option<&Domain>, matched: &Matched<'_, '_>) {
        match &matched.applies {
            Match::Nothing => {}
            Match::Rule(Found { rule, .. }) => {
                if !self.is_within() {
                    self.add_to_limits(rule);
                }
                match (&rule.series, domain) {
                    (Some(series), Some(domain)) => {
                        let path = domain.metric_path(rule, matched.descriptor.entries);
                        if path == rule.path() {
                            self.add_to(&rule.stats, rule.shadow_mode);
                        } else {
                            series.update(&path, |stats| self.add_to(stats, rule.shadow_mode));
                        }
                    }
                    _ => self.add_to(&rule.stats, rule.shadow_mode),
                }
            }
            Match::Override(_) => {
                if let Some(domain) = domain
                    && let Some(series) = domain.override_series()
                {
                    let path = domain.override_path(matched.descriptor.entries);
                    series.update(&path, |stats| self.add_to(stats, false));
                }
            }
        }
    }
}

/// Adds the hits of charges that failed to the counts of their rules.
pub(super) fn count_errors(answered: &Answered<'_, '_, '_>) {
    for (matched, decided) in answered.descriptors() {
        if let (Decided::Charged(charge, Err(_)), Some(rule)) = (decided, matched.applies.rule()) {
            add(&rule.stats.store_errors, charge.op.asks().unwrap_or(0));
        }
    }
}

/// How many hits of a charge are over the limit, and how many near it.
#[derive(Debug, PartialEq, Eq)]
struct HitSplit {
    over: u64,
    near: u64,
}

/// Splits hits as the reference does: the counts of both for the same traffic agree.
fn split(hits: u64, before: u64, limit: u32, near_threshold: f32) -> HitSplit {
    // The cast rounds down: above this number of hits, the reference counts further ones as near.
    let near_from = near_threshold as u64;
    let limit = u64::from(limit);
    let after = before.saturating_add(hits);
    if after > limit {
        if before >= limit {
            HitSplit { over: hits, near: 0 }
        } else {
            HitSplit { over: after - limit, near: limit.saturating_sub(near_from.max(before)) }
        }
    } else if after > near_from {
        HitSplit { over: 0, near: if before >= near_from { hits } else { after - near_from } }
    } else {
        HitSplit { over: 0, near: 0 }
    }
}

#[inline]
pub(super) fn add(counter: &AtomicU64, hits: u64) {
    if hits > 0 {
        counter.fetch_add(hits, Ordering::Relaxed);
    }
}

/// The names of limits without one, by their index.
const INDEXES: [&str; 16] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

impl<S> Limiter<S> {
    /// Counts the decision on hits that were charged. Refunds and looks are not counted. `is_charged` is
    /// false if they were not charged after all because the request is denied as a whole.
    #[inline]
    pub(super) fn count_key(
        &self,
        top: &Top,
        matched: &Matched<'_, '_>,
        counted: &CountedHits<'_>,
        is_charged: bool,
    ) {
        let hits = counted.hits;
        if hits == 0 {
            return;
        }
        let CountedHits { charge, decision, .. } = counted;
        let is_counted = matches!(decision.source, Source::Store | Source::Leased);
        let near = match is_charged && decision.allowed && is_counted {
            true => near(counted),
            false => NearAdmissions::new(),
        };
        let outcome = match decision.allowed || matched.is_allowed() {
            _ if matched.passes_by_shadow_mode(decision) => Outcome::WouldBeDenied(&near),
            true => Outcome::Admitted(&near),
            false if self.options.shadow_mode => Outcome::WouldBeDenied(&near),
            false => Outcome::Denied,
        };
        let (domain, entries) = (charge.key.domain, charge.key.entries);
        top.record(&Recorded { domain, entries, rule: matched.path(), hits, outcome });
    }

    /// Counts hits that a control blocks, or would block but for the global shadow mode.
    pub(super) fn count_blocked_key(&self, top: &Top, domain: &str, matched: &Matched<'_, '_>) {
        let Some(hits) = matched.op.takes() else { return };
        let entries = match matched.counted_plan() {
            Some(plan) => matched.counted_entries(plan),
            None => matched.entries(),
        };
        let outcome = match self.options.shadow_mode {
            true => Outcome::WouldBeDenied(&[]),
            false => Outcome::Denied,
        };
        let rule = matched.path();
        top.record(&Recorded { domain, entries, rule, hits, outcome });
    }
}

/// The limits that admitted hits are near of. Few rules have more than one.
type NearAdmissions<'a> = SmallVec<[NearAdmission<'a>; 1]>;

/// Returns the limits that are near their n after hits that they admitted.
#[inline]
fn near<'a>(counted: &CountedHits<'a>) -> NearAdmissions<'a> {
    let CountedHits { charge: Charge { plan, .. }, decision, .. } = *counted;
    let mut near = NearAdmissions::new();
    let used = decision.used_before.saturating_add(counted.hits);
    let admits = |limit: u8| decision.would_deny >> limit & 1 == 0;
    if used as f64 >= f64::from(counted.near_threshold) && admits(decision.limit) {
        let (limit, reset_after) = (decision.limit, decision.reset_after);
        near.extend(admission(plan, &NearLimit { limit, used, reset_after }));
    }
    let others = decision.near.iter().filter(|near| admits(near.limit));
    near.extend(others.filter_map(|limit| admission(plan, limit)));
    near
}

fn admission<'a>(plan: &'a Plan, near: &NearLimit) -> Option<NearAdmission<'a>> {
    let NearLimit { limit: index, used, reset_after } = *near;
    let limit = plan.limits().get(usize::from(index))?;
    let name = match &*limit.name {
        "" if plan.limits().len() > 1 => INDEXES.get(usize::from(index)).unwrap_or(&""),
        name => name,
    };
    let n = limit.requests_per_unit;
    Some(NearAdmission { limit: plan.limit_id(index), name, used, n, reset_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(hits: u64, before: u64, limit: u32, ratio: f32) -> HitSplit {
        super::split(hits, before, limit, limit as f32 * ratio)
    }

    #[test]
    fn hits_are_split_at_the_limit_and_at_four_fifths_of_it() {
        assert_eq!(split(7, 15, 20, 0.8), HitSplit { over: 2, near: 4 });
        assert_eq!(split(1, 15, 20, 0.8), HitSplit { over: 0, near: 0 });
        assert_eq!(split(3, 15, 20, 0.8), HitSplit { over: 0, near: 2 });
        assert_eq!(split(2, 17, 20, 0.8), HitSplit { over: 0, near: 2 });
        assert_eq!(split(5, 20, 20, 0.8), HitSplit { over: 5, near: 0 });
        assert_eq!(split(1, 0, 0, 0.8), HitSplit { over: 1, near: 0 });
    }

    #[test]
    fn large_limits_are_rounded_as_32_bit_floats() {
        // 4 294 967 295 is 2^32 as a 32-bit float; four fifths of it is 3 435 973 836.8, which
        // the next 32-bit float holds as 3 435 973 888.
        let split = split(u64::from(u32::MAX), 0, u32::MAX, 0.8);
        assert_eq!(split.near, u64::from(u32::MAX) - 3_435_973_888);
    }
}

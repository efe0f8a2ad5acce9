//! Counts the hits of a decision: by rule, split as in envoyproxy/ratelimit, and by key for the lists of top keys.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::lookup::{Match, Matched};
use crate::options::LimiterOptions;
use weir_limit::{Decision, Limit, NearLimit, Op, Plan, ReservationResult, Source};
use weir_rules::{Domain, Found, Rule, RuleStats};
use weir_store::Charge;
use weir_top::{NearAdmission, Outcome, Recorded, Top};

/// The hits of a charge that the store decided.
pub(super) struct CountedHits<'a> {
    pub charge: &'a Charge<'a>,
    pub decision: &'a Decision,
    /// The limit that decided.
    pub limit: &'a Limit,
    near_threshold: f32,
    hits: u64,
    over: u64,
    near: u64,
}

impl<'a> CountedHits<'a> {
    /// Counts the hits by the limit that decided.
    #[inline]
    pub fn new(charge: &'a Charge<'a>, decision: &'a Decision, near_ratio: f32) -> CountedHits<'a> {
        let limit = &charge.plan.limits()[usize::from(decision.limit)];
        let hits = charge.op.charged(decision);
        let capacity = charge.plan.capacity_of(decision.limit);
        let near_threshold = capacity as f32 * near_ratio;
        let (mut over, mut near) = split(hits, decision.used_before, capacity, near_threshold);
        // A limit admits hits or it does not, whatever its n: a burst may be below it, or above.
        if decision.allowed && decision.would_deny == 0 {
            over = 0;
        } else if !charge.plan.counts_as_reference() || decision.source == Source::DeniedLocally {
            // Without a call to the store, the hits used before are unknown, which envoyproxy/ratelimit counts by.
            (over, near) = (hits, 0);
        }
        CountedHits { charge, decision, limit, near_threshold, hits, over, near }
    }

    /// Whether all limits admit the hits, those in shadow mode too.
    pub fn is_within(&self) -> bool {
        self.decision.allowed && self.decision.would_deny == 0
    }

    /// Whether only the shadow mode of limits admits the hits.
    fn passes_by_limits(&self) -> bool {
        self.decision.allowed && self.decision.would_deny > 0
    }

    /// The hits beyond the capacity of the limit that decided, admitted or not.
    pub fn beyond(&self) -> u64 {
        let before = self.decision.used_before;
        let capacity = self.charge.plan.capacity_of(self.decision.limit);
        before.saturating_add(self.hits).saturating_sub(before.max(capacity))
    }

    /// Counts the hits over the limit for the limit that denied them, or for those in shadow mode that would have.
    fn add_to_limits(&self, rule: &Rule) {
        if self.passes_by_limits() {
            let limits = (0..16).filter(|at| self.decision.would_deny >> at & 1 > 0);
            limits.for_each(|at| rule.count_denied(at, self.over));
        } else if !self.decision.banned || self.decision.ban_begins {
            rule.count_denied(self.decision.limit, self.over);
        }
    }

    /// Adds the hits to the counts of a rule, or of a series of a rule.
    // The callers for series must not turn it into a call where most rules have it inlined.
    #[inline(always)]
    fn add_to(&self, stats: &RuleStats, shadow: bool) {
        add(&stats.total_hits, self.hits);
        add(&stats.near_limit, self.near);
        if self.is_within() {
            return add(&stats.within_limit, self.hits);
        }
        if self.decision.source == Source::DeniedLocally {
            add(&stats.over_limit_with_local_cache, self.hits);
        }
        add(&stats.over_limit, self.over);
        if shadow || self.passes_by_limits() {
            add(&stats.shadow_mode, self.over);
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
                    if let (true, Some(bans)) = (self.decision.ban_begins, &rule.bans) {
                        add(bans, 1);
                    }
                }
                count_rule(rule, domain, matched, |stats| self.add_to(stats, rule.shadow_mode));
            }
            Match::Override(_) => {
                if let Some(domain) = domain
                    && let Some(series) = &domain.override_series
                {
                    let path = domain.override_path(matched.descriptor.entries);
                    series.update(&path, |stats| self.add_to(stats, false));
                }
            }
        }
    }

    /// Counts the decision on hits that were charged. Refunds and looks are not counted. `is_charged` is
    /// false if they were not charged after all because the request is denied as a whole.
    #[inline]
    pub fn count_key(
        &self,
        top: &Top,
        matched: &Matched<'_, '_>,
        is_charged: bool,
        options: &LimiterOptions,
    ) {
        let CountedHits { charge, decision, hits, .. } = *self;
        if hits == 0 {
            if decision.reservation == ReservationResult::Settled {
                self.return_hits(top, matched, options);
            }
            return;
        }
        let is_counted = matches!(decision.source, Source::Store | Source::Leased);
        let near = match is_charged && decision.allowed && is_counted {
            true => near(self),
            false => NearAdmissions::new(),
        };
        let outcome = match decision.allowed || matched.is_allowed() {
            _ if matched.passes_by_shadow_mode(decision) => Outcome::WouldBeDenied(&near),
            true => Outcome::Admitted(&near),
            false if options.shadow_mode => Outcome::WouldBeDenied(&near),
            false if decision.banned => {
                Outcome::Banned { ends_in: decision.retry_after.unwrap_or(0) }
            }
            false => Outcome::Denied,
        };
        let (domain, entries) = (charge.key.domain, charge.key.entries);
        top.record(&Recorded { domain, entries, rule: matched.path(), hits, outcome });
    }

    /// Takes the hits that a settlement returned from what is listed as used.
    #[cold]
    fn return_hits(&self, top: &Top, matched: &Matched<'_, '_>, options: &LimiterOptions) {
        let CountedHits { charge, decision, .. } = *self;
        let Charge { plan, key, .. } = charge;
        let Op::Reservation(op) = charge.op else { return };
        let returned = decision.reserved.saturating_sub(op.used().unwrap_or(0)).into();
        for (i, limit) in plan.limits().iter().enumerate() {
            let (id, near) =
                (plan.limit_id(i as u8), limit.near_threshold(options.near_limit_ratio));
            top.return_hits((key.domain, key.entries, matched.path()), id, returned, near);
        }
    }
}

/// Counts for the rule of a descriptor, or for a series of the rule.
// Inlined, as `add_to` must not become a call.
#[inline(always)]
pub(super) fn count_rule(
    rule: &Rule,
    domain: Option<&Domain>,
    matched: &Matched<'_, '_>,
    add_to: impl Fn(&RuleStats),
) {
    let (Some(series), Some(domain)) = (&rule.series, domain) else { return add_to(&rule.stats) };
    let path = domain.metric_path(rule, matched.descriptor.entries);
    if path == rule.path() { add_to(&rule.stats) } else { series.update(&path, add_to) }
}

/// Splits hits as the reference does, so that the counts of both for the same traffic agree: how many are over the
/// limit, and how many near it.
#[inline]
fn split(hits: u64, before: u64, limit: u64, near_threshold: f32) -> (u64, u64) {
    // The cast rounds down: above this number of hits, the reference counts further ones as near.
    let near_from = near_threshold as u64;
    let after = before.saturating_add(hits);
    if after > limit {
        if before >= limit {
            (hits, 0)
        } else {
            (after - limit, limit.saturating_sub(near_from.max(before)))
        }
    } else if after > near_from {
        (0, if before >= near_from { hits } else { after - near_from })
    } else {
        (0, 0)
    }
}

#[inline]
pub(super) fn add(counter: &AtomicU64, hits: u64) {
    if hits > 0 {
        counter.fetch_add(hits, Ordering::Relaxed);
    }
}

/// Counts hits that a control blocks, or would block but for the global shadow mode.
pub(super) fn count_blocked_key(
    top: &Top,
    domain: &str,
    matched: &Matched<'_, '_>,
    is_shadow: bool,
) {
    let Some(hits) = matched.op.takes() else { return };
    let entries = match matched.counted_plan() {
        Some(plan) => matched.counted_entries(plan),
        None => matched.entries(),
    };
    let outcome = if is_shadow { Outcome::WouldBeDenied(&[]) } else { Outcome::Denied };
    let rule = matched.path();
    top.record(&Recorded { domain, entries, rule, hits, outcome });
}

/// The limits that admitted hits are near of. Few rules have more than one.
type NearAdmissions<'a> = SmallVec<[NearAdmission<'a>; 1]>;

/// Returns the limits that are nearly used up after hits that they admitted.
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
    if let Some(others) = &decision.near {
        let others = others.iter().filter(|near| admits(near.limit));
        near.extend(others.filter_map(|limit| admission(plan, limit)));
    }
    near
}

fn admission<'a>(plan: &'a Plan, near: &NearLimit) -> Option<NearAdmission<'a>> {
    let NearLimit { limit: index, used, reset_after } = *near;
    let limit = plan.limits().get(usize::from(index))?;
    let unnamed = (limit.name.is_empty() && plan.limits().len() > 1).then_some(limit);
    let n = u32::try_from(plan.capacity_of(index)).unwrap_or(u32::MAX);
    let (limit, name) = (plan.limit_id(index), &*limit.name);
    Some(NearAdmission { limit, name, unnamed, used, n, reset_after })
}

#[cfg(test)]
mod tests {
    fn split(hits: u64, before: u64, limit: u32, ratio: f32) -> (u64, u64) {
        super::split(hits, before, limit.into(), limit as f32 * ratio)
    }

    #[test]
    fn hits_are_split_at_the_limit_and_at_four_fifths_of_it() {
        assert_eq!(split(7, 15, 20, 0.8), (2, 4));
        assert_eq!(split(1, 15, 20, 0.8), (0, 0));
        assert_eq!(split(3, 15, 20, 0.8), (0, 2));
        assert_eq!(split(2, 17, 20, 0.8), (0, 2));
        assert_eq!(split(5, 20, 20, 0.8), (5, 0));
        assert_eq!(split(1, 0, 0, 0.8), (1, 0));
    }

    #[test]
    fn large_limits_are_rounded_as_32_bit_floats() {
        // 4 294 967 295 is 2^32 as a 32-bit float; four fifths of it is 3 435 973 836.8, which
        // the next 32-bit float holds as 3 435 973 888.
        let (_, near) = split(u64::from(u32::MAX), 0, u32::MAX, 0.8);
        assert_eq!(near, u64::from(u32::MAX) - 3_435_973_888);
    }
}

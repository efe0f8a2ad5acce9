//! Makes the decision on a request from the answers of the store, and counts it: the last step of `limiter`.

use crate::decision::{Answered, Decided, RequestDecision, RequestError, ShownLimit, Status};
use crate::holds::{Holds, TakenHolds};
use crate::limiter::Limiter;
use crate::lookup::Matched;
use crate::spans::DecisionSpan;
use crate::stats::{self, CountedHits, add};
use crate::{log, reserving};
use weir_controls::Effect;
use weir_limit::ReservationResult;
use weir_rules::Domain;
use weir_store::{Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Concludes a decision: its statuses and outcome, the counts, the span, and what to release if the caller leaves.
    pub(super) fn conclude<'s>(
        &self,
        answered: &Answered<'_, 's, '_>,
        span: Option<DecisionSpan>,
        holds: &mut Holds,
        decision: &mut RequestDecision<'s>,
    ) -> Result<(), RequestError> {
        if answered.may_hold() {
            TakenHolds::add(holds, answered);
        }
        let concluded = self.combine(answered, decision);
        if decision.over_limit
            && let Some(holds) = holds
        {
            holds.deny();
        }
        if let Some(span) = span {
            span.end(answered, concluded.as_ref().map(|()| &*decision));
        }
        concluded
    }

    /// Combines the store's answers into the statuses and the outcome of `decision`, and counts them.
    #[inline]
    fn combine<'s>(
        &self,
        answered: &Answered<'_, 's, '_>,
        decision: &mut RequestDecision<'s>,
    ) -> Result<(), RequestError> {
        let Answered { request, lookup, .. } = *answered;
        let are_charged = answered.are_charged();
        let RequestDecision { over_limit, statuses } = decision;
        statuses.reserve(lookup.matched.len());
        let (mut over, mut quotas, mut quotas_over) = (false, 0, 0);
        let mut would_be_over = false;
        for (matched, decided) in answered.descriptors() {
            let mut status = match decided {
                Decided::Uncharged => uncharged_status(matched),
                Decided::Charged(charge, Ok(decision)) => {
                    would_be_over |= matched.passes_by_shadow_mode(decision);
                    let ratio = self.options.near_limit_ratio;
                    let counted = CountedHits::new(charge, decision, ratio);
                    let mut status =
                        self.charged_status(lookup.domain, matched, &counted, are_charged);
                    if matched.reserves {
                        self.add_reservation(request.domain, matched, &counted, &mut status);
                        let result = status.reservation;
                        if let Some(why) = reserving::not_permitted(request, matched, result) {
                            // What was reserved beside it is returned.
                            *over_limit = true;
                            return Err(self.invalid(request.domain, statuses.len(), why));
                        }
                        over |= result == ReservationResult::Conflict;
                    }
                    status
                }
                // Controls decide without the store, too.
                Decided::Charged(..) if matched.is_allowed() || lookup.is_blocked => {
                    uncharged_status(matched)
                }
                // What was reserved stays charged.
                Decided::Charged(_, Err(_)) if matched.settles() => {
                    if let Some(stats) = matched.reserve_stats() {
                        stats.lost();
                    }
                    uncharged_status(matched)
                }
                Decided::Charged(_, Err(error)) => return Err(self.store_failed(answered, *error)),
            };
            if let Some(effect) = &matched.effect {
                self.control_status(request.domain, matched, effect, &mut status);
            }
            quotas += usize::from(status.quota);
            quotas_over += usize::from(status.quota && status.over_limit);
            over |= status.over_limit && !status.quota;
            statuses.push(status);
        }
        over |= quotas > 0 && quotas == quotas_over;
        if over && self.options.shadow_mode {
            add(&self.counts.global_shadow_mode, 1);
            over = false;
        } else if would_be_over && !over {
            add(&self.counts.rule_shadow_mode, 1);
        }
        add(if over { &self.counts.over_limit } else { &self.counts.ok }, 1);
        if over {
            if self.denial_log.is_on() {
                self.denial_log.log(answered, &self.options.key_prefix, statuses);
            }
            let has_news = || self.top.as_ref().is_some_and(|top| top.take_news());
            if self.denials.are_wanted() || has_news() {
                self.denials.add(answered, statuses);
            }
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            let overall = if over { "over_limit" } else { "ok" };
            log::decisions(answered, &self.options.key_prefix, overall);
        }
        *over_limit = over;
        Ok(())
    }

    /// The status of a descriptor that was charged; adds its hits to the counts of its rule and of its key.
    fn charged_status<'s>(
        &self,
        domain: Option<&Domain>,
        matched: &Matched<'s, '_>,
        counted: &CountedHits<'_>,
        is_charged: bool,
    ) -> Status<'s> {
        let CountedHits { decision, limit, .. } = counted;
        // What is taken back because another descriptor is denied was neither within its limit nor over it.
        if is_charged || !counted.is_within() || counted.charge.op.is_unconditional() {
            counted.count(domain, matched);
        }
        if let Some(top) = &self.top {
            counted.count_key(top, matched, is_charged, &self.options);
        }
        let rule = matched.applies.rule();
        let (shadow, name) =
            rule.map_or((false, ""), |rule| (rule.shadow_mode, rule.limit_name(decision.limit)));
        let wait = if decision.allowed { None } else { decision.retry_after };
        Status {
            over_limit: !decision.allowed && !shadow,
            limit: Some(ShownLimit::new(limit, name)),
            remaining: match decision.allowed {
                true => u32::try_from(decision.remaining).unwrap_or(u32::MAX),
                false => 0,
            },
            retry_after: wait,
            reset_after: decision.reset_after,
            quota: matched.is_quota,
            rule,
            changed_plan: None,
            reserved: 0,
            reservation: ReservationResult::None,
        }
    }

    /// Adds to the status of a descriptor that may name a reservation what became of it, and counts that.
    #[cold]
    fn add_reservation(
        &self,
        domain: &str,
        matched: &Matched<'_, '_>,
        counted: &CountedHits<'_>,
        status: &mut Status<'_>,
    ) {
        let decision = counted.decision;
        status.reserved = decision.granted.max(decision.reserved);
        status.reservation = decision.reservation;
        let Some(stats) = matched.reserve_stats() else { return };
        reserving::count(stats, counted.charge.op, decision, counted.beyond());
        if matched.descriptor.is_negative_hits {
            add(&self.counts.ignored_refunds, 1);
            if let Some(suppressed) = self.refund_log.pass() {
                tracing::warn!(
                    domain = log::shortened(domain),
                    rule = matched.path(),
                    suppressed,
                    "negative hits do nothing for a rule with `reserve`: settle with the hits that were used"
                );
            }
        }
    }

    /// Counts that a descriptor is invalid by its decision.
    #[cold]
    fn invalid(&self, domain: &str, descriptor: usize, why: &'static str) -> RequestError {
        let error = RequestError::BadDescriptor(descriptor, why);
        self.count_invalid(domain, &error);
        error
    }

    /// Decides a descriptor as a control says.
    #[cold]
    fn control_status<'s>(
        &self,
        domain: &str,
        matched: &Matched<'_, '_>,
        effect: &Effect<'s>,
        status: &mut Status<'s>,
    ) {
        let [blocked, allowed, limited] = &self.counts.controlled;
        match effect {
            Effect::Block { wait, .. } => {
                add(blocked, 1);
                if let Some(top) = &self.top {
                    stats::count_blocked_key(top, domain, matched, self.options.shadow_mode);
                }
                status.over_limit = true;
                status.remaining = 0;
                (status.retry_after, status.reset_after) = (*wait, wait.unwrap_or(0));
            }
            Effect::Allow { count, .. } => {
                add(allowed, 1);
                status.over_limit = false;
                if !count {
                    // What was reserved was returned, whatever was used.
                    status.reserved = 0;
                }
                if status.limit.is_none() {
                    status.remaining = u32::MAX;
                }
            }
            Effect::Limit { plan, .. } => {
                add(limited, 1);
                status.changed_plan = Some(plan);
            }
        }
    }

    #[cold]
    fn store_failed(&self, answered: &Answered<'_, '_, '_>, error: StoreError) -> RequestError {
        add(&self.counts.store_error, 1);
        for (matched, decided) in answered.descriptors() {
            if let (Decided::Charged(charge, Err(_)), Some(rule)) =
                (decided, matched.applies.rule())
            {
                add(&rule.stats.store_errors, charge.op.asks().unwrap_or(0));
            }
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            log::decisions(answered, &self.options.key_prefix, "error");
        }
        error.into()
    }
}

fn uncharged_status<'s>(matched: &Matched<'s, '_>) -> Status<'s> {
    let rule = matched.applies.rule();
    let remaining = if rule.is_some() { u32::MAX } else { 0 };
    Status { quota: matched.is_quota, remaining, rule, ..Status::default() }
}

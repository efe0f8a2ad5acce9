//! Makes the statuses and the overall decision of a request from the answers of the store, and counts them.

use super::charges::Charges;
use super::log::Decided;
use super::lookup::{Lookup, Matched};
use super::metrics::add;
use super::stats::CountedHits;
use super::{Limiter, Request, RequestDecision, RequestError, ShownLimit, Status};
use super::{log, reserving, stats, top_keys};
use crate::controls::Effect;
use weir_limit::{Decision, ReservationResult};
use weir_rules::Domain;
use weir_store::{Answer, Charge, Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Combines the store's answers into the statuses and the outcome of `decision`, and counts them.
    pub(super) fn conclude<'s>(
        &self,
        request: &Request<'_>,
        lookup: &Lookup<'s, '_>,
        charges: &Charges<'_>,
        answers: &[Answer],
        decision: &mut RequestDecision<'s>,
    ) -> Result<(), RequestError> {
        let mut charged = charges.list().iter().zip(answers);
        // Whether admitted hits are counted as near a limit.
        let are_charged = self.top.is_some() && charges.are_charged(answers);
        let RequestDecision { over_limit, statuses } = decision;
        statuses.reserve(lookup.matched.len());
        let (mut over, mut quotas, mut quotas_over) = (false, 0, 0);
        let mut would_be_over = false;
        for matched in &lookup.matched {
            let answer = matched.plan().map(|_| charged.next());
            let mut status = match answer {
                None => uncharged_status(matched),
                Some(Some((charge, Ok(decision)))) => {
                    would_be_over |= matched.passes_by_shadow_mode(decision);
                    self.charged_status(lookup.domain, matched, charge, decision, are_charged)
                }
                // Controls decide without the store, too.
                Some(_) if matched.is_allowed() || lookup.is_blocked => uncharged_status(matched),
                // What was reserved stays charged.
                Some(Some((charge, Err(_)))) if reserving::settles(charge.op) => {
                    if let Some(stats) = matched.reserve_stats() {
                        stats.lost();
                    }
                    uncharged_status(matched)
                }
                Some(answer) => {
                    let error = answer.and_then(|(_, answer)| answer.as_ref().err());
                    let error = error.copied().unwrap_or(StoreError::Unavailable);
                    return Err(self.store_failed(request, lookup, answers, error));
                }
            };
            if matched.reserves
                && let Some(Some((charge, Ok(decision)))) = answer
            {
                let invalid =
                    self.reservation_status(request, matched, charge, decision, &mut status);
                if let Some(why) = invalid {
                    // What was reserved beside it is returned.
                    *over_limit = true;
                    return Err(self.invalid(request.domain, statuses.len(), why));
                }
                over |= status.reservation == ReservationResult::Conflict;
            }
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
            add(&self.counts.global_shadow_mode);
            over = false;
        } else if would_be_over && !over {
            add(&self.counts.rule_shadow_mode);
        }
        add(if over { &self.counts.over_limit } else { &self.counts.ok });
        if over {
            if self.denial_log.is_on() {
                self.denial_log.log(self.decided(request, lookup, answers), statuses);
            }
            if self.denials.are_wanted() {
                self.denials.add(request, lookup, answers, statuses);
            }
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            let overall = if over { "over_limit" } else { "ok" };
            log::decisions(self.decided(request, lookup, answers), overall);
        }
        *over_limit = over;
        Ok(())
    }

    /// The status of a descriptor that was charged; adds its hits to the counts of its rule and of its
    /// key.
    fn charged_status<'s>(
        &self,
        domain: Option<&Domain>,
        matched: &Matched<'s, '_>,
        charge: &Charge<'_>,
        decision: &Decision,
        is_charged: bool,
    ) -> Status<'s> {
        let limit = &charge.plan.limits()[usize::from(decision.limit)];
        let (mut shadow, mut name) = (false, "");
        let hits = charge.op.charged(decision);
        let counted = CountedHits::new(hits, limit, decision, self.options.near_limit_ratio);
        stats::count(&counted, domain, matched, decision.limit);
        if let Some(top) = &self.top {
            let shadow_mode = self.options.shadow_mode;
            top_keys::record(top, matched, charge, decision, &counted, is_charged, shadow_mode);
        }
        let rule = matched.applies.rule();
        if let Some(rule) = rule {
            shadow = rule.shadow_mode;
            name = rule.limit_name(decision.limit);
        }
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
            reserved: 0,
            reservation: ReservationResult::None,
        }
    }

    /// Completes the status of a descriptor that may name a reservation, and counts its outcome. Returns why the
    /// descriptor is invalid, if it is.
    #[cold]
    fn reservation_status(
        &self,
        request: &Request<'_>,
        matched: &Matched<'_, '_>,
        charge: &Charge<'_>,
        decision: &Decision,
        status: &mut Status<'_>,
    ) -> Option<&'static str> {
        status.reserved = decision.granted.max(decision.reserved);
        status.reservation = decision.reservation;
        let result = decision.reservation;
        let invalid = reserving::settles_without_permission(request, matched.descriptor, result);
        let Some(stats) = matched.reserve_stats() else { return invalid };
        let limit = &charge.plan.limits()[usize::from(decision.limit)];
        let hits = charge.op.charged(decision);
        let counted = CountedHits::new(hits, limit, decision, self.options.near_limit_ratio);
        reserving::count(stats, charge.op, decision, counted.beyond());
        if matched.descriptor.is_negative_hits {
            self.refund_ignored(charge.key.domain, matched);
        }
        invalid
    }

    /// Counts that a descriptor is invalid by its decision.
    #[cold]
    fn invalid(&self, domain: &str, descriptor: usize, why: &'static str) -> RequestError {
        let error = RequestError::BadDescriptor(descriptor, why);
        self.count_invalid(domain, &error);
        error
    }

    /// Counts and logs a refund that does nothing.
    fn refund_ignored(&self, domain: &str, matched: &Matched<'_, '_>) {
        add(&self.counts.ignored_refunds);
        if let Some(suppressed) = self.refund_log.pass() {
            tracing::warn!(
                domain = log::shortened(domain),
                rule = matched.path(),
                suppressed,
                "negative hits do nothing for a rule with `reserve`: settle with the hits that were used"
            );
        }
    }

    /// Decides a descriptor as a control says.
    #[cold]
    fn control_status(
        &self,
        domain: &str,
        matched: &Matched<'_, '_>,
        effect: &Effect<'_>,
        status: &mut Status<'_>,
    ) {
        let [blocked, allowed, limited] = &self.counts.controlled;
        match effect {
            Effect::Block { wait, .. } => {
                add(blocked);
                if let Some(top) = &self.top {
                    top_keys::record_blocked(top, domain, matched, self.options.shadow_mode);
                }
                status.over_limit = true;
                status.remaining = 0;
                (status.retry_after, status.reset_after) = (*wait, wait.unwrap_or(0));
            }
            Effect::Allow { count, .. } => {
                add(allowed);
                status.over_limit = false;
                if !count {
                    // What was reserved was returned, whatever was used.
                    status.reserved = 0;
                }
                if status.limit.is_none() {
                    status.remaining = u32::MAX;
                }
            }
            Effect::Limit { .. } => add(limited),
        }
    }

    /// Counts a request that gets no decision because the store failed.
    #[cold]
    fn store_failed(
        &self,
        request: &Request<'_>,
        lookup: &Lookup<'_, '_>,
        answers: &[Answer],
        error: StoreError,
    ) -> RequestError {
        add(&self.counts.store_error);
        stats::count_errors(lookup, answers);
        if tracing::enabled!(tracing::Level::DEBUG) {
            log::decisions(self.decided(request, lookup, answers), "error");
        }
        error.into()
    }

    /// Returns what the log says about a request.
    fn decided<'a, 's, 'r>(
        &'a self,
        request: &'a Request<'_>,
        lookup: &'a Lookup<'s, 'r>,
        answers: &'a [Answer],
    ) -> Decided<'a, 's, 'r> {
        Decided { request, lookup, answers, key_prefix: &self.options.key_prefix }
    }
}

/// The status of a descriptor without a limit.
fn uncharged_status<'s>(matched: &Matched<'s, '_>) -> Status<'s> {
    let rule = matched.applies.rule();
    let remaining = if rule.is_some() { u32::MAX } else { 0 };
    Status { quota: matched.is_quota, remaining, rule, ..Status::default() }
}

//! One request in, one decision out.
//!
//! 1. `lookup` finds what applies to each descriptor: a rule, a limit sent along, or nothing.
//! 2. `charges` makes a batch with a charge for each descriptor that has a limit.
//! 3. The store charges the batch.
//! 4. Its answers become statuses and the overall decision, and are counted in `stats`.
//!
//! `applied` and `inspect` show operators what applies to a descriptor, and what it has counted.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod applied;
mod charges;
pub mod controls;
mod decision;
mod denials;
pub mod explain;
mod holds;
mod inspect;
mod log;
mod lookup;
mod metrics;
mod request;
mod reserving;
mod sample;
mod spans;
mod stats;
#[cfg(test)]
mod tests;
pub mod top;
mod top_keys;

pub use applied::{Applied, applied};
pub use decision::{RequestDecision, RequestError, ShownLimit, Status};
pub use denials::{Denial, DenialSample, DenialWatch, Denials, rule_id};
pub use holds::Holds;
pub use inspect::{CountResult, CountedSpan, DescriptorState, HoldState, LeasedState, LimitState};
pub use inspect::{Inspection, ReadState, ReservationState, ResetError, inspect, reset};
pub use metrics::LimiterCounts;
pub use request::{Budget, BudgetStep, Descriptor, Override, Request};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::charges::Charges;
use self::log::DenialLog;
use self::lookup::{KeyValues, Lookup, Matched};
use self::spans::DecisionSpan;
use self::stats::CountedHits;
use crate::controls::{ActiveView, Effect};
use crate::top::{Redaction, Top};
use weir_common::throttle::Throttle;
use weir_limit::{Decision, ReservationResult};
use weir_rules::Domain;
use weir_store::{Answer, Answers, Charge, Store, StoreError};

/// How often refunds that do nothing are logged.
const REFUND_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;

/// How requests are decided, besides the rules.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Every request passes; statuses are as without it.
    pub shadow_mode: bool,
    /// Every descriptor counts as a quota.
    pub quota_mode: bool,
    /// The fraction of a limit above which hits count as near it.
    pub near_limit_ratio: f32,
    pub max_descriptors: usize,
    /// Denials that are logged per second at most; 0: none.
    pub logged_denials: u32,
    /// The maximum number of unknown domains that are counted separately.
    pub max_series: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            shadow_mode: false,
            quota_mode: false,
            near_limit_ratio: 0.8,
            max_descriptors: 256,
            logged_denials: 0,
            max_series: 10_000,
        }
    }
}

/// Decides requests by rules, counting in a store.
#[derive(Debug)]
pub struct Limiter<S> {
    store: S,
    options: Options,
    counts: LimiterCounts,
    denial_log: DenialLog,
    denials: Denials,
    top: Option<Arc<Top>>,
    /// Throttles warnings about refunds that do nothing.
    refund_log: Throttle,
}

impl<S: Store> Limiter<S> {
    /// Returns a limiter that counts in `store`.
    pub fn new(store: S, options: Options) -> Limiter<S> {
        let denial_log = DenialLog::new(options.logged_denials);
        let counts = LimiterCounts::new(options.max_series);
        let denials = Denials::new(Arc::new(Redaction::new(Vec::new())));
        let refund_log = Throttle::new(REFUND_LOG_INTERVAL);
        Limiter { store, options, counts, denial_log, denials, top: None, refund_log }
    }

    /// Shows hashes in place of secret values to subscribers of denials.
    pub fn with_redaction(self, redaction: Arc<Redaction>) -> Limiter<S> {
        Limiter { denials: Denials::new(redaction), ..self }
    }

    /// Counts decisions by key.
    pub fn with_top(self, top: Option<Arc<Top>>) -> Limiter<S> {
        Limiter { top, ..self }
    }

    /// The lists of top keys, if they are on.
    pub fn top(&self) -> Option<&Arc<Top>> {
        self.top.as_ref()
    }

    /// Denied requests as they happen.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// Returns the counts of requests.
    pub fn counts(&self) -> &LimiterCounts {
        &self.counts
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Whether every request passes, as in [`Options::shadow_mode`].
    pub fn is_shadow(&self) -> bool {
        self.options.shadow_mode
    }

    /// The largest number of descriptors in a request.
    pub fn max_descriptors(&self) -> usize {
        self.options.max_descriptors
    }

    /// Counts a request that was rejected before it reached the limiter.
    pub fn count_invalid(&self, domain: &str, error: &RequestError) {
        log::invalid(domain, error);
        add(&self.counts.invalid);
    }

    /// Decides a request by the rules of one snapshot, within `budget`. What it takes of concurrency
    /// limits, and what it reserves, is added to `holds`, also if the outcome is an error. Of a denied
    /// request, [`Holds::denied`] returns the reservations, which are to be cancelled at once.
    ///
    /// # Errors
    ///
    /// The request is invalid, or the store failed to charge it.
    pub async fn decide<'s>(
        &self,
        rules: Option<impl Into<ActiveView<'s>>>,
        request: &Request<'_>,
        budget: Duration,
        holds: &mut Holds,
    ) -> Result<RequestDecision<'s>, RequestError> {
        let span = DecisionSpan::start(request);
        let mut key_values: KeyValues<'_> = None;
        let mut lookup = Lookup::new();
        let rules = rules.map(Into::into);
        if let Err(error) = self.look_up(rules, request, &mut key_values, &mut lookup) {
            return Err(self.reject(request, error, span));
        }
        let mut charges = Charges::new(lookup.domain);
        charges.add_all(request, &lookup, &self.options);
        let mut answers = Answers::new();
        if let Some(mut batch) = charges.batch(budget) {
            let charge = span.charge(&batch);
            batch.span = charge.span();
            self.store.charge(batch, &mut answers).await;
            holds.add(&batch, &answers, &lookup);
            charge.end(&answers);
        }
        let mut decision = RequestDecision::default();
        let concluded = self.conclude(request, &lookup, &charges, &answers, &mut decision);
        if decision.over_limit {
            holds.deny();
        }
        span.end(&lookup, &answers, concluded.as_ref().map(|()| &decision));
        concluded.map(|()| decision)
    }

    /// Decides a request as [`decide`](Self::decide) does, but without waiting, and passes the decision
    /// to `then`. The reservations of a denied request are cancelled if the store can do that now, too.
    /// Returns `None`, with nothing charged or counted, if the store cannot answer now.
    ///
    /// The decision is not returned, because to copy it takes longer than to look up a rule.
    pub fn decide_now<'s, T>(
        &self,
        rules: Option<impl Into<ActiveView<'s>>>,
        request: &Request<'_>,
        budget: Duration,
        holds: &mut Holds,
        then: impl FnOnce(&RequestDecision<'s>) -> T,
    ) -> Option<Result<T, RequestError>> {
        let span = DecisionSpan::start(request);
        let mut key_values: KeyValues<'_> = None;
        let mut lookup = Lookup::new();
        let rules = rules.map(Into::into);
        if let Err(error) = self.look_up(rules, request, &mut key_values, &mut lookup) {
            return Some(Err(self.reject(request, error, span)));
        }
        let mut charges = Charges::new(lookup.domain);
        charges.add_all(request, &lookup, &self.options);
        let mut answers = Answers::new();
        if let Some(mut batch) = charges.batch(budget) {
            let charge = span.charge(&batch);
            batch.span = charge.span();
            if !self.store.try_charge(batch, &mut answers) {
                return None;
            }
            holds.add(&batch, &answers, &lookup);
            charge.end(&answers);
        }
        let mut decision = RequestDecision::default();
        let concluded = self.conclude(request, &lookup, &charges, &answers, &mut decision);
        if decision.over_limit {
            holds.deny_now(&self.store);
        }
        span.end(&lookup, &answers, concluded.as_ref().map(|()| &decision));
        Some(concluded.map(|()| then(&decision)))
    }

    /// Counts and records that a request is invalid.
    #[cold]
    fn reject(
        &self,
        request: &Request<'_>,
        error: RequestError,
        span: DecisionSpan,
    ) -> RequestError {
        self.count_invalid(request.domain, &error);
        span.fail(&error);
        error
    }

    /// Adds to `lookup` what applies to each descriptor of a request, in order.
    #[inline]
    fn look_up<'s: 'r, 'r>(
        &self,
        active: Option<ActiveView<'s>>,
        request: &'r Request<'r>,
        key_values: &'r mut KeyValues<'s>,
        lookup: &mut Lookup<'s, 'r>,
    ) -> Result<(), RequestError> {
        if request.domain.is_empty() {
            return Err(RequestError::EmptyDomain);
        }
        if request.descriptors.is_empty() {
            return Err(RequestError::NoDescriptors);
        }
        let ActiveView { rules, controls } = active.ok_or(RequestError::NoRules)?;
        let (sent, max) = (request.descriptors.len(), self.options.max_descriptors);
        if sent > max || request.beyond > 0 {
            return Err(RequestError::TooManyDescriptors(sent + request.beyond, max));
        }
        let domain = rules.domain(request.domain);
        if domain.is_none() {
            // Nothing is charged then, so the request is decided now and counted once.
            self.counts.domain_not_found.add(request.domain, sent as u64);
        }
        lookup.start(domain, sent);
        for (i, descriptor) in request.descriptors.iter().enumerate() {
            // A limit that was sent is checked even if its domain has no rules.
            let sent_plan = match &descriptor.limit {
                Some(limit) => {
                    Some(limit.plan().map_err(|why| RequestError::BadDescriptor(i, why))?)
                }
                None => None,
            };
            lookup
                .add(request, descriptor, sent_plan)
                .map_err(|why| RequestError::BadDescriptor(i, why))?;
        }
        lookup.complete(&self.options, key_values);
        if let Some(controls) = controls {
            lookup.control(request.domain, controls, &self.options);
        }
        Ok(())
    }

    /// Combines the store's answers into the statuses and the outcome of `decision`, and counts them.
    fn conclude<'s>(
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
                    reserving::count_failed(matched);
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
                self.reservation_status(matched, charge, decision, &mut status);
                // What was reserved beside it is returned.
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
                self.denial_log.log(request, lookup, answers, statuses);
            }
            if self.denials.are_wanted() {
                self.denials.add(request, lookup, answers, statuses);
            }
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            log::decisions(request, lookup, answers, if over { "over_limit" } else { "ok" });
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

    /// Completes the status of a descriptor that may name a reservation, and counts its outcome.
    #[cold]
    fn reservation_status(
        &self,
        matched: &Matched<'_, '_>,
        charge: &Charge<'_>,
        decision: &Decision,
        status: &mut Status<'_>,
    ) {
        status.reserved = decision.granted.max(decision.reserved);
        status.reservation = decision.reservation;
        let Some(stats) = matched.reserve_stats() else { return };
        let limit = &charge.plan.limits()[usize::from(decision.limit)];
        let hits = charge.op.charged(decision);
        let counted = CountedHits::new(hits, limit, decision, self.options.near_limit_ratio);
        reserving::count(stats, charge.op, decision, counted.beyond());
        if matched.descriptor.is_negative_hits {
            self.refund_ignored(charge.key.domain, matched);
        }
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
            log::decisions(request, lookup, answers, "error");
        }
        error.into()
    }
}

/// The status of a descriptor without a limit.
fn uncharged_status<'s>(matched: &Matched<'s, '_>) -> Status<'s> {
    let rule = matched.applies.rule();
    let remaining = if rule.is_some() { u32::MAX } else { 0 };
    Status { quota: matched.is_quota, remaining, rule, ..Status::default() }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

//! One request in, one decision out.
//!
//! 1. `lookup` finds what applies to each descriptor: a rule, a limit sent along, or nothing.
//! 2. `decision` makes a batch with a charge for each descriptor that has a limit.
//! 3. The store charges the batch.
//! 4. `statuses` concludes: statuses and the overall decision, which `stats` counts, `log` and `spans` record, and
//!    `denials` shows. All read the same list: `Answered` has what was decided about each descriptor.
//!
//! `applied` and `inspect` show operators what applies to a descriptor, and what it has counted.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod applied;
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
mod spans;
mod stats;
mod statuses;
#[cfg(test)]
mod tests;

pub use applied::Applied;
pub use decision::{Burst, RequestDecision, RequestError, ShownLimit, Status};
pub use denials::{Denial, DenialSample, Denials, rule_id};
pub use inspect::{CountResult, CountedSpan, DescriptorState, HoldState, LeasedState, LimitState};
pub use inspect::{Inspection, ReadState, ReservationState, ResetError};
pub use metrics::LimiterCounts;
pub use request::{Budget, BudgetStep, Descriptor, Override, Request};

use std::fmt::Display;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use self::decision::{Answered, Charges};
use self::holds::Taken;
use self::log::DenialLog;
use self::lookup::{KeyValues, Lookup};
use self::spans::{ChargeSpan, DecisionSpan};
use self::stats::add;
use weir_common::throttle::{Throttle, Throttles};
use weir_controls::ActiveView;
use weir_store::{Answers, Batch, Store};
use weir_top::{Redaction, Top};

/// How often refunds that do nothing are logged, and messages of one client that cannot be understood.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// How requests are decided, besides the rules.
#[derive(Clone, Debug)]
pub struct Options {
    /// Every request passes; statuses are as without it.
    pub shadow_mode: bool,
    /// Every descriptor counts as a quota.
    pub quota_mode: bool,
    /// The fraction of what a limit can allow at once above which hits count as near it.
    pub near_limit_ratio: f32,
    /// The maximum number of descriptors in a request.
    pub max_descriptors: usize,
    /// Denials that are logged per second at most; 0: none.
    pub logged_denials: u32,
    /// The maximum number of unknown domains that are counted separately.
    pub max_series: usize,
    /// The prefix of keys in Redis, for the log and for what operators see.
    pub key_prefix: Box<str>,
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
            key_prefix: "weir:".into(),
        }
    }
}

/// What a request took and is not to keep. Most requests take nothing, and then nothing is allocated.
///
/// [`Holds::release`] returns hits of concurrency limits and cancels reservations. It is due when the request is done,
/// unless a later request settles what this one has reserved: then the holds are dropped. Without it, hits in flight
/// and reservations lapse after the timeouts of their rules.
#[derive(Debug, Default)]
pub struct Holds(Option<Box<Taken>>);

impl Holds {
    /// Returns whether there is nothing to release or to cancel.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|taken| taken.is_empty())
    }
}

/// Decides requests by rules, counting in a store.
///
/// All methods take `&self`, so that threads share a limiter. The rules are an argument of each decision: new ones
/// apply from the next request on, and rules of the same limits go on with the same counters.
#[derive(Debug)]
pub struct Limiter<S> {
    store: S,
    options: Options,
    counts: LimiterCounts,
    denial_log: DenialLog,
    denials: Denials,
    top: Option<Arc<Top>>,
    refund_log: Throttle,
    unreadable_log: Throttles<Option<IpAddr>>,
}

impl<S: Store> Limiter<S> {
    /// Returns a limiter that counts in `store`.
    pub fn new(store: S, options: Options) -> Limiter<S> {
        Limiter {
            store,
            counts: LimiterCounts::new(options.max_series),
            denial_log: DenialLog::new(options.logged_denials),
            denials: Denials::new(Arc::new(Redaction::new(Vec::new()))),
            top: None,
            refund_log: Throttle::new(LOG_INTERVAL),
            unreadable_log: Throttles::new(LOG_INTERVAL),
            options,
        }
    }

    /// Shows hashes in place of secret values in denials.
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
        add(&self.counts.invalid, 1);
    }

    /// Counts a message that cannot be understood, and logs one of each client a minute.
    #[cold]
    pub fn count_unreadable(&self, client: Option<IpAddr>, error: &dyn Display) {
        add(&self.counts.invalid, 1);
        if let Some(suppressed) = self.unreadable_log.pass(client) {
            let client = client.map(tracing::field::display);
            let error = log::shortened(&error.to_string());
            tracing::warn!(client, error, suppressed, "message of a client cannot be understood");
        }
    }

    /// Decides a request by the rules of one snapshot, within `budget`. What it takes of concurrency
    /// limits, and what it reserves, is added to `holds`, also if the outcome is an error. Of a denied
    /// request, [`Holds::denied`] returns the reservations, which are to be cancelled at once.
    ///
    /// # Errors
    /// The request is invalid, there are no rules, or the store failed, which may have charged a part of it.
    pub fn decide<'s>(
        &self,
        rules: Option<impl Into<ActiveView<'s>>>,
        request: &Request<'_>,
        budget: Duration,
        holds: &mut Holds,
    ) -> impl Future<Output = Result<RequestDecision<'s>, RequestError>> {
        self.decide_then(rules, request, budget, holds, RequestDecision::clone)
    }

    /// Decides a request as [`decide`](Self::decide) does, and passes the decision to `then`: to return it would copy
    /// it, which takes longer than to look up a rule.
    ///
    /// # Errors
    /// The request is invalid, or the store failed to charge it.
    pub fn decide_then<'s, T>(
        &self,
        rules: Option<impl Into<ActiveView<'s>>>,
        request: &Request<'_>,
        budget: Duration,
        holds: &mut Holds,
        then: impl FnOnce(&RequestDecision<'s>) -> T,
    ) -> impl Future<Output = Result<T, RequestError>> {
        let span = request.span.map(|parent| DecisionSpan::start(parent, request));
        // No async function, which would keep a second copy of what it is called with.
        async move {
            // Each in its place: a request that waits for the store keeps all of them.
            let mut key_values = None;
            let mut lookup = Lookup::new();
            let rules = rules.map(Into::into);
            if let Err(error) = self.look_up(rules, request, &mut key_values, &mut lookup) {
                return Err(self.reject(request, error, span));
            }
            let mut charges = Charges::new(lookup.domain);
            charges.add_all(request, &lookup, &self.options);
            let mut charging = None;
            let waiting = {
                // Not kept by a request that waits.
                let mut answers = Answers::new();
                let Some(waiting) = (if charges.is_empty() {
                    None
                } else {
                    charging = span.as_ref().map(|span| span.charge(&charges.batch(budget)));
                    let span = charging.as_ref().map(ChargeSpan::span);
                    self.store.start(Batch { span, ..charges.batch(budget) }, &mut answers)
                }) else {
                    let (lookup, batch) = (&lookup, &charges.batch(budget));
                    let answered = Answered { request, lookup, batch, answers: &answers };
                    return self.finish(&answered, (span, charging), holds, then);
                };
                waiting
            };
            let answers = waiting.await;
            let (lookup, batch) = (&lookup, &charges.batch(budget));
            let answered = Answered { request, lookup, batch, answers: &answers };
            self.finish(&answered, (span, charging), holds, then)
        }
    }

    /// Passes the decision on a request that the store has answered to `then`.
    #[inline]
    fn finish<'s, T>(
        &self,
        answered: &Answered<'_, 's, '_>,
        (span, charging): (Option<DecisionSpan>, Option<ChargeSpan>),
        holds: &mut Holds,
        then: impl FnOnce(&RequestDecision<'s>) -> T,
    ) -> Result<T, RequestError> {
        if let Some(charging) = charging {
            charging.end(answered.answers);
        }
        let mut decision = RequestDecision::default();
        let concluded = self.conclude(answered, span, holds, &mut decision);
        concluded.map(|()| then(&decision))
    }

    #[cold]
    fn reject(
        &self,
        request: &Request<'_>,
        error: RequestError,
        span: Option<DecisionSpan>,
    ) -> RequestError {
        self.count_invalid(request.domain, &error);
        if let Some(span) = span {
            span.fail(&error);
        }
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
        lookup.add_all(request, rules).map_err(|(i, why)| RequestError::BadDescriptor(i, why))?;
        lookup.complete(&self.options, key_values);
        if let Some(i) = lookup.repeated_key() {
            let why = "its rule counts it under the key of an earlier one: send one of them";
            return Err(RequestError::BadDescriptor(i, why));
        }
        if let Some(controls) = controls {
            add(&self.counts.spared, lookup.control(request, controls, &self.options));
        }
        Ok(())
    }
}

//! [`Limiter`], which has the store, options, logs and counts that all requests share. It decides a request, whatever
//! API it came by: looks up its descriptors, charges their hits in the store, concludes.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Answered, Charges, RequestDecision, RequestError};
use crate::denials::DenialFeed;
use crate::holds::Holds;
use crate::log::{self, DenialLog};
use crate::lookup::{KeyValues, Lookup};
use crate::metrics::LimiterCounts;
use crate::options::LimiterOptions;
use crate::request::Request;
use crate::spans::{ChargeSpan, DecisionSpan};
use crate::stats::add;
use weir_common::metrics::{MetricSink, MetricSource};
use weir_common::throttle::{Throttle, Throttles};
use weir_controls::ActiveView;
use weir_store::{Answers, Batch, Operations, Store};
use weir_top::{Redaction, Top};

/// How often refunds that do nothing are logged, and messages of one client that cannot be understood.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Decides requests by rules, counting in a store.
///
/// All methods take `&self`, so that threads share a limiter. The rules are an argument of each decision: new ones
/// apply from the next request on, and rules of the same limits go on with the same counters.
#[derive(Debug)]
pub struct Limiter<S> {
    pub(crate) store: S,
    pub(crate) options: LimiterOptions,
    pub(crate) counts: LimiterCounts,
    pub(crate) denial_log: DenialLog,
    pub(crate) denials: DenialFeed,
    pub(crate) top: Option<Arc<Top>>,
    pub(crate) refund_log: Throttle,
    unreadable_log: Throttles<Option<IpAddr>>,
}

impl<S: Store> Limiter<S> {
    /// Returns a limiter that counts in `store`.
    pub fn new(store: S, options: LimiterOptions) -> Limiter<S> {
        Limiter {
            store,
            counts: LimiterCounts::new(options.max_series),
            denial_log: DenialLog::new(options.logged_denials),
            denials: DenialFeed::new(Arc::new(Redaction::new(Vec::new()))),
            top: None,
            refund_log: Throttle::new(LOG_INTERVAL),
            unreadable_log: Throttles::new(LOG_INTERVAL),
            options,
        }
    }

    /// Shows hashes in place of secret values in denials.
    pub fn with_redaction(self, redaction: Arc<Redaction>) -> Limiter<S> {
        Limiter { denials: DenialFeed::new(redaction), ..self }
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
    pub fn denials(&self) -> &DenialFeed {
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

    /// Whether every request passes, as in [`LimiterOptions::shadow_mode`].
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
}

impl<S: Store> Limiter<S> {
    /// Decides a request by the rules of one snapshot, within `timeout`. What it takes of concurrency limits, and what it
    /// reserves, is added to `holds`, also if the outcome is an error. Of a denied request,
    /// [`TakenHolds::denied`](crate::TakenHolds::denied) returns the reservations, which are to be cancelled at once.
    ///
    /// # Errors
    /// The request is invalid, there are no rules, or the store failed, which may have charged a part of it.
    pub fn decide<'s>(
        &self,
        rules: Option<impl Into<ActiveView<'s>>>,
        request: &Request<'_>,
        timeout: Duration,
        holds: &mut Holds,
    ) -> impl Future<Output = Result<RequestDecision<'s>, RequestError>> {
        self.decide_then(rules, request, timeout, holds, RequestDecision::clone)
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
        timeout: Duration,
        holds: &mut Holds,
        then: impl FnOnce(&RequestDecision<'s>) -> T,
    ) -> impl Future<Output = Result<T, RequestError>> {
        let span = request.span.map(|parent| DecisionSpan::start(parent, request));
        // No async function, which would keep a second copy of what it is called with.
        async move {
            // Each in its place: a request that waits for the store keeps all of them.
            let mut key_values = None;
            let mut lookup = Lookup::default();
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
                    charging = span.as_ref().map(|span| span.charge(&charges.batch(timeout)));
                    let span = charging.as_ref().map(ChargeSpan::span);
                    self.store.start(Batch { span, ..charges.batch(timeout) }, &mut answers)
                }) else {
                    let (lookup, batch) = (&lookup, &charges.batch(timeout));
                    let answered = Answered { request, lookup, batch, answers: &answers };
                    return self.finish(&answered, (span, charging), holds, then);
                };
                waiting
            };
            let answers = waiting.await;
            let (lookup, batch) = (&lookup, &charges.batch(timeout));
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
    pub(super) fn look_up<'s: 'r, 'r>(
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

impl<S: Operations + Debug> MetricSource for Limiter<S> {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.counts.collect(sink);
        self.store.collect(sink);
    }
}

//! [`Limiter`], which decides requests (see `decide`): the store, options, logs and counts that all requests share.

use std::fmt::{Debug, Display};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::RequestError;
use crate::denials::DenialFeed;
use crate::log::{self, DenialLog};
use crate::metrics::LimiterCounts;
use crate::options::LimiterOptions;
use crate::stats::add;
use weir_common::metrics::{MetricSink, MetricSource};
use weir_common::throttle::{Throttle, Throttles};
use weir_store::{Operations, Store};
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

impl<S: Operations + Debug> MetricSource for Limiter<S> {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.counts.collect(sink);
        self.store.collect(sink);
    }
}

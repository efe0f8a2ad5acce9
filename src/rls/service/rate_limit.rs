//! Decides the requests of gRPC, HTTP and Redis clients by the active rules. If a call cannot be answered, releases its
//! holds (hits of a concurrency limit, taken until the request ends) and cancels its reservations.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};

use super::decode::{DecodeError, Decoded, Descriptors, RequestView};
use super::permissions::Permissions;
use crate::health::Health;
use weir_api::headers::HeaderOptions;
use weir_controls::ActiveRules;
use weir_limit::{Micros, Op, Plan};
use weir_limiter::{
    Holds, Inspection, Limiter, Request, RequestDecision, RequestError, TakenHolds,
};
use weir_store::{Answer, Answers, Batch, Charge, Key, Role, States, Store, StoreError};

/// The part of a caller's timeout that is kept for sending the response and for scheduling delays.
const RETURN_MARGIN: Duration = Duration::from_millis(3);

/// The longest timeout of the store, however long the caller's timeout.
const MAX_TIMEOUT: Duration = Duration::from_millis(50);

/// The timeout of the store for a caller without a timeout. Envoy times out after 20 ms by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(15);

/// The store is asked even if a caller's timeout leaves no time: otherwise a caller could provoke
/// the failure policy. The answer may then arrive after the caller's deadline.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Below this timeout, a late answer of the store is attributed to the caller.
const SHORT_TIMEOUT: Duration = Duration::from_millis(10);

/// The active rules and controls; none until rules are loaded.
pub type Rules = Arc<ActiveRules>;

/// What responses carry in addition to statuses, and what limits requests.
#[derive(Clone, Debug, Default)]
pub struct ResponseOptions {
    pub headers: HeaderOptions,
    pub dynamic_metadata: bool,
    /// Caps the time that the store has for one request; none: only the caller's timeout counts.
    pub store_timeout: Option<Duration>,
    pub permissions: Permissions,
}

impl ResponseOptions {
    pub(super) fn has_extras(&self) -> bool {
        let HeaderOptions { names, reset_clock: _, retry_after, ratelimit_fields } = &self.headers;
        names.is_some() || *retry_after || *ratelimit_fields || self.dynamic_metadata
    }
}

/// Answers requests of the API, whatever their protocol.
#[derive(Debug)]
pub struct RateLimit<S> {
    pub(super) limiter: Arc<Limiter<S>>,
    pub(super) rules: Rules,
    pub(super) options: Arc<ResponseOptions>,
    first_rules: Option<FirstRules>,
}

/// Lets requests wait until the first rules are loaded or rejected.
#[derive(Clone, Debug)]
struct FirstRules {
    health: Arc<Health>,
    /// The wait of requests whose callers have no timeout.
    max_wait: Duration,
}

impl FirstRules {
    /// Waits within what is left of a caller's timeout. Returns what is left then.
    async fn wait(&self, left: Option<Duration>) -> Option<Duration> {
        let started = Instant::now();
        let wait = left.map_or(self.max_wait, |left| left.saturating_sub(RETURN_MARGIN));
        let _ = timeout(wait, self.health.first_load()).await;
        left.map(|left| left.saturating_sub(started.elapsed()))
    }
}

impl<S> Clone for RateLimit<S> {
    fn clone(&self) -> Self {
        RateLimit {
            limiter: self.limiter.clone(),
            rules: self.rules.clone(),
            options: self.options.clone(),
            first_rules: self.first_rules.clone(),
        }
    }
}

impl<S: Store> RateLimit<S> {
    pub fn new(limiter: Arc<Limiter<S>>, rules: Rules, options: ResponseOptions) -> RateLimit<S> {
        RateLimit { limiter, rules, options: Arc::new(options), first_rules: None }
    }

    /// Lets requests wait for the first rules: those without a timeout for up to `max_wait`.
    pub fn awaiting_rules(self, health: Arc<Health>, max_wait: Duration) -> RateLimit<S> {
        RateLimit { first_rules: Some(FirstRules { health, max_wait }), ..self }
    }

    /// Waits for the first rules, if requests do and have to. Returns what is left of the caller's timeout.
    pub(super) async fn first_rules(&self, left: Option<Duration>) -> Option<Duration> {
        let waits = |first: &&FirstRules| first.health.awaits_rules();
        match self.first_rules.as_ref().filter(waits) {
            None => left,
            // On the heap: requests seldom wait, and all would have room for it.
            Some(first) => Box::pin(first.wait(left)).await,
        }
    }

    /// Decodes a request into empty lists. Descriptors beyond the allowed number are only counted. `texts` gets a copy of a
    /// message with values that are not UTF-8.
    pub fn decode<'a, 'v: 'd, 'd>(
        &self,
        message: &'a [u8],
        view: &'v mut RequestView<'a>,
        texts: &'a mut Vec<u8>,
        descriptors: &'d mut Descriptors<'v>,
    ) -> Result<Decoded<'d>, DecodeError> {
        view.decode(message, self.limiter.max_descriptors(), texts, descriptors)
    }

    pub fn count_unreadable(&self, client: Option<SocketAddr>, error: &dyn fmt::Display) {
        self.limiter.count_unreadable(client.map(|client| client.ip()), error);
    }

    /// Decides a request by the active rules, and passes the decision to `then`, such as
    /// [`encode_framed`](super::encode_framed). `timeout` is the caller's, if it sent one; a part of it may pass until
    /// rules are loaded. Concurrency holds are added to `holds`. Reservations of a denied request are cancelled.
    #[expect(
        clippy::manual_async_fn,
        reason = "its future would keep a second copy of the arguments"
    )]
    pub fn decide<T>(
        &self,
        request: &mut Request<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
        then: impl FnOnce(&Request<'_>, &RequestDecision<'_>, &ResponseOptions) -> T,
    ) -> impl Future<Output = Result<T, RequestError>> {
        async move {
            self.check(request)?;
            let (mut rules, mut timeout) = (self.rules.load(), timeout);
            if rules.is_none() {
                timeout = self.first_rules(timeout).await;
                rules = self.rules.load();
            }
            let timeout = store_timeout(self.options.store_timeout, timeout);
            let then = |decision: &RequestDecision<'_>| then(request, decision, &self.options);
            let rules = rules.as_deref();
            let decided = self.limiter.decide_then(rules, request, timeout, holds, then).await;
            if let Some(taken) = holds {
                self.cancel_denied(taken);
            }
            decided
        }
    }

    /// Charges a key that no rule applies to.
    pub async fn charge_key(&self, key: Key<'_>, plan: &Arc<Plan>, op: Op) -> Answer {
        let charges = [Charge { key, plan, op, hold: None, role: Role::Enforced }];
        let batch = Batch::new(&charges, store_timeout(self.options.store_timeout, None));
        let mut answers = Answers::new();
        self.limiter.store().charge(&batch, &mut answers).await;
        answers.pop().unwrap_or(Err(StoreError::Unavailable))
    }

    /// Cancels what a denied request has reserved: now, or in the background if the store has to be waited for.
    #[cold]
    fn cancel_denied(&self, taken: &mut TakenHolds) {
        let Some(denied) = taken.denied() else { return };
        let rate_limit = self.clone();
        let mut releasing = Box::pin(async move { rate_limit.release(denied).await });
        let released = releasing.as_mut().now_or_never();
        // There is no runtime only when the process exits.
        if released.is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(releasing);
        }
    }

    /// Releases the holds of a request whose caller disconnected.
    pub async fn release(&self, taken: TakenHolds) {
        taken.release(self.limiter.store()).await;
    }

    /// Checks that the client may use what the request contains, and counts requests that are invalid. What
    /// only the rules can tell is left to the limiter.
    pub(super) fn check(&self, request: &mut Request<'_>) -> Result<(), RequestError> {
        let permissions = self.options.permissions;
        if permissions.allow_overrides && permissions.allow_negative_hits {
            return Ok(());
        }
        request.no_settling = permissions.no_settling();
        if let Err(error) = permissions.check(request.descriptors) {
            self.limiter.count_invalid(request.domain, &error);
            return Err(error);
        }
        Ok(())
    }
}

impl<S: Store + States> RateLimit<S> {
    /// Reads what a descriptor has counted, and the hits of `spans`, and passes it to `then`.
    pub async fn inspect<T>(
        &self,
        domain: &str,
        descriptor: &weir_limiter::Descriptor<'_>,
        spans: &[Micros],
        then: impl FnOnce(&Inspection<'_>) -> T,
    ) -> Result<T, RequestError> {
        let rules = self.rules.load();
        let active = rules.as_deref().ok_or(RequestError::NoRules)?;
        let timeout = store_timeout(self.options.store_timeout, None);
        let inspection = self.limiter.inspect(active, domain, descriptor, spans, timeout);
        let inspection = Box::pin(inspection).await;
        let inspection = inspection.map_err(|why| RequestError::BadDescriptor(0, why))?;
        Ok(then(&inspection))
    }
}

/// Returns the store's timeout for a request whose caller sent `timeout`. `cap` is the setting `store.budget`; none is `auto`.
pub(super) fn store_timeout(cap: Option<Duration>, timeout: Option<Duration>) -> Duration {
    let timeout = match timeout {
        None => cap.unwrap_or(DEFAULT_TIMEOUT),
        Some(timeout) => cap.unwrap_or(MAX_TIMEOUT).min(timeout.saturating_sub(RETURN_MARGIN)),
    };
    timeout.max(MIN_TIMEOUT)
}

/// Returns the store's timeout below which a late answer of the store is caused by the caller's short
/// timeout. The setting alone never leaves less.
pub fn caller_deadline_below(cap: Option<Duration>) -> Duration {
    store_timeout(cap, Some(SHORT_TIMEOUT))
}

/// Releases a call's holds and reservations when its last clone is dropped, unless they are [kept](HoldGuard::keep).
///
/// When its own client disconnects, Envoy resets the call and never reports the end of the stream.
/// So the holds of a call are released unless its response was sent. A reset that arrives after the
/// response was written is not noticed: that hold expires with `hold_timeout`. Clones are for the extensions of a
/// response.
#[derive(Clone, Default)]
pub struct HoldGuard(Option<Arc<Release>>);

struct Release {
    is_kept: AtomicBool,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl HoldGuard {
    pub fn new<S: Store>(rate_limit: &RateLimit<S>, holds: Holds) -> HoldGuard {
        let Some(taken) = holds.filter(|taken| !taken.is_empty()) else { return HoldGuard(None) };
        // This thread's, which has a connection to the store, wherever the guard is dropped. There is none
        // only when the process exits.
        let Ok(runtime) = Handle::try_current() else { return HoldGuard(None) };
        let rate_limit = rate_limit.clone();
        let release = move || drop(runtime.spawn(async move { rate_limit.release(taken).await }));
        let (is_kept, release) = (AtomicBool::new(false), Some(Box::new(release) as _));
        HoldGuard(Some(Arc::new(Release { is_kept, release })))
    }

    /// Keeps the holds: the response was sent, and the client reports the end of the stream.
    pub fn keep(self) {
        if let Some(release) = self.0 {
            release.is_kept.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(release) = self.release.take()
            && !self.is_kept.load(Ordering::Relaxed)
        {
            release();
        }
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HoldGuard").field(&self.0.is_some()).finish()
    }
}

/// Parses a `grpc-timeout` header: at most eight digits and a unit. None if it is invalid.
pub fn parse_grpc_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let number = digits.iter().try_fold(0, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
    })?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Returns the gRPC status of an invalid request. The reference's own errors are UNKNOWN, which Envoy's
/// `failure_mode_deny` relies on; requests that only weir rejects are INVALID_ARGUMENT.
pub fn rejection(error: RequestError) -> Status {
    let code = match error {
        RequestError::TooManyDescriptors(..) | RequestError::BadDescriptor(..) => {
            Code::InvalidArgument
        }
        _ => Code::Unknown,
    };
    Status::new(code, error.to_string())
}

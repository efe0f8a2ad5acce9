//! Envoy's RateLimitService and weir's BudgetService, independent of the protocol; and gRPC's health service.

mod budget;
mod decode;
mod encode;
mod health;
mod hold_guard;
mod metadata;
mod permissions;
mod response;
mod store_budget;

pub use budget::{BudgetCall, BudgetRequest, BudgetResponse, BudgetService};
pub use decode::{DecodeError, Descriptors, RequestView};
pub use health::HealthService;
pub use hold_guard::HoldGuard;
pub use permissions::{Permissions, Protocol};
pub use store_budget::caller_deadline_below;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tonic::{Code, Status};

use self::store_budget::store_budget;
use crate::proto::envoy::service::ratelimit::v3 as pb;
use weir_api::headers::HeaderOptions;
use weir_limit::{Micros, Op, Plan};
use weir_limiter::controls::ActiveRules;
use weir_limiter::{Holds, Inspection, Limiter, RequestDecision, RequestError, inspect};
use weir_store::{Answer, Answers, Batch, Charge, Key, Role, States, Store, StoreError};

/// The active rules and controls; none until rules are loaded.
pub type Rules = Arc<ActiveRules>;

/// What responses carry in addition to statuses, and what limits requests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub headers: HeaderOptions,
    pub dynamic_metadata: bool,
    /// Caps the time that the store has for one request; none: only the caller's timeout counts.
    pub budget: Option<Duration>,
    pub permissions: Permissions,
}

impl Options {
    /// Whether responses carry anything in addition to statuses.
    fn has_extras(&self) -> bool {
        self.headers.has_any() || self.dynamic_metadata
    }
}

/// Answers requests of the API, whatever their protocol.
#[derive(Debug)]
pub struct RateLimit<S> {
    limiter: Arc<Limiter<S>>,
    rules: Rules,
    options: Arc<Options>,
}

impl<S> Clone for RateLimit<S> {
    fn clone(&self) -> Self {
        RateLimit {
            limiter: self.limiter.clone(),
            rules: self.rules.clone(),
            options: self.options.clone(),
        }
    }
}

impl<S: Store> RateLimit<S> {
    pub fn new(limiter: Arc<Limiter<S>>, rules: Rules, options: Options) -> RateLimit<S> {
        RateLimit { limiter, rules, options: Arc::new(options) }
    }

    /// Returns whether [`answer_framed_now`](Self::answer_framed_now) nearly always answers: a hint
    /// that saves a useless attempt.
    pub fn is_immediate(&self) -> bool {
        self.limiter.store().is_immediate()
    }

    /// Decodes a request. Descriptors beyond the allowed number are only counted.
    ///
    /// # Errors
    ///
    /// If the message is not a `RateLimitRequest`.
    pub fn decode<'a>(&self, message: &'a [u8]) -> Result<RequestView<'a>, DecodeError> {
        RequestView::decode(message, self.limiter.max_descriptors())
    }

    /// Answers one request by the active rules. `timeout` is the caller's, if it sent one.
    ///
    /// # Errors
    ///
    /// The request is invalid or the store failed; see [`RequestError`].
    pub async fn answer(
        &self,
        view: &RequestView<'_>,
        timeout: Option<Duration>,
    ) -> Result<pb::RateLimitResponse, RequestError> {
        self.decide(view, timeout, &mut Holds::default(), response::encode).await
    }

    /// Answers one request with the bytes that gRPC sends, including the message's prefix. The
    /// request's concurrency holds are added to `holds`.
    ///
    /// # Errors
    ///
    /// The request is invalid or the store failed; see [`RequestError`].
    pub async fn answer_framed(
        &self,
        view: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
    ) -> Result<Vec<u8>, RequestError> {
        self.decide(view, timeout, holds, encode::encode).await
    }

    /// Answers as [`answer_framed`](Self::answer_framed) does, but without waiting. Returns `None`,
    /// with nothing charged, if the store cannot answer now.
    pub fn answer_framed_now(
        &self,
        view: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
    ) -> Option<Result<Vec<u8>, RequestError>> {
        let mut descriptors = Descriptors::new();
        let mut request = view.request(&mut descriptors);
        if let Err(error) = self.check(&mut request) {
            return Some(Err(error));
        }
        let rules = self.rules.load();
        let budget = store_budget(self.options.budget, timeout);
        let encode =
            |decision: &RequestDecision<'_>| encode::encode(&request, decision, &self.options);
        let decided = self.limiter.decide_now(rules.as_deref(), &request, budget, holds, encode);
        self.cancel_denied(holds);
        decided
    }

    /// Decides a request, and passes the decision to `then`.
    ///
    /// # Errors
    ///
    /// The request is invalid or the store failed; see [`RequestError`].
    pub async fn decide_request<T>(
        &self,
        request: &weir_limiter::Request<'_>,
        then: impl FnMut(&RequestDecision<'_>) -> T,
    ) -> Result<T, RequestError> {
        let mut request = *request;
        self.check(&mut request)?;
        // A client that disconnects leaves its holds to their time-out.
        let mut holds = Holds::default();
        let decided = self.decide_with(&request, None, &mut holds, then).await;
        self.cancel_denied(&mut holds);
        decided
    }

    /// Decides a request that is checked, and passes the decision to `then`. What a denied request has
    /// reserved is to be cancelled.
    async fn decide_with<T>(
        &self,
        request: &weir_limiter::Request<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
        mut then: impl FnMut(&RequestDecision<'_>) -> T,
    ) -> Result<T, RequestError> {
        let rules = self.rules.load();
        let budget = store_budget(self.options.budget, timeout);
        if self.is_immediate()
            && let Some(decided) =
                self.limiter.decide_now(rules.as_deref(), request, budget, holds, &mut then)
        {
            return decided;
        }
        // On the heap: a connection's task is as large as the largest of its futures.
        let decided = Box::pin(async {
            let decision = self.limiter.decide(rules.as_deref(), request, budget, holds).await?;
            Ok(then(&decision))
        });
        decided.await
    }

    /// Returns the bytes of a decision that waits for the store, on the heap. A charge of one key takes fewer.
    pub fn waiting_bytes(&self) -> usize {
        let request = weir_limiter::Request::default();
        let (rules, mut holds) = (self.rules.load(), Holds::default());
        size_of_val(&self.limiter.decide(rules.as_deref(), &request, Duration::ZERO, &mut holds))
    }

    /// Charges a key that no rule applies to.
    ///
    /// # Errors
    ///
    /// The store failed, and its policy is not to answer.
    pub async fn charge_key(&self, key: Key<'_>, plan: &Arc<Plan>, op: Op) -> Answer {
        let charges = [Charge { key, plan, op, hold: None, role: Role::Enforced }];
        let batch = Batch::new(&charges, store_budget(self.options.budget, None));
        let (store, mut answers) = (self.limiter.store(), Answers::new());
        if !(self.is_immediate() && store.try_charge(batch, &mut answers)) {
            // On the heap, as decisions.
            Box::pin(store.charge(batch, &mut answers)).await;
        }
        answers.pop().unwrap_or(Err(StoreError::Unavailable))
    }

    /// Cancels in the background what a denied request has reserved.
    #[inline(always)]
    fn cancel_denied(&self, holds: &mut Holds) {
        if !holds.is_empty() {
            self.cancel(holds);
        }
    }

    #[cold]
    fn cancel(&self, holds: &mut Holds) {
        // There is no runtime only when the process exits.
        if let Some((denied, runtime)) = holds.denied().zip(Handle::try_current().ok()) {
            let rate_limit = self.clone();
            runtime.spawn(async move { rate_limit.release(denied).await });
        }
    }

    /// Releases the holds of a request whose caller disconnected.
    pub async fn release(&self, holds: Holds) {
        holds.release(self.limiter.store()).await;
    }

    async fn decide<T>(
        &self,
        view: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
        encode: impl FnOnce(&weir_limiter::Request<'_>, &RequestDecision<'_>, &Options) -> T,
    ) -> Result<T, RequestError> {
        let mut descriptors = Descriptors::new();
        let mut request = view.request(&mut descriptors);
        self.check(&mut request)?;
        let rules = self.rules.load();
        let budget = store_budget(self.options.budget, timeout);
        let decided = self.limiter.decide(rules.as_deref(), &request, budget, holds).await;
        self.cancel_denied(holds);
        Ok(encode(&request, &decided?, &self.options))
    }

    /// Checks that the client may use what the request contains, and counts requests that are invalid. What
    /// only the rules can tell is left to the limiter.
    fn check(&self, request: &mut weir_limiter::Request<'_>) -> Result<(), RequestError> {
        let permissions = self.options.permissions;
        if !permissions.is_restricted() {
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
    ///
    /// # Errors
    ///
    /// There are no rules, or the descriptor is invalid.
    pub async fn inspect<T>(
        &self,
        domain: &str,
        descriptor: &weir_limiter::Descriptor<'_>,
        spans: &[Micros],
        then: impl FnOnce(&Inspection<'_>) -> T,
    ) -> Result<T, RequestError> {
        let rules = self.rules.load();
        let active = rules.as_deref().ok_or(RequestError::NoRules)?;
        let (limiter, budget) = (&self.limiter, store_budget(self.options.budget, None));
        let inspection =
            Box::pin(inspect(limiter, active, domain, descriptor, spans, budget)).await;
        let inspection = inspection.map_err(|why| RequestError::BadDescriptor(0, why))?;
        Ok(then(&inspection))
    }
}

/// Parses a `grpc-timeout` header: at most eight digits and a unit. None if it is invalid.
pub fn parse_timeout(text: &[u8]) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_parsed() {
        assert_eq!(parse_timeout(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(parse_timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(parse_timeout(b"1S"), Some(Duration::from_secs(1)));
        assert_eq!(parse_timeout(b"250u"), Some(Duration::from_micros(250)));
        for bad in ["", "m", "20", "20x", "999999999m", "-1m", " 1m"] {
            assert_eq!(parse_timeout(bad.as_bytes()), None, "{bad}");
        }
    }
}

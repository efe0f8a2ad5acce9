//! Answers Envoy's RateLimitService, however a request came; and gRPC's health service.

mod decode;
mod encode;
mod health;
mod metadata;
mod permissions;
mod response;
mod store_budget;

pub use decode::{DecodeError, RequestView};
pub use health::HealthService;
pub use permissions::{Permissions, Protocol};
pub use store_budget::caller_deadline_below;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tonic::{Code, Status};

use crate::limiter::{self, Holds, Limiter, RequestDecision, RequestError};
use crate::proto::envoy::service::ratelimit::v3 as pb;
use crate::rules::RuleSet;
use crate::store::Store;

/// The rules in force; none until the first are loaded. Swapped whole.
pub type Rules = Arc<ArcSwapOption<RuleSet>>;

/// What answers carry beside statuses.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The names of the three rate-limit headers, where they are wanted.
    pub headers: Option<HeaderNames>,
    /// Whether a refusal says when to come again, in `Retry-After`.
    pub retry_after: bool,
    /// Whether answers carry `RateLimit` and `RateLimit-Policy`, the structured fields of
    /// draft-ietf-httpapi-ratelimit-headers-10.
    pub ratelimit_fields: bool,
    pub dynamic_metadata: bool,
    /// Caps how long the store may take for one request; none: as the caller's timeout leaves.
    pub budget: Option<Duration>,
    pub permissions: Permissions,
}

impl Options {
    /// Whether answers carry anything beside statuses.
    fn has_extras(&self) -> bool {
        self.headers.is_some() || self.retry_after || self.ratelimit_fields || self.dynamic_metadata
    }
}

/// The names of the rate-limit headers.
#[derive(Clone, Debug)]
pub struct HeaderNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

/// Answers requests of the API, however they came.
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

    /// Reads a request, as far as it is not refused for how much it asks.
    pub fn decode<'a>(&self, message: &'a [u8]) -> Result<RequestView<'a>, DecodeError> {
        RequestView::decode(message, self.limiter.max_descriptors())
    }

    /// Answers one request by the rules in force when it came. `timeout` is how long the caller
    /// waits, where it said so.
    pub async fn answer(
        &self,
        sent: &RequestView<'_>,
        timeout: Option<Duration>,
    ) -> Result<pb::RateLimitResponse, RequestError> {
        self.decide(sent, timeout, &mut Holds::default(), response::encode).await
    }

    /// The same, as gRPC sends it: with a message's prefix. What the request takes of concurrency
    /// limits is added to `holds`.
    pub async fn answer_framed(
        &self,
        sent: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
    ) -> Result<Vec<u8>, RequestError> {
        self.decide(sent, timeout, holds, encode::encode).await
    }

    /// Answers as [`answer_framed`](Self::answer_framed) does, but without waiting. Returns `None`,
    /// with nothing charged, if the store cannot answer now.
    pub fn answer_framed_now(
        &self,
        sent: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
    ) -> Option<Result<Vec<u8>, RequestError>> {
        let descriptors = sent.descriptors();
        let request = sent.request(&descriptors);
        if let Err(refused) = self.check(&descriptors) {
            return Some(Err(refused));
        }
        let rules = self.rules.load();
        let budget = store_budget::store_budget(self.options.budget, timeout);
        let decision = self.limiter.decide_now(rules.as_deref(), &request, budget, holds)?;
        Some(decision.map(|decision| encode::encode(&request, &decision, &self.options)))
    }

    /// Gives back what a request took, for a caller who went away.
    pub async fn give_back(&self, holds: Holds) {
        holds.give_back(self.limiter.store()).await;
    }

    async fn decide<T>(
        &self,
        sent: &RequestView<'_>,
        timeout: Option<Duration>,
        holds: &mut Holds,
        encode: impl FnOnce(&limiter::Request<'_>, &RequestDecision<'_>, &Options) -> T,
    ) -> Result<T, RequestError> {
        let descriptors = sent.descriptors();
        let request = sent.request(&descriptors);
        self.check(&descriptors)?;
        let rules = self.rules.load();
        let budget = store_budget::store_budget(self.options.budget, timeout);
        let decision = self.limiter.decide(rules.as_deref(), &request, budget, holds).await?;
        Ok(encode(&request, &decision, &self.options))
    }

    /// Refuses what the client may not send, and counts it.
    fn check(&self, descriptors: &[limiter::Descriptor<'_>]) -> Result<(), RequestError> {
        let permissions = self.options.permissions;
        if permissions.are_limited()
            && let Err(refused) = permissions.check(descriptors)
        {
            self.limiter.count_refused();
            return Err(refused);
        }
        Ok(())
    }
}

/// Reads a `grpc-timeout`: at most eight digits and a unit. None where it is no such thing.
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

/// What a refused request is told. The reference answers its own errors as UNKNOWN, and Envoy's
/// failure_mode_deny goes by that; what the reference never refuses says what is wrong with it.
impl From<RequestError> for Status {
    fn from(refused: RequestError) -> Status {
        let code = match refused {
            RequestError::TooManyDescriptors(..) | RequestError::BadDescriptor(..) => {
                Code::InvalidArgument
            }
            _ => Code::Unknown,
        };
        Status::new(code, refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse_timeout(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(parse_timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(parse_timeout(b"1S"), Some(Duration::from_secs(1)));
        assert_eq!(parse_timeout(b"250u"), Some(Duration::from_micros(250)));
        for bad in ["", "m", "20", "20x", "999999999m", "-1m", " 1m"] {
            assert_eq!(parse_timeout(bad.as_bytes()), None, "{bad}");
        }
    }
}

//! Answers Envoy's RateLimitService, however a request came; and gRPC's health service.

mod decode;
mod encode;
mod health;
mod metadata;
mod permissions;
mod response;

pub use decode::{Malformed, Sent};
pub use health::HealthService;
pub use permissions::{Entrance, Permissions};

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tonic::{Code, Status};

use crate::limiter::{self, Decision, Limiter, Refused};
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
    /// How long the store may take for one request.
    pub budget: Duration,
    pub permissions: Permissions,
}

impl Options {
    /// Whether answers carry anything beside statuses.
    fn has_more(&self) -> bool {
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

    /// Whether answers are ready at the first poll.
    pub fn answers_at_once(&self) -> bool {
        self.limiter.store().at_once()
    }

    /// Reads a request, as far as it is not refused for how much it asks.
    pub fn read<'a>(&self, message: &'a [u8]) -> Result<Sent<'a>, Malformed> {
        Sent::read(message, self.limiter.max_descriptors())
    }

    /// Answers one request by the rules in force when it came. `patience` is how long the caller
    /// waits, where it said so.
    pub async fn answer(
        &self,
        sent: &Sent<'_>,
        patience: Option<Duration>,
    ) -> Result<pb::RateLimitResponse, Refused> {
        self.decide(sent, patience, response::encode).await
    }

    /// The same, as gRPC sends it: with a message's prefix.
    pub async fn answer_framed(
        &self,
        sent: &Sent<'_>,
        patience: Option<Duration>,
    ) -> Result<Vec<u8>, Refused> {
        self.decide(sent, patience, encode::encode).await
    }

    async fn decide<T>(
        &self,
        sent: &Sent<'_>,
        patience: Option<Duration>,
        encode: impl FnOnce(&limiter::Request<'_>, &Decision<'_>, &Options) -> T,
    ) -> Result<T, Refused> {
        let descriptors = sent.descriptors();
        let request = sent.request(&descriptors);
        let permissions = self.options.permissions;
        if permissions.are_limited()
            && let Err(refused) = permissions.check(&descriptors)
        {
            self.limiter.count_refused();
            return Err(refused);
        }
        let rules = self.rules.load();
        let budget = budget(self.options.budget, patience);
        let decision = self.limiter.decide(rules.as_deref(), &request, budget).await?;
        Ok(encode(&request, &decision, &self.options))
    }
}

/// What of a caller's patience is left for the way back, and for a busy machine.
const ON_THE_WAY: Duration = Duration::from_millis(3);

/// The store is asked even where nothing is left: else a caller could choose what is answered where
/// the store fails. The answer may then come too late, to a caller who wanted it so.
const LEAST: Duration = Duration::from_millis(1);

/// How long the store may take for a caller who waits for so long.
fn budget(most: Duration, patience: Option<Duration>) -> Duration {
    patience.map_or(most, |patience| most.min(patience.saturating_sub(ON_THE_WAY).max(LEAST)))
}

/// Reads a `grpc-timeout`: at most eight digits and a unit. None where it is no such thing.
pub fn timeout(text: &[u8]) -> Option<Duration> {
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
impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let code = match refused {
            Refused::TooManyDescriptors(..) | Refused::BadDescriptor(..) => Code::InvalidArgument,
            _ => Code::Unknown,
        };
        Status::new(code, refused.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_given_what_a_caller_leaves_and_a_little_at_least() {
        let ms = Duration::from_millis;
        for (patience, given) in [(100, 8), (11, 8), (10, 7), (5, 2), (4, 1), (3, 1), (0, 1)] {
            assert_eq!(budget(ms(8), Some(ms(patience))), ms(given), "{patience}");
        }
        assert_eq!(budget(ms(8), None), ms(8));
        assert_eq!(budget(Duration::from_micros(500), Some(ms(0))), Duration::from_micros(500));
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(timeout(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(timeout(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(timeout(b"1S"), Some(Duration::from_secs(1)));
        assert_eq!(timeout(b"250u"), Some(Duration::from_micros(250)));
        for bad in ["", "m", "20", "20x", "999999999m", "-1m", " 1m"] {
            assert_eq!(timeout(bad.as_bytes()), None, "{bad}");
        }
    }
}

//! A service that counts in memory, by a clock that stands until it is moved.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use weir::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use weir::rls::service::{RateLimit, ResponseOptions, Rules, encode_framed, encode_message};
use weir_api::headers::{HeaderNames, HeaderOptions};
use weir_common::clock::ManualClock;
use weir_limit::SECOND;
use weir_limiter::{Holds, Limiter, Request, RequestError};
use weir_rules::RuleSet;
use weir_store::memory::MemoryStore;

/// Some time in 2023, within a second, a minute, an hour and a day.
const NOW: u64 = 1_700_006_420 * SECOND + 345_678;

/// The service, and its clock.
pub struct Bench {
    pub clock: Arc<ManualClock>,
    service: RateLimit<MemoryStore<Arc<ManualClock>>>,
}

impl Bench {
    /// With `more`, every answer has every part there is; else it has statuses alone.
    pub fn new(rules: Arc<RuleSet>, more: bool) -> Bench {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = MemoryStore::new(clock.clone(), 1_000);
        let limiter = Arc::new(Limiter::new(store, weir_limiter::LimiterOptions::default()));
        let headers = || HeaderNames {
            limit: "RateLimit-Limit".into(),
            remaining: "RateLimit-Remaining".into(),
            reset: "RateLimit-Reset".into(),
        };
        let options = ResponseOptions {
            headers: HeaderOptions {
                names: more.then(headers),
                reset_clock: None,
                retry_after: more,
                ratelimit_fields: more,
            },
            dynamic_metadata: more,
            store_timeout: None,
            ..ResponseOptions::default()
        };
        let in_force = Rules::default();
        in_force.set_rules(rules);
        Bench { clock, service: RateLimit::new(limiter, in_force, options) }
    }

    pub fn answer(&self, mut sent: Request<'_>) -> Result<RateLimitResponse, RequestError> {
        let mut holds = Holds::default();
        at_once(self.service.decide(&mut sent, None, &mut holds, encode_message))
    }

    /// As gRPC sends it.
    pub fn answer_framed(&self, mut sent: Request<'_>) -> Result<Vec<u8>, RequestError> {
        let mut holds = Holds::default();
        at_once(self.service.decide(&mut sent, None, &mut holds, encode_framed))
    }
}

fn at_once<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("memory answers at once"),
    }
}

//! A service that counts in memory, by a clock that stands until it is moved.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir::clock::ManualClock;
use weir::limit::SECOND;
use weir::limiter::{Behaviour, Limiter, Refused};
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir::rules::RuleSet;
use weir::service::{HeaderNames, Options, RateLimit, Rules};
use weir::store::memory::MemoryStore;

/// Some time in 2023, within a second, a minute, an hour and a day.
const NOW: u64 = 1_700_006_420 * SECOND + 345_678;

/// The service, with every answer's every part switched on.
pub struct Bench {
    pub clock: Arc<ManualClock>,
    service: RateLimit<MemoryStore<Arc<ManualClock>>>,
}

impl Bench {
    pub fn new(rules: Arc<RuleSet>) -> Bench {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = MemoryStore::new(clock.clone(), 1_000);
        let limiter = Arc::new(Limiter::new(store, Behaviour::default()));
        let options = Options {
            headers: Some(HeaderNames {
                limit: "RateLimit-Limit".into(),
                remaining: "RateLimit-Remaining".into(),
                reset: "RateLimit-Reset".into(),
            }),
            retry_after: true,
            ratelimit_fields: true,
            dynamic_metadata: true,
            budget: Duration::from_millis(8),
        };
        let in_force = Rules::default();
        in_force.store(Some(rules));
        Bench { clock, service: RateLimit::new(limiter, in_force, options) }
    }

    pub fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Refused> {
        let answer = pin!(self.service.answer(request, None));
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("memory answers at once"),
        }
    }
}

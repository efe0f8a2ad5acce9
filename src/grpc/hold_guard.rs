//! Concurrency holds of calls that are cancelled.
//!
//! When its own client goes away, Envoy resets the call and never reports the end of the stream. So
//! what the call took is given back, unless its answer was sent. A reset that arrives after the answer
//! was written is not seen: that hold lapses with its time-out.

use std::fmt;

use tokio::runtime::Handle;

use crate::limiter::Holds;
use crate::service::RateLimit;
use crate::store::Store;

/// Gives back what a call took of concurrency limits when dropped, unless its answer was
/// [sent](HoldGuard::keep).
#[derive(Default)]
pub(super) struct HoldGuard(Option<Box<dyn FnOnce() + Send>>);

impl HoldGuard {
    pub fn new<S: Store + 'static>(rate_limit: &RateLimit<S>, holds: Holds) -> HoldGuard {
        if holds.is_empty() {
            return HoldGuard(None);
        }
        let rate_limit = rate_limit.clone();
        HoldGuard(Some(Box::new(move || {
            // Without a runtime the process ends.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { rate_limit.give_back(holds).await });
            }
        })))
    }

    /// Keeps what was taken: its end is for the client to report.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HoldGuard").field(&self.0.is_some()).finish()
    }
}

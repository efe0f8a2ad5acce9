//! Releases the concurrency holds of cancelled calls.
//!
//! When its own client disconnects, Envoy resets the call and never reports the end of the stream.
//! So the holds of a call are released unless its response was sent. A reset that arrives after the
//! response was written is not noticed: that hold expires with `hold_timeout`.

use std::fmt;

use tokio::runtime::Handle;

use crate::service::RateLimit;
use weir_limiter::Holds;
use weir_store::Store;

/// Releases the holds of a call when dropped, unless they are [kept](HoldGuard::keep).
#[derive(Default)]
pub(super) struct HoldGuard(Option<Box<dyn FnOnce() + Send>>);

impl HoldGuard {
    pub fn new<S: Store>(rate_limit: &RateLimit<S>, holds: Holds) -> HoldGuard {
        if holds.is_empty() {
            return HoldGuard(None);
        }
        let rate_limit = rate_limit.clone();
        HoldGuard(Some(Box::new(move || {
            // There is no runtime only when the process exits.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(async move { rate_limit.release(holds).await });
            }
        })))
    }

    /// Keeps the holds: the response was sent, and the client reports the end of the stream.
    pub fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HoldGuard").field(&self.0.is_some()).finish()
    }
}

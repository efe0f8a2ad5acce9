//! Releases the concurrency holds and reservations of cancelled calls.
//!
//! When its own client disconnects, Envoy resets the call and never reports the end of the stream.
//! So the holds of a call are released unless its response was sent. A reset that arrives after the
//! response was written is not noticed: that hold expires with `hold_timeout`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;

use super::RateLimit;
use weir_limiter::Holds;
use weir_store::Store;

/// Releases the holds of a call when its last clone is dropped, unless they are [kept](HoldGuard::keep).
///
/// Clones are for the extensions of a response.
#[derive(Clone, Default)]
pub struct HoldGuard(Option<Arc<Release>>);

struct Release {
    is_kept: AtomicBool,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl HoldGuard {
    pub fn new<S: Store>(rate_limit: &RateLimit<S>, holds: Holds) -> HoldGuard {
        if holds.is_empty() {
            return HoldGuard(None);
        }
        // This thread's, which has a connection to the store, wherever the guard is dropped. There is none
        // only when the process exits.
        let Ok(runtime) = Handle::try_current() else { return HoldGuard(None) };
        let rate_limit = rate_limit.clone();
        let release = move || drop(runtime.spawn(async move { rate_limit.release(holds).await }));
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

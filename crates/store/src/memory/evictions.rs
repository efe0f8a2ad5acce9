//! Warns if keys at their limit are evicted.

use std::time::Duration;

use super::MemoryStore;
use weir_common::throttle::Throttle;

/// How often the warning is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Watches for a store that is too small. Reads its counts from time to time, so that eviction
/// itself costs nothing more.
#[derive(Debug)]
pub(super) struct Evictions {
    throttle: Throttle,
    /// Evictions of keys at their limit, as of the last warning.
    warned: u64,
    /// The count of evictions at the last check.
    seen: u64,
}

impl Default for Evictions {
    fn default() -> Self {
        Evictions { throttle: Throttle::new(LOG_INTERVAL), warned: 0, seen: 0 }
    }
}

impl Evictions {
    /// Warns if keys at their limit were evicted since the last check.
    pub fn check<C>(&mut self, store: &MemoryStore<C>) {
        let evicted = store.stats().evicted.full;
        if evicted == self.seen {
            return;
        }
        self.seen = evicted;
        if let Some(suppressed) = self.throttle.pass() {
            tracing::warn!(
                evicted = evicted - self.warned,
                max_keys = store.max_keys(),
                setting = "store.memory.max_keys",
                suppressed,
                "the memory store is full: keys at their limit were evicted and start over at zero"
            );
            self.warned = evicted;
        }
    }
}

//! Warns if keys at their limit are evicted, and reservations that are open.

use std::time::Duration;

use super::MemoryStore;
use weir_common::throttle::Throttle;

/// How often each warning is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Watches for a store that is too small. Reads its counts from time to time, so that eviction
/// itself costs nothing more.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    keys: Watched,
    reservations: Watched,
}

/// A count that a warning is about.
#[derive(Debug)]
struct Watched {
    throttle: Throttle,
    /// The count at the last warning.
    warned: u64,
    /// The count at the last check.
    seen: u64,
}

impl Default for Watched {
    fn default() -> Self {
        Watched { throttle: Throttle::new(LOG_INTERVAL), warned: 0, seen: 0 }
    }
}

impl Watched {
    /// Returns by how much the count has grown since the last warning, and the warnings that were suppressed; none
    /// if it has not grown since the last check, or too little time has passed.
    fn check(&mut self, count: u64) -> Option<(u64, u64)> {
        if count == self.seen {
            return None;
        }
        self.seen = count;
        let suppressed = self.throttle.pass()?;
        let grown = count - self.warned;
        self.warned = count;
        Some((grown, suppressed))
    }
}

impl Evictions {
    /// Warns if keys at their limit, or open reservations, were evicted since the last check.
    pub fn check<C>(&mut self, store: &MemoryStore<C>) {
        let stats = store.stats();
        if let Some((evicted, suppressed)) = self.keys.check(stats.evicted.full) {
            tracing::warn!(
                evicted,
                max_keys = store.max_keys(),
                setting = "store.memory.max_keys",
                suppressed,
                "the memory store is full: keys at their limit were evicted and start over at zero"
            );
        }
        let lost = stats.reservations_evicted + stats.reservations_unrecorded;
        if let Some((lost, suppressed)) = self.reservations.check(lost) {
            tracing::warn!(
                lost,
                max_reservations = store.reservations.max(),
                setting = "store.memory.max_keys",
                suppressed,
                "the memory store is full: reservations are not kept and stay charged"
            );
        }
    }
}

//! Sweeping, the warning about evictions, and metrics.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::MemoryStore;
use super::evictions::Evictions;
use crate::clock::Clock;
use crate::store::{BackendStatus, MetricFamilies, Operations, StoreStatus};

/// How often some shards are swept, and how many times it takes to sweep all.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const SWEEPS_PER_ROUND: usize = 100;

/// How many sweeps lie between two looks at evictions.
const SWEEPS_PER_CHECK: u32 = 10;

impl<C: Clock> Operations for MemoryStore<C> {
    /// Frees expired keys while there is no traffic; requests free them along the way. Warns if the
    /// store is too small.
    async fn maintain(&self) {
        let (mut evictions, mut ticks) = (Evictions::default(), 0_u32);
        let mut tick = interval(SWEEP_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tick.tick().await;
            self.sweep(self.shards().div_ceil(SWEEPS_PER_ROUND));
            ticks = ticks.wrapping_add(1);
            if ticks.is_multiple_of(SWEEPS_PER_CHECK) {
                evictions.check(self);
            }
        }
    }

    fn status(&self, status: &mut StoreStatus) {
        let keys = Some(self.stats().keys);
        let (instance, kind) = ("main", "memory");
        status.backends.push(BackendStatus { instance, kind, keys, ..BackendStatus::default() });
    }

    fn collect(&self, families: &mut MetricFamilies) {
        let stats = self.stats();
        families.gauge("store_keys", "Keys held", &[], stats.keys);
        families.gauge("store_table_bytes", "Bytes allocated for keys", &[], stats.table_bytes);
        let help = "Keys evicted to make room that had expired or were below their limit";
        for (state, count) in
            [("expired", stats.evicted.expired), ("below_limit", stats.evicted.live)]
        {
            families.counter("store_evictions", help, &[("state", state)], count);
        }
        let help = "Keys evicted to make room that were at or over their limit";
        families.counter("store_evictions_at_limit", help, &[], stats.evicted.full);
        families.counter(
            "store_expired_keys",
            "Expired keys removed by sweeping",
            &[],
            stats.swept,
        );
    }
}

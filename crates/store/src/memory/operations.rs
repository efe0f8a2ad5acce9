//! Maintenance, status and metrics of the memory store: sweeps expired keys, warns of evictions that lose counts.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval};

use super::MemoryStore;
use super::stats::Evicted;
use crate::operations::{BackendStatus, Operations, StoreStatus};
use weir_common::clock::Clock;
use weir_common::metric_families;
use weir_common::metrics::MetricSink;
use weir_common::throttle::Throttle;

/// How often some shards are swept, and how many times it takes to sweep all.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const SWEEPS_PER_ROUND: usize = 100;

/// How many sweeps lie between two checks for evictions.
const SWEEPS_PER_CHECK: u32 = 10;

const LOG_INTERVAL: Duration = Duration::from_secs(60);

metric_families! {
    KEYS: gauge("store_keys", &[]) = "Keys held";
    TABLE_BYTES: gauge("store_table_bytes", &[]) = "Bytes allocated for keys and reservations";
    RESERVATIONS: gauge("store_reservations", &[]) = "Reservations held";
    RESERVATIONS_EVICTED: counter("reservations_evicted", &[])
        = "Reservations evicted to make room before they lapsed; their hits stay charged";
    RESERVATIONS_UNRECORDED: counter("reservations_unrecorded", &[])
        = "Reservations not kept, because their key had a sixteenth of a full table; their hits stay charged";
    EVICTIONS: counter("store_evictions", &["state"])
        = "Keys evicted to make room that had expired or were below their limit";
    EVICTIONS_AT_LIMIT: counter("store_evictions_at_limit", &[])
        = "Keys evicted to make room that were at or over their limit";
    EXPIRED_KEYS: counter("store_expired_keys", &[]) = "Expired keys removed by sweeping";
}

impl<C: Clock> Operations for MemoryStore<C> {
    fn maintain(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.sweep_continuously())
    }

    fn status(&self, status: &mut StoreStatus) {
        let keys = Some(self.stats().keys);
        let (instance, kind) = ("main", "memory");
        status.backends.push(BackendStatus { instance, kind, keys, ..BackendStatus::default() });
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        let stats = self.stats();
        sink.gauge(KEYS, stats.keys as f64);
        sink.gauge(TABLE_BYTES, stats.table_bytes as f64);
        sink.gauge(RESERVATIONS, stats.reservations as f64);
        sink.counter(RESERVATIONS_EVICTED, stats.reservations_evicted);
        sink.counter(RESERVATIONS_UNRECORDED, stats.reservations_unrecorded);
        let Evicted { expired, live, full } = stats.evicted;
        sink.counters(EVICTIONS, [("expired", expired), ("below_limit", live)]);
        sink.counter(EVICTIONS_AT_LIMIT, full);
        sink.counter(EXPIRED_KEYS, stats.swept);
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Frees expired keys while there is no traffic; requests free them along the way. Warns if the store is too small.
    async fn sweep_continuously(&self) {
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
}

/// Watches for a store that is too small, by its counts from time to time, so that eviction costs no more.
#[derive(Debug, Default)]
pub(in crate::memory) struct Evictions {
    keys: Watched,
    reservations: Watched,
}

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
    /// Returns by how much the count has grown since the last warning, and the warnings that were suppressed; none if
    /// it has not grown since the last check, or too little time has passed.
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
    pub fn check<C>(&mut self, store: &MemoryStore<C>) {
        let stats = store.stats();
        if let Some((evicted, suppressed)) = self.keys.check(stats.evicted.full) {
            tracing::warn!(
                evicted,
                max_keys = store.max_keys,
                setting = "store.memory.max_keys",
                suppressed,
                "the memory store is full: keys at their limit were evicted and start over at zero"
            );
        }
        let lost = stats.reservations_evicted + stats.reservations_unrecorded;
        if let Some((lost, suppressed)) = self.reservations.check(lost) {
            tracing::warn!(
                lost,
                max_reservations = store.reservations.max,
                setting = "store.memory.max_keys",
                suppressed,
                "the memory store is full: reservations are not kept and stay charged"
            );
        }
    }
}

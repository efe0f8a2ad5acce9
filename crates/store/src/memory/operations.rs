//! Sweeping, the warning about evictions, and metrics.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval};

use super::MemoryStore;
use super::evictions::Evictions;
use crate::{BackendStatus, Operations, StoreStatus};
use weir_common::clock::Clock;
use weir_common::metrics::{MetricFamily, MetricSink, SampleValue};

/// How often some shards are swept, and how many times it takes to sweep all.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
const SWEEPS_PER_ROUND: usize = 100;

/// How many sweeps lie between two looks at evictions.
const SWEEPS_PER_CHECK: u32 = 10;

const KEYS: MetricFamily = MetricFamily::gauge("store_keys", "Keys held", &[]);
const TABLE_BYTES: MetricFamily =
    MetricFamily::gauge("store_table_bytes", "Bytes allocated for keys and reservations", &[]);
const RESERVATIONS: MetricFamily =
    MetricFamily::gauge("store_reservations", "Reservations held", &[]);
const RESERVATIONS_EVICTED: MetricFamily = MetricFamily::counter(
    "reservations_evicted",
    "Reservations evicted to make room before they lapsed; their hits stay charged",
    &[],
);
const RESERVATIONS_UNRECORDED: MetricFamily = MetricFamily::counter(
    "reservations_unrecorded",
    "Reservations not kept, because their key had a sixteenth of a full table; their hits stay charged",
    &[],
);
const EVICTIONS: MetricFamily = MetricFamily::counter(
    "store_evictions",
    "Keys evicted to make room that had expired or were below their limit",
    &["state"],
);
const EVICTIONS_AT_LIMIT: MetricFamily = MetricFamily::counter(
    "store_evictions_at_limit",
    "Keys evicted to make room that were at or over their limit",
    &[],
);
const EXPIRED_KEYS: MetricFamily =
    MetricFamily::counter("store_expired_keys", "Expired keys removed by sweeping", &[]);

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
        sink.family(EVICTIONS);
        for (state, count) in
            [("expired", stats.evicted.expired), ("below_limit", stats.evicted.live)]
        {
            sink.sample(&[("state", state)], SampleValue::Counter(count));
        }
        sink.counter(EVICTIONS_AT_LIMIT, stats.evicted.full);
        sink.counter(EXPIRED_KEYS, stats.swept);
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Frees expired keys while there is no traffic; requests free them along the way. Warns if the
    /// store is too small.
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

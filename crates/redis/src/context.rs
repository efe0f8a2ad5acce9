//! What all connections of a Redis store share: options, counts of the traffic for metrics, the log.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::log::RedisLog;
use super::options::{RedisOptions, Topology};
use weir_common::metrics::Histogram;

#[derive(Debug)]
pub(super) struct RedisContext {
    pub options: RedisOptions,
    pub is_proxy: bool,
    pub counts: RedisCounts,
    /// Times of round trips, in microseconds.
    pub trip_times: Histogram,
    pub batch_keys: Histogram,
    /// Notified when a connection is up or fails for the first time, and when a cluster's nodes change.
    pub changed: watch::Sender<()>,
    pub log: RedisLog,
    /// When a connection that was down or slow last came up.
    pub recovered: Mutex<Option<Instant>>,
    /// How late the last late reply came, since a connection last came up.
    pub late: Mutex<Option<Duration>>,
}

impl RedisContext {
    pub fn new(options: RedisOptions) -> RedisContext {
        RedisContext {
            is_proxy: matches!(options.topology, Topology::Proxy(_)),
            options,
            counts: RedisCounts::default(),
            trip_times: Histogram::new(TIME_BOUNDS, 1e6),
            batch_keys: Histogram::new(KEY_BOUNDS, 1.0),
            changed: watch::Sender::new(()),
            log: RedisLog::default(),
            recovered: Mutex::default(),
            late: Mutex::default(),
        }
    }
}

/// Counts of the traffic to Redis, since the start.
#[derive(Debug, Default)]
pub struct RedisCounts {
    /// Round trips.
    pub trips: AtomicU64,
    /// Calls of scripts.
    pub calls: AtomicU64,
    /// Charges.
    pub charges: AtomicU64,
    /// Keys charged: fewer than charges where several charges of one key shared a round trip.
    pub keys: AtomicU64,
    /// Keys charged without a script.
    pub plain: AtomicU64,
    /// Round trips that took longer than [`RedisOptions::slow_after`](super::RedisOptions::slow_after).
    pub overdue: AtomicU64,
    /// Times that a connection went down: lost, or its server refuses commands. Slow ones are not counted.
    pub down: AtomicU64,
    /// Times that a connection that was down came up.
    pub up: AtomicU64,
}

const TIME_BOUNDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

const KEY_BOUNDS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

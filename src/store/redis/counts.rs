//! Counts of the traffic to Redis, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::StoreError;

/// Counts of the traffic to Redis, since the start.
#[derive(Debug, Default)]
pub struct RedisCounts {
    /// Round trips.
    pub trips: AtomicU64,
    /// Script calls.
    pub calls: AtomicU64,
    pub charges: AtomicU64,
    /// Keys charged: fewer than charges where several charges of one key shared a round trip.
    pub keys: AtomicU64,
    /// Keys charged without a script.
    pub plain: AtomicU64,
    /// Round trips that took longer than [`Options::slow_after`](super::Options::slow_after).
    pub overdue: AtomicU64,
    /// Times that a connection went down.
    pub down: AtomicU64,
    /// Times that a connection came back up.
    pub up: AtomicU64,
    /// Failed keys, by kind: wrong type, unreadable state, no memory, read-only, other.
    pub failed: [AtomicU64; 5],
}

impl RedisCounts {
    /// Counts a key, or a command, that failed.
    pub(super) fn count_failure(&self, error: StoreError) {
        let kind = match error {
            StoreError::WrongType => 0,
            StoreError::Corrupt => 1,
            StoreError::OutOfMemory => 2,
            StoreError::ReadOnly => 3,
            StoreError::Unavailable | StoreError::TimedOut | StoreError::CallerDeadline => 4,
        };
        self.failed[kind].fetch_add(1, Ordering::Relaxed);
    }
}

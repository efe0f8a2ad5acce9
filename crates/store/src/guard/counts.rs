//! Counts of failed charges.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{OnStoreFailure, StoreError};

/// Charges that the store failed to answer, since the start.
#[derive(Debug, Default)]
pub struct FailureCounts {
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
    failed: [AtomicU64; StoreError::ALL.len()],
}

impl StoreError {
    /// Every kind.
    pub const ALL: [StoreError; 7] = [
        StoreError::Unavailable,
        StoreError::TimedOut,
        StoreError::CallerDeadline,
        StoreError::ReadOnly,
        StoreError::OutOfMemory,
        StoreError::WrongType,
        StoreError::Corrupt,
    ];
}

/// The name of an error as a metric label.
pub fn kind_name(failed: StoreError) -> &'static str {
    match failed {
        StoreError::Unavailable => "unavailable",
        StoreError::TimedOut => "timed_out",
        StoreError::CallerDeadline => "caller_deadline",
        StoreError::ReadOnly => "read_only",
        StoreError::OutOfMemory => "out_of_memory",
        StoreError::WrongType => "wrong_type",
        StoreError::Corrupt => "corrupt",
    }
}

impl FailureCounts {
    /// Charges answered by a policy.
    pub fn degraded(&self, policy: OnStoreFailure) -> u64 {
        self.degraded[policy as usize].load(Ordering::Relaxed)
    }

    /// Charges that failed with this error.
    pub fn failed(&self, kind: StoreError) -> u64 {
        self.failed[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, policy: OnStoreFailure, kind: StoreError) {
        self.degraded[policy as usize].fetch_add(1, Ordering::Relaxed);
        self.failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

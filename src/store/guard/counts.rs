//! What failed, and how it was answered.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Failed, OnStoreFailure};

/// Charges that the store could not answer, since the start.
#[derive(Debug, Default)]
pub struct Counts {
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
    failed: [AtomicU64; Failed::ALL.len()],
}

impl Failed {
    /// Every kind.
    pub const ALL: [Failed; 7] = [
        Failed::Unavailable,
        Failed::TimedOut,
        Failed::CallerDeadline,
        Failed::ReadOnly,
        Failed::OutOfMemory,
        Failed::WrongType,
        Failed::Corrupt,
    ];
}

/// A kind of failure in one word, as metrics label it.
pub fn kind_name(failed: Failed) -> &'static str {
    match failed {
        Failed::Unavailable => "unavailable",
        Failed::TimedOut => "timed_out",
        Failed::CallerDeadline => "caller_deadline",
        Failed::ReadOnly => "read_only",
        Failed::OutOfMemory => "out_of_memory",
        Failed::WrongType => "wrong_type",
        Failed::Corrupt => "corrupt",
    }
}

impl Counts {
    /// Charges answered by a policy.
    pub fn degraded(&self, policy: OnStoreFailure) -> u64 {
        self.degraded[policy as usize].load(Ordering::Relaxed)
    }

    /// Charges that failed in one way.
    pub fn failed(&self, kind: Failed) -> u64 {
        self.failed[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, policy: OnStoreFailure, kind: Failed) {
        self.degraded[policy as usize].fetch_add(1, Ordering::Relaxed);
        self.failed[kind as usize].fetch_add(1, Ordering::Relaxed);
    }
}

//! Removes expired keys and reservations from the shards of the memory store, of which each has its own lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::table::Now;

/// How many buckets of a table are swept under one lock.
const SWEEP_STRIDE: usize = 1024;

/// Starts a cache line, so that neighbours do not slow each other down.
#[repr(align(64))]
pub(super) struct Aligned<T>(pub Mutex<T>);

pub(super) trait Sweep {
    /// Returns the buckets of the largest table.
    fn buckets(&self) -> usize;

    fn sweep(&mut self, buckets: usize, now: Now);

    /// Shrinks tables that have become too large. Returns what to free after the lock is released.
    fn shrink(&mut self) -> impl Sized + use<Self>;
}

pub(super) fn sweep_next<T: Sweep>(
    shards: &[Aligned<T>],
    next: &AtomicUsize,
    count: usize,
    now: Now,
) {
    for _ in 0..count {
        let next = next.fetch_add(1, Ordering::Relaxed) % shards.len();
        let Aligned(shard) = &shards[next];
        // A stride stops at the end of a table, so a round that starts midway takes one more.
        let strides = shard.lock().buckets() / SWEEP_STRIDE + 2;
        for _ in 0..strides {
            shard.lock().sweep(SWEEP_STRIDE, now);
        }
        let unused = shard.lock().shrink();
        drop(unused);
    }
}

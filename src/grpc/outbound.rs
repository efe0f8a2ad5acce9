//! The responses of one connection that h2 holds and the socket has not taken.
//!
//! h2 buffers what it cannot write and does not report how much that is. So a bounded number of
//! bytes is handed to it, and then no more until it has written everything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that may be handed to h2 before it writes.
const MAX_UNWRITTEN_BYTES: usize = 128 << 10;

/// Bytes that a response takes besides its message: three frames and two header maps.
pub(super) const RESPONSE_OVERHEAD_BYTES: usize = 1 << 10;

/// Only the connection's task uses it; the atomics merely make it `Sync`.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    unwritten_bytes: AtomicUsize,
    blocked: AtomicBool,
}

impl Outbound {
    /// Counts a response, or a part of one, that is handed to h2.
    pub fn hand_over(&self, bytes: usize) {
        let before = self.unwritten_bytes.load(Ordering::Relaxed);
        self.unwritten_bytes
            .store(before.saturating_add(bytes + RESPONSE_OVERHEAD_BYTES), Ordering::Relaxed);
    }

    /// Whether h2 has to write before more is handed over.
    pub fn is_full(&self) -> bool {
        self.unwritten_bytes.load(Ordering::Relaxed) >= MAX_UNWRITTEN_BYTES
    }

    /// Whether the socket did not take all that h2 wrote.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Notes that h2 has written what it could. Returns whether that was everything.
    pub fn after_write(&self) -> bool {
        if self.is_blocked() {
            return false;
        }
        self.unwritten_bytes.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_handed_over_until_everything_is_written() {
        let outbound = Outbound::default();
        let mut responses = 0;
        while !outbound.is_full() {
            outbound.hand_over(100);
            responses += 1;
        }
        assert!((64..=128).contains(&responses), "{responses}");
        outbound.set_blocked(true);
        assert!(!outbound.after_write() && outbound.is_full());
        outbound.set_blocked(false);
        assert!(outbound.after_write() && !outbound.is_full());
    }
}

//! The answers of one connection that HTTP/2 has taken and the socket has not.
//!
//! HTTP/2 keeps what it cannot write, and does not say how much that is. So no more is handed to it
//! until it has written all it had.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that are handed over before the connection writes.
const MAX_UNWRITTEN_BYTES: usize = 128 << 10;

/// Bytes that an answer takes besides its message: three frames and two header maps.
pub(super) const RESPONSE_OVERHEAD_BYTES: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct Outbound {
    bytes: AtomicUsize,
    blocked: AtomicBool,
}

impl Outbound {
    /// Counts an answer, or a part of one, that is handed to HTTP/2. Only the connection's task does
    /// that.
    pub fn hand_over(&self, bytes: usize) {
        let before = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(before.saturating_add(bytes + RESPONSE_OVERHEAD_BYTES), Ordering::Relaxed);
    }

    /// Whether the connection has to write before more is handed over.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= MAX_UNWRITTEN_BYTES
    }

    /// Whether the socket took less than it was given.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// The connection has written as much as it could. Returns whether that was all.
    pub fn written(&self) -> bool {
        if self.is_blocked() {
            return false;
        }
        self.bytes.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_handed_over_until_all_is_written() {
        let outbound = Outbound::default();
        let mut answers = 0;
        while !outbound.is_full() {
            outbound.hand_over(100);
            answers += 1;
        }
        assert!((64..=128).contains(&answers), "{answers}");
        outbound.set_blocked(true);
        assert!(!outbound.written() && outbound.is_full());
        outbound.set_blocked(false);
        assert!(outbound.written() && !outbound.is_full());
    }
}

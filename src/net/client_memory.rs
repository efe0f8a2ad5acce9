//! Bounds the memory for partly received requests and unread responses (the setting `clients.max_buffered`).
//!
//! The first bytes of a connection are free, so that a client with small requests is served
//! however much memory other clients use. What a connection uses beyond that counts against a limit
//! that all connections share. One connection gets at most an eighth of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use weir_common::throttle::Throttle;

/// One connection may use the limit of all connections divided by this.
const CONNECTION_DIVISOR: usize = 8;

/// The limit that all connections share, and what they use of it.
#[derive(Debug)]
pub struct ClientMemory {
    max_bytes: usize,
    /// Bytes per connection that do not count against the limit.
    free_bytes: usize,
    held_bytes: AtomicUsize,
    log: Throttle,
}

impl ClientMemory {
    pub fn new(max_bytes: usize, free_bytes: usize) -> Arc<ClientMemory> {
        let (held_bytes, log) = Default::default();
        Arc::new(ClientMemory { max_bytes, free_bytes, held_bytes, log })
    }

    /// Counts bytes against the limit. Returns false, and counts none, if there is no room for them.
    pub fn try_acquire(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let take = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.max_bytes);
        self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    pub fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn log_refusal(&self) {
        if let Some(suppressed) = self.log.pass() {
            tracing::warn!(
                setting = "clients.max_buffered",
                suppressed,
                "client refused: buffered requests and responses use too much memory"
            );
        }
    }
}

/// The part of the memory that one connection uses.
#[derive(Debug)]
pub struct ConnectionMemory {
    clients: Arc<ClientMemory>,
    free_bytes: usize,
    held_bytes: Mutex<usize>,
}

impl ConnectionMemory {
    pub fn new(clients: &Arc<ClientMemory>) -> Arc<ConnectionMemory> {
        ConnectionMemory::with_free(clients, clients.free_bytes)
    }

    /// Returns a part in which nothing is free.
    pub fn without_free(clients: &Arc<ClientMemory>) -> Arc<ConnectionMemory> {
        ConnectionMemory::with_free(clients, 0)
    }

    fn with_free(clients: &Arc<ClientMemory>, free_bytes: usize) -> Arc<ConnectionMemory> {
        let (clients, held_bytes) = (clients.clone(), Mutex::new(0));
        Arc::new(ConnectionMemory { clients, free_bytes, held_bytes })
    }

    /// Returns how much of what the connection holds counts.
    fn counted(&self, held: usize) -> usize {
        held.saturating_sub(self.free_bytes)
    }

    pub fn reservation(self: &Arc<Self>) -> HeldMemory {
        HeldMemory { connection: self.clone(), bytes: 0 }
    }

    fn try_acquire(&self, bytes: usize) -> bool {
        let mut held = self.held_bytes.lock();
        let after = held.saturating_add(bytes);
        let more = self.counted(after) - self.counted(*held);
        let most = self.clients.max_bytes / CONNECTION_DIVISOR;
        let fits = self.counted(after) <= most || more == 0;
        if !fits || !self.clients.try_acquire(more) {
            return false;
        }
        *held = after;
        true
    }

    fn release(&self, bytes: usize) {
        let mut held = self.held_bytes.lock();
        let less = self.counted(*held) - self.counted(*held - bytes);
        *held -= bytes;
        self.clients.release(less);
    }
}

/// The memory of one buffer, released when this is dropped.
#[derive(Debug)]
pub struct HeldMemory {
    connection: Arc<ConnectionMemory>,
    bytes: usize,
}

impl HeldMemory {
    /// Sets what is held to `bytes`. Returns false, logs a refusal, and changes nothing, if that
    /// exceeds the limit.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let is_held = self.try_grow(more);
            if !is_held {
                self.connection.clients.log_refusal();
            }
            return is_held;
        }
        self.connection.release(self.bytes - bytes);
        self.bytes = bytes;
        true
    }

    /// Holds more. Returns false, and changes nothing, if that exceeds the limit.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let is_held = self.connection.try_acquire(more);
        if is_held {
            self.bytes += more;
        }
        is_held
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.connection.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;
    const PART: usize = MAX / CONNECTION_DIVISOR;
    const FREE_BYTES: usize = 128 << 10;

    fn clients(max_bytes: usize) -> Arc<ClientMemory> {
        ClientMemory::new(max_bytes, FREE_BYTES)
    }

    #[test]
    fn a_connection_gets_an_eighth_of_the_memory_and_returns_it() {
        let clients = clients(MAX);
        let account = ConnectionMemory::new(&clients);
        let (mut one, mut two) = (account.reservation(), account.reservation());
        assert!(one.resize(FREE_BYTES) && clients.held_bytes.load(Ordering::Relaxed) == 0);
        assert!(one.resize(FREE_BYTES + PART - 1));
        assert!(two.resize(1) && !two.resize(2), "its part is used up");
        assert_eq!(clients.held_bytes.load(Ordering::Relaxed), PART);
        drop(one);
        assert!(two.resize(FREE_BYTES + PART));
        drop(two);
        assert_eq!(clients.held_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_free_bytes_do_not_depend_on_other_connections() {
        let clients = clients(MAX);
        let reservations: Vec<HeldMemory> = (0..CONNECTION_DIVISOR)
            .map(|_| {
                let mut reservation = ConnectionMemory::new(&clients).reservation();
                assert!(reservation.resize(FREE_BYTES + PART));
                reservation
            })
            .collect();
        let mut late = ConnectionMemory::new(&clients).reservation();
        assert!(!late.resize(FREE_BYTES + 1));
        assert!(late.resize(FREE_BYTES));
        drop(reservations);
        assert!(late.resize(FREE_BYTES + 1));
    }

    #[test]
    fn nothing_is_free_where_all_counts() {
        let clients = clients(MAX);
        let mut waiting = ConnectionMemory::without_free(&clients).reservation();
        assert!(waiting.try_grow(PART - 1) && waiting.try_grow(1) && !waiting.try_grow(1));
        assert_eq!(clients.held_bytes.load(Ordering::Relaxed), PART);
        assert!(waiting.resize(0) && !waiting.resize(PART + 1));
        assert_eq!(clients.held_bytes.load(Ordering::Relaxed), 0);
    }

    proptest! {
        #[test]
        fn the_memory_is_the_sum_of_what_connections_hold_beyond_the_free_bytes(
            steps in prop::collection::vec((0..6_usize, 0..3_usize, 0..3 * FREE_BYTES), 0..200),
        ) {
            let clients = clients(2 * FREE_BYTES * CONNECTION_DIVISOR / 3);
            let accounts: Vec<_> = (0..6).map(|_| ConnectionMemory::new(&clients)).collect();
            let reservation = |account: &Arc<ConnectionMemory>| account.reservation();
            let mut reservations: Vec<[HeldMemory; 3]> =
                accounts.iter().map(|a| [reservation(a), reservation(a), reservation(a)]).collect();
            for (account, which, bytes) in steps {
                let reservation = &mut reservations[account][which];
                let before = reservation.bytes;
                let done = reservation.resize(bytes);
                prop_assert_eq!(reservation.bytes, if done { bytes } else { before });
                prop_assert!(done || bytes > before, "holding less never fails");
                let mut total = 0;
                for (account, reservations) in accounts.iter().zip(&reservations) {
                    let held: usize = reservations.iter().map(|reservation| reservation.bytes).sum();
                    prop_assert_eq!(*account.held_bytes.lock(), held);
                    let counted = account.counted(held);
                    prop_assert!(counted <= clients.max_bytes / CONNECTION_DIVISOR);
                    total += counted;
                }
                prop_assert_eq!(clients.held_bytes.load(Ordering::Relaxed), total);
                prop_assert!(total <= clients.max_bytes);
            }
            drop(reservations);
            prop_assert_eq!(clients.held_bytes.load(Ordering::Relaxed), 0);
        }
    }
}

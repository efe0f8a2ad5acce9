//! The memory that clients make the process hold: partly received requests and unread answers.
//!
//! Every connection may hold a little, whatever the others hold, so that a client with small
//! requests is served. What it holds beyond that counts in a budget of all connections together,
//! and one connection cannot use it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::LOG_INTERVAL;
use crate::throttle::Throttle;

/// Bytes that a connection may hold besides the budget.
pub(super) const FREE_BYTES: usize = 128 << 10;

/// One connection may hold this part of the budget: an eighth.
const MAX_CONNECTION_FRACTION: usize = 8;

/// What all connections together may hold.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    max: usize,
    held: AtomicUsize,
    log: Throttle,
}

impl MemoryBudget {
    pub fn new(max: usize) -> Arc<MemoryBudget> {
        let log = Throttle::new(LOG_INTERVAL);
        Arc::new(MemoryBudget { max, held: AtomicUsize::new(0), log })
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.max;
        if !fits {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn log_refusal(&self) {
        if let Some(suppressed) = self.log.pass() {
            tracing::warn!(
                setting = "grpc.max_buffered",
                suppressed,
                "refused a gRPC request: clients hold too much memory"
            );
        }
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(super) struct ConnectionBudget {
    budget: Arc<MemoryBudget>,
    held: Mutex<usize>,
}

impl ConnectionBudget {
    pub fn new(budget: &Arc<MemoryBudget>) -> Arc<ConnectionBudget> {
        Arc::new(ConnectionBudget { budget: budget.clone(), held: Mutex::new(0) })
    }

    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { account: self.clone(), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let mut held = self.held.lock();
        let after = held.saturating_add(bytes);
        let more = beyond(after) - beyond(*held);
        let fits = beyond(after) <= self.budget.max / MAX_CONNECTION_FRACTION || more == 0;
        if !fits || !self.budget.take(more) {
            drop(held);
            self.budget.log_refusal();
            return false;
        }
        *held = after;
        true
    }

    fn give_back(&self, bytes: usize) {
        let mut held = self.held.lock();
        let less = beyond(*held) - beyond(*held - bytes);
        *held -= bytes;
        self.budget.held.fetch_sub(less, Ordering::Relaxed);
    }
}

/// How much of what a connection holds counts in the budget.
fn beyond(held: usize) -> usize {
    held.saturating_sub(FREE_BYTES)
}

/// What one call holds of its connection's account. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    account: Arc<ConnectionBudget>,
    bytes: usize,
}

impl Reservation {
    /// Holds `bytes` from now on. Returns false where that is too much; then nothing changes.
    pub fn resize(&mut self, bytes: usize) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) if !self.account.take(more) => return false,
            Some(_) => {}
            None => self.account.give_back(self.bytes - bytes),
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;
    const PART: usize = MAX / MAX_CONNECTION_FRACTION;

    #[test]
    fn a_connection_holds_a_part_and_gives_it_back() {
        let budget = MemoryBudget::new(MAX);
        let account = ConnectionBudget::new(&budget);
        let (mut one, mut two) = (account.reservation(), account.reservation());
        assert!(one.resize(FREE_BYTES) && budget.held.load(Ordering::Relaxed) == 0);
        assert!(one.resize(FREE_BYTES + PART - 1));
        assert!(two.resize(1) && !two.resize(2), "that is its part");
        assert_eq!(budget.held.load(Ordering::Relaxed), PART);
        drop(one);
        assert!(two.resize(FREE_BYTES + PART));
        drop(two);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_connection_may_hold_a_little_whatever_others_hold() {
        let budget = MemoryBudget::new(MAX);
        let reservations: Vec<Reservation> = (0..MAX_CONNECTION_FRACTION)
            .map(|_| {
                let mut reservation = ConnectionBudget::new(&budget).reservation();
                assert!(reservation.resize(FREE_BYTES + PART));
                reservation
            })
            .collect();
        let mut late = ConnectionBudget::new(&budget).reservation();
        assert!(!late.resize(FREE_BYTES + 1));
        assert!(late.resize(FREE_BYTES));
        drop(reservations);
        assert!(late.resize(FREE_BYTES + 1));
    }

    proptest! {
        #[test]
        fn the_budget_holds_what_the_connections_hold_beyond_what_is_free(
            steps in prop::collection::vec((0..6_usize, 0..3_usize, 0..3 * FREE_BYTES), 0..200),
        ) {
            let budget = MemoryBudget::new(2 * FREE_BYTES * MAX_CONNECTION_FRACTION / 3);
            let accounts: Vec<_> = (0..6).map(|_| ConnectionBudget::new(&budget)).collect();
            let reservation = |account: &Arc<ConnectionBudget>| account.reservation();
            let mut reservations: Vec<[Reservation; 3]> =
                accounts.iter().map(|a| [reservation(a), reservation(a), reservation(a)]).collect();
            for (account, which, bytes) in steps {
                let reservation = &mut reservations[account][which];
                let before = reservation.bytes;
                let done = reservation.resize(bytes);
                prop_assert_eq!(reservation.bytes, if done { bytes } else { before });
                prop_assert!(done || bytes > before, "less is always possible");
                let mut counted = 0;
                for (account, reservations) in accounts.iter().zip(&reservations) {
                    let held: usize = reservations.iter().map(|reservation| reservation.bytes).sum();
                    prop_assert_eq!(*account.held.lock(), held);
                    prop_assert!(beyond(held) <= budget.max / MAX_CONNECTION_FRACTION);
                    counted += beyond(held);
                }
                prop_assert_eq!(budget.held.load(Ordering::Relaxed), counted);
                prop_assert!(counted <= budget.max);
            }
            drop(reservations);
            prop_assert_eq!(budget.held.load(Ordering::Relaxed), 0);
        }
    }
}

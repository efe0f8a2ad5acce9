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
const CONNECTION_PART: usize = 8;

/// What all connections together may hold.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    held: AtomicUsize,
    log: Throttle,
}

impl Budget {
    pub fn new(max: usize) -> Arc<Budget> {
        let log = Throttle::new(LOG_INTERVAL);
        Arc::new(Budget { max, held: AtomicUsize::new(0), log })
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
pub(super) struct Account {
    budget: Arc<Budget>,
    held: Mutex<usize>,
}

impl Account {
    pub fn new(budget: &Arc<Budget>) -> Arc<Account> {
        Arc::new(Account { budget: budget.clone(), held: Mutex::new(0) })
    }

    pub fn share(self: &Arc<Self>) -> Share {
        Share { account: self.clone(), bytes: 0 }
    }

    fn take(&self, bytes: usize) -> bool {
        let mut held = self.held.lock();
        let after = held.saturating_add(bytes);
        let more = beyond(after) - beyond(*held);
        let fits = beyond(after) <= self.budget.max / CONNECTION_PART || more == 0;
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
pub(super) struct Share {
    account: Arc<Account>,
    bytes: usize,
}

impl Share {
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

impl Drop for Share {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;
    const PART: usize = MAX / CONNECTION_PART;

    #[test]
    fn a_connection_holds_a_part_and_gives_it_back() {
        let budget = Budget::new(MAX);
        let account = Account::new(&budget);
        let (mut one, mut two) = (account.share(), account.share());
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
        let budget = Budget::new(MAX);
        let shares: Vec<Share> = (0..CONNECTION_PART)
            .map(|_| {
                let mut share = Account::new(&budget).share();
                assert!(share.resize(FREE_BYTES + PART));
                share
            })
            .collect();
        let mut late = Account::new(&budget).share();
        assert!(!late.resize(FREE_BYTES + 1));
        assert!(late.resize(FREE_BYTES));
        drop(shares);
        assert!(late.resize(FREE_BYTES + 1));
    }

    proptest! {
        #[test]
        fn the_budget_holds_what_the_connections_hold_beyond_what_is_free(
            steps in prop::collection::vec((0..6_usize, 0..3_usize, 0..3 * FREE_BYTES), 0..200),
        ) {
            let budget = Budget::new(2 * FREE_BYTES * CONNECTION_PART / 3);
            let accounts: Vec<_> = (0..6).map(|_| Account::new(&budget)).collect();
            let share = |account: &Arc<Account>| account.share();
            let mut shares: Vec<[Share; 3]> =
                accounts.iter().map(|a| [share(a), share(a), share(a)]).collect();
            for (account, which, bytes) in steps {
                let share = &mut shares[account][which];
                let before = share.bytes;
                let done = share.resize(bytes);
                prop_assert_eq!(share.bytes, if done { bytes } else { before });
                prop_assert!(done || bytes > before, "less is always possible");
                let mut counted = 0;
                for (account, shares) in accounts.iter().zip(&shares) {
                    let held: usize = shares.iter().map(|share| share.bytes).sum();
                    prop_assert_eq!(*account.held.lock(), held);
                    prop_assert!(beyond(held) <= budget.max / CONNECTION_PART);
                    counted += beyond(held);
                }
                prop_assert_eq!(budget.held.load(Ordering::Relaxed), counted);
                prop_assert!(counted <= budget.max);
            }
            drop(shares);
            prop_assert_eq!(budget.held.load(Ordering::Relaxed), 0);
        }
    }
}

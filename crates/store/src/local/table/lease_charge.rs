//! The charges that leases make, which no request waits for. Each goes one way:
//!
//! 1. The table makes it under the lock of its shard, and counts it as in flight.
//! 2. The store sends it.
//! 3. Its outcome goes to the table once: by the answer or, if there is none, when it is dropped.
//! 4. The caller that answered gets what the table makes then, and sends it over the same connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::LocalTable;
use crate::charge::Charge;
use crate::local::lease::{Lease, LeasedKey, StateCopy, StoreTime};
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Micros, Op, Plan, State, Undo};

/// A charge that asks for hits, or returns some. Made at most once, and answered once: if it is dropped without an
/// answer, the store has not made it, or its outcome is unknown.
#[derive(Debug)]
pub struct LeaseCharge {
    table: Arc<LocalTable>,
    pub(super) key: Fingerprint,
    leased: Arc<LeasedKey>,
    plan: Arc<Plan>,
    op: Op,
    /// When the charge was sent for the first time; 0 before.
    sent: AtomicU64,
    answered: AtomicBool,
}

impl LeaseCharge {
    /// Makes a charge, in flight from now until it is dropped.
    pub(super) fn new(
        table: &Arc<LocalTable>,
        key: &Fingerprint,
        lease: &mut Lease,
        op: Op,
        now: Micros,
    ) -> Arc<LeaseCharge> {
        table.in_flight.fetch_add(1, Ordering::Relaxed);
        lease.flights.start(now);
        let (table, leased, plan) = (table.clone(), lease.key.clone(), lease.plan.clone());
        let (sent, answered) = Default::default();
        Arc::new(LeaseCharge { table, key: *key, leased, plan, op, sent, answered })
    }

    /// Returns the plan of the key.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the operation: it asks for hits, or returns some.
    pub fn op(&self) -> Op {
        self.op
    }

    /// Passes the charge, which borrows its key, to `then`.
    pub fn with_charge<T>(&self, then: impl FnOnce(&Charge<'_>) -> T) -> T {
        self.leased.charge(&self.plan, self.op, then)
    }

    /// Whether the charge asks for hits. It is sent behind others of its key, served as if nothing were leased.
    pub fn asks(&self) -> bool {
        matches!(self.op, Op::UpTo(_))
    }

    /// Notes that the charge is sent now. What it asks for is used only for a time from the first sending.
    pub fn set_sent(&self) {
        let now = self.table.now().max(1);
        let _ = self.sent.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes the answer of the store: the state before the charge, and what undoes it, if it asked; `now` is the time
    /// that the store charged at. Returns the charges that return what nobody will use.
    pub fn answer(&self, state: State, undos: &[Undo], now: Micros) -> Vec<Arc<LeaseCharge>> {
        self.answered.store(true, Ordering::Relaxed);
        if let Op::Undo(undo) = self.op {
            self.table.counts.returned.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        let at = StoreTime { sent: self.sent.load(Ordering::Relaxed), now };
        self.table.settle(self, StateCopy { state, at }, undos)
    }
}

impl Drop for LeaseCharge {
    fn drop(&mut self) {
        self.table.in_flight.fetch_sub(1, Ordering::Relaxed);
        if *self.answered.get_mut() {
            return;
        }
        if let Op::Undo(undo) = self.op {
            self.table.counts.lost.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        self.table.settle(self, StateCopy::default(), &[]);
    }
}

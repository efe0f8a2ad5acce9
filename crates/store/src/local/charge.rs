//! The charges that leases make, which no request waits for.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lease::{DueCharge, LeaseOp, StoreTime};
use super::table::LocalTable;
use crate::charge::Charge;
use weir_limit::{Micros, Op, Plan, State, Undo, UpTo};

/// Of what is left of the limits, at most one part of this number is leased.
const SHARE: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

/// A charge that asks for hits, or returns some. Made at most once, and answered once: if it is dropped without an
/// answer, the store has not made it, or its outcome is unknown.
#[derive(Debug)]
pub struct LeaseCharge {
    table: Arc<LocalTable>,
    due: DueCharge,
    /// When the charge was sent for the first time; 0 before.
    sent: AtomicU64,
    answered: AtomicBool,
}

impl LeaseCharge {
    pub(super) fn new(table: &Arc<LocalTable>, due: DueCharge) -> Arc<LeaseCharge> {
        let (sent, answered) = Default::default();
        Arc::new(LeaseCharge { table: table.clone(), due, sent, answered })
    }

    /// Returns the plan of the key.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.due.plan
    }

    /// Returns the operation: it asks for hits, or returns some.
    pub fn op(&self) -> Op {
        match self.due.op {
            LeaseOp::Ask(most) => Op::UpTo(UpTo { least: 0, most, share: SHARE }),
            LeaseOp::Return(undo) => Op::Undo(undo),
        }
    }

    /// Passes the charge, which borrows its key, to `then`.
    pub fn with_charge<T>(&self, then: impl FnOnce(&Charge<'_>) -> T) -> T {
        self.due.leased.charge(&self.due.plan, self.op(), then)
    }

    /// Whether the charge asks for hits. It is sent behind others of its key, served as if nothing were leased.
    pub fn asks(&self) -> bool {
        self.due.asks()
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
        if let LeaseOp::Return(undo) = self.due.op {
            self.table.counts.returned.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        if undos.is_empty() || !self.asks() {
            self.table.answered(&self.due);
            return Vec::new();
        }
        let at = StoreTime { sent: self.sent.load(Ordering::Relaxed), now };
        let returned = self.table.granted(&self.due, state, undos, at);
        returned.into_iter().map(|due| LeaseCharge::new(&self.table, due)).collect()
    }
}

impl Drop for LeaseCharge {
    fn drop(&mut self) {
        self.table.in_flight.fetch_sub(1, Ordering::Relaxed);
        if *self.answered.get_mut() {
            return;
        }
        if let LeaseOp::Return(undo) = self.due.op {
            self.table.counts.lost.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        self.table.answered(&self.due);
    }
}

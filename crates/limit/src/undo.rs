//! Undoing charges: what a charge did becomes as if it had not been made.
//!
//! So leases and reservations return hits that were not used. Unlike a client's refund, which is newest first,
//! an undo touches only the limits that charged the hits, and only where these hits still count: in the window
//! or sub-window of their time, for `sliding_window` also when it is the previous one. It is made at most once,
//! and by the plan that charged. Limits without windows ignore it.

use super::Micros;

/// What undoes a charge, or the part of it that some limits of a plan have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The hits that were added, or the part of them to undo. Less than those of the charge where a
    /// count was full.
    pub hits: u32,
    /// The time that they count for: that of the charge, or the newest of the state if the clock stepped
    /// back behind it.
    pub taken: Micros,
    /// The limits that charged them, one bit each.
    pub limits: u16,
}

impl Undo {
    /// Returns the undo of hits added for a time; none if nothing was added.
    pub(super) fn new(hits: u64, taken: Micros) -> Option<Undo> {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        (hits > 0).then_some(Undo { hits, taken, limits: 0 })
    }

    pub(super) fn has(&self, limit: usize) -> bool {
        self.limits >> limit & 1 > 0
    }
}

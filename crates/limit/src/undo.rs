//! Undoing charges: what a charge did becomes as if it had not been made.
//!
//! A batch that is charged together on several nodes is charged on each, and undone where another
//! denies. Unlike a client's refund, which is newest first, an undo touches only the limits that charged
//! the hits, and only where these hits still count. It is made at most once, and by the plan that charged.
//!
//! An undo of fewer hits undoes a part: what was reserved and not used. Hits still count
//!
//! - for windows in the window or sub-window of their time, for `sliding_window` also when it is the
//!   previous one
//! - for `sliding_log` as long as their stamps do
//! - for buckets until they are full again: a bucket that was empty meanwhile may admit as many hits more
//!   as were charged and not undone at that time
//!
//! A hold is undone as a whole.

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
    /// What the charge replaced, if anything.
    pub replaced: Option<Replaced>,
}

/// What a charge replaced in a state: a hold of the same id, or the time when hits in flight last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The start of the hold, or the time.
    pub at: Micros,
    /// The hits of the hold, or those that were in flight.
    pub hits: u32,
}

impl Undo {
    /// Returns the undo of hits added for a time; none if nothing was added.
    pub(super) fn new(hits: u64, taken: Micros) -> Option<Undo> {
        Undo::replacing(hits, taken, None)
    }

    /// Returns the undo of hits that also replaced something; none if neither.
    pub(super) fn replacing(hits: u64, taken: Micros, replaced: Option<Replaced>) -> Option<Undo> {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        (hits > 0 || replaced.is_some()).then_some(Undo { hits, taken, limits: 0, replaced })
    }

    pub(super) fn has(&self, limit: usize) -> bool {
        self.limits >> limit & 1 > 0
    }
}

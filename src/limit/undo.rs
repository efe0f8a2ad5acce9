//! Undoing charges: what a charge did becomes as if it had not been made.
//!
//! A batch that is charged together on several nodes is charged on each, and undone where another
//! denies. Unlike a client's refund, which is newest first, an undo touches only the limits that charged
//! the hits, and only where these hits still count. It is made at most once, and by the plan that charged.

use super::algorithms::sliding_log::HitLog;
use super::{Algorithm, ChargeOutcome, LimitState, Micros, Op, Plan, State};

/// What undoes a charge, or the part of it that some limits of a plan have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The hits that were added. Less than those of the charge where a count was full.
    pub hits: u32,
    /// The time that they count for: that of the charge, or the newest of the state if the clock stepped
    /// back behind it. In milliseconds for a `reduce_bucket`.
    pub taken: Micros,
    /// The limits that charged them, one bit each.
    pub limits: u16,
    /// What the charge replaced, if anything.
    pub replaced: Option<Replaced>,
}

/// What a charge replaced in a state: a hold of the same id, the time when hits in flight last changed,
/// or that of a strict bucket's last refill.
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

    /// Returns the hits that have not come back, of which `back` have since they were taken.
    pub(super) fn left(&self, back: u64) -> u64 {
        u64::from(self.hits).saturating_sub(back)
    }

    fn has(&self, limit: usize) -> bool {
        self.limits >> limit & 1 > 0
    }
}

impl Plan {
    /// Charges as [`charge`](Plan::charge) does, and returns what undoes it: nothing if nothing was
    /// charged. Several parts are to be undone last to first, like several charges of a key.
    pub(crate) fn charge_undoable(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> (ChargeOutcome, Vec<Undo>) {
        let hits = match op {
            Op::Take(hits @ 1..) => u32::try_from(hits).unwrap_or(u32::MAX),
            Op::Take(0) | Op::GiveBack(_) | Op::Undo(_) => {
                return (self.charge_hashed(state, now, op, hold), Vec::new());
            }
        };
        self.advance(state, now);
        let before = state.clone();
        let outcome = self.charge_hashed(state, now, op, hold);
        let mut undos: Vec<Undo> = Vec::new();
        for (i, limit) in self.limits().iter().enumerate() {
            let undo = match &limit.algorithm {
                // Limits in shadow mode share the log of those that admitted the hits.
                Algorithm::SlidingLog(_) if !outcome.decision.allowed => None,
                Algorithm::SlidingLog(_) => Undo::new(hits.into(), before.log().latest(now)),
                algorithm => {
                    let (before, after) = (before.limits().get(i), state.limits().get(i));
                    before
                        .zip(after)
                        .and_then(|(before, after)| algorithm.undo_of(before, after, now, hold))
                }
            };
            let Some(undo) = undo else { continue };
            match undos.iter_mut().find(|other| Undo { limits: 0, ..**other } == undo) {
                Some(same) => same.limits |= 1 << i,
                None => undos.push(Undo { limits: 1 << i, ..undo }),
            }
        }
        (outcome, undos)
    }

    /// Undoes a charge in states that were advanced to `now`.
    pub(super) fn undo(
        &self,
        states: &mut [LimitState],
        log: &mut HitLog,
        now: Micros,
        undo: &Undo,
        hold: u64,
    ) {
        let mut in_log = false;
        for (i, (limit, state)) in self.limits().iter().zip(states).enumerate() {
            if undo.has(i) {
                limit.algorithm.undo(state, now, undo, hold);
                in_log |= matches!(limit.algorithm, Algorithm::SlidingLog(_));
            }
        }
        if in_log {
            log.undo(undo.hits, undo.taken);
        }
    }
}

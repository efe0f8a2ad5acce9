//! Charges that can be undone, and undoing them: see [`Undo`].

use super::{Op, Plan, State};
use crate::hit_log::HitLog;
use crate::{Algorithm, ChargeOutcome, LimitState, Micros, Undo};

impl Plan {
    /// Charges as [`charge`](Plan::charge) does, and returns what undoes it: nothing if nothing was
    /// charged. Several parts are to be undone last to first, like several charges of a key.
    pub fn charge_undoable(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
        hold: u64,
    ) -> (ChargeOutcome, Vec<Undo>) {
        match op {
            Op::Take(1..) | Op::UpTo(_) => {}
            // What was reserved is cancelled by its id.
            Op::Take(0) | Op::Refund(_) | Op::Undo(_) | Op::Add { .. } | Op::Reservation(_) => {
                return (self.charge_hashed(state, now, op, hold), Vec::new());
            }
        }
        self.advance(state, now);
        let before = state.clone();
        let outcome = self.charge_hashed(state, now, op, hold);
        let hits = op.charged(&outcome.decision);
        let mut undos: Vec<Undo> = Vec::new();
        for (i, limit) in self.limits().iter().enumerate() {
            let undo = match &limit.algorithm {
                // Limits in shadow mode share the log of those that admitted the hits.
                Algorithm::SlidingLog(_) if !outcome.decision.allowed => None,
                Algorithm::SlidingLog(_) => Undo::new(hits, before.log().latest(now)),
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

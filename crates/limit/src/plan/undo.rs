//! Charges that can be undone, and undoing them: see [`Undo`].

use super::{Op, Plan, State};
use crate::{ChargeOutcome, LimitState, Micros, Undo};

impl Plan {
    /// Charges as [`charge`](Plan::charge) does, and returns what undoes it in limits with windows: nothing if
    /// nothing was charged. Several parts are to be undone last to first, like several charges of a key.
    pub fn charge_undoable(
        &self,
        state: &mut State,
        now: Micros,
        op: Op,
    ) -> (ChargeOutcome, Vec<Undo>) {
        match op {
            Op::Take(1..) | Op::UpTo(_) => {}
            // What was reserved is cancelled by its id.
            Op::Take(0) | Op::Refund(_) | Op::Undo(_) | Op::Add { .. } | Op::Reservation(_) => {
                return (self.charge_hashed(state, now, op, 0), Vec::new());
            }
        }
        self.advance(state, now);
        let before = state.clone();
        let outcome = self.charge_hashed(state, now, op, 0);
        let mut undos: Vec<Undo> = Vec::new();
        for (i, limit) in self.limits().iter().enumerate() {
            let (before, after) = (before.limits().get(i), state.limits().get(i));
            let undo = before
                .zip(after)
                .and_then(|(before, after)| limit.algorithm.undo_of(before, after, now));
            let Some(undo) = undo else { continue };
            match undos.iter_mut().find(|other| Undo { limits: 0, ..**other } == undo) {
                Some(same) => same.limits |= 1 << i,
                None => undos.push(Undo { limits: 1 << i, ..undo }),
            }
        }
        (outcome, undos)
    }

    /// Undoes a charge in states that were advanced.
    pub(super) fn undo(&self, states: &mut [LimitState], undo: &Undo) {
        for (i, (limit, state)) in self.limits().iter().zip(states).enumerate() {
            if undo.has(i) {
                limit.algorithm.undo(state, undo);
            }
        }
    }
}

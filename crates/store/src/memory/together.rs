//! Charges all keys of a request or none in the memory store, for domains with `charge: together`, and reservations.
//!
//! Locks all shards of the batch in ascending order, those of reservations first, so that two batches never deadlock.
//! Charges copies of the states in order; equal keys share a copy. The copies replace the states unless the batch is
//! denied.

use std::mem;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::MemoryStore;
use super::fingerprint::{Fingerprint, Print};
use super::shard::{Shard, SlotValue};
use super::table::Now;
use crate::charge::{Answers, Batch, Charge};
use weir_limit::{
    ChargeOutcome, Op, Packed, Plan, Reservation, ReservationOp, ReservationResult, State,
};

/// A copy of a key's state until the batch is decided.
struct Draft {
    /// The index of the lock that guards the state.
    lock: usize,
    fingerprint: Fingerprint,
    value: Value,
    charged: Option<ChargeOutcome>,
}

enum Value {
    Packed(Packed),
    Boxed(Box<State>),
}

impl Default for Value {
    fn default() -> Self {
        Value::Packed(Packed::default())
    }
}

impl Value {
    fn charge(&mut self, charge: &Charge<'_>, now: Now) -> ChargeOutcome {
        match self {
            Value::Packed(packed) => packed.charge(charge, now),
            Value::Boxed(state) => state.charge(charge, now),
        }
    }

    fn put(self, shard: &mut Shard, print: &Print, charged: &ChargeOutcome, now: Now) {
        match self {
            Value::Packed(packed) => shard.put(print, packed, charged, now),
            Value::Boxed(state) => shard.put(print, state, charged, now),
        }
    }

    fn charge_reservation(
        &mut self,
        plan: &Plan,
        reservation: &mut Option<Reservation>,
        now: Now,
        op: ReservationOp,
    ) -> ChargeOutcome {
        match self {
            Value::Packed(packed) => plan.charge_reservation(packed, reservation, now.micros, op),
            Value::Boxed(state) => {
                plan.charge_reservation(&mut **state, reservation, now.micros, op)
            }
        }
    }
}

impl<C> MemoryStore<C> {
    pub(super) fn charge_together(&self, batch: Batch<'_>, now: Now, answers: &mut Answers) {
        let charges = batch.charges;
        let fingerprints: SmallVec<[Fingerprint; 8]> =
            charges.iter().map(|charge| self.fingerprints.of(charge)).collect();
        let mut order: SmallVec<[usize; 8]> = (0..charges.len()).collect();
        order.sort_unstable_by_key(|&i| (self.shard_of(&fingerprints[i]), fingerprints[i]));

        let mut reservations = self.reservations.drafts(charges, &self.fingerprints, now);
        let mut locks: SmallVec<[MutexGuard<'_, Shard>; 8]> = SmallVec::new();
        let mut drafts: SmallVec<[Draft; 4]> = SmallVec::new();
        let mut draft_of: SmallVec<[usize; 8]> = SmallVec::from_elem(0, charges.len());
        let mut locked = None;
        for i in order {
            let fingerprint = fingerprints[i];
            let shard = self.shard_of(&fingerprint);
            if locked != Some(shard) {
                locks.push(self.shards[shard].0.lock());
                locked = Some(shard);
            }
            let lock = locks.len() - 1;
            if drafts.last().is_none_or(|draft| draft.fingerprint != fingerprint) {
                let value = self.value(&mut locks[lock], charges[i].plan, &fingerprint);
                drafts.push(Draft { lock, fingerprint, value, charged: None });
            }
            draft_of[i] = drafts.len() - 1;
        }

        let first = answers.len();
        for (i, charge) in charges.iter().enumerate() {
            let draft = &mut drafts[draft_of[i]];
            let charged = match charge.op {
                Op::Reservation(op) => {
                    draft.value.charge_reservation(charge.plan, reservations.of(i), now, op)
                }
                _ => draft.value.charge(charge, now),
            };
            answers.push(Ok(charged.decision.clone()));
            // What is only looked at stays as it is.
            if !charge.op.is_look(&charged.decision) {
                draft.charged = Some(charged);
            }
        }

        // A denied reservation alone may be a strike.
        let strikes = !batch.together && charges.iter().any(|charge| charge.plan.ban().is_some());
        if strikes || !batch.is_denied(&answers[first..]) {
            for draft in &mut drafts {
                let Some(charged) = draft.charged.take() else { continue };
                let (shard, print) = (&mut locks[draft.lock], &draft.fingerprint.print);
                mem::take(&mut draft.value).put(shard, print, &charged, now);
            }
            for (i, draft) in draft_of.iter().enumerate() {
                if let Some(changed) = reservations.keep(i, now) {
                    let Draft { lock, fingerprint, .. } = &drafts[*draft];
                    locks[*lock].list_reservation(&fingerprint.print, changed);
                }
            }
            return;
        }
        // The answers stay; of the charges only those that do not depend on the others are made.
        reservations.start_over();
        for (i, charge) in charges.iter().enumerate() {
            let Draft { lock, fingerprint, .. } = &drafts[draft_of[i]];
            let (shard, print) = (&mut locks[*lock], &fingerprint.print);
            match charge.op {
                Op::Reservation(op) => {
                    let answer = answers.get(first + i).and_then(|answer| answer.as_ref().ok());
                    let settled = answer
                        .is_some_and(|decision| decision.reservation == ReservationResult::Settled);
                    // It must not reserve: it may have settled a reservation of this batch, which is not made.
                    let unconditional = settled || op.reserve().is_none();
                    let Some(op) = op.without_reserve().filter(|_| unconditional) else { continue };
                    let mut value = self.value(shard, charge.plan, fingerprint);
                    let charged =
                        value.charge_reservation(charge.plan, reservations.of(i), now, op);
                    value.put(shard, print, &charged, now);
                    if let Some(changed) = reservations.keep(i, now) {
                        shard.list_reservation(print, changed);
                    }
                }
                op if op.is_unconditional() => {
                    self.charge_shard(shard, print, charge, now);
                }
                _ => {}
            }
        }
    }

    fn value(&self, shard: &mut Shard, plan: &Plan, fingerprint: &Fingerprint) -> Value {
        if self.packs(plan) {
            Value::Packed(shard.copy(&fingerprint.print))
        } else {
            Value::Boxed(shard.copy(&fingerprint.print))
        }
    }
}

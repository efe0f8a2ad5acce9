//! Charges all keys of a batch or none.
//!
//! Locks all shards of the batch in ascending order, so that two batches never deadlock. Charges copies
//! of the states in order; equal keys share a copy. The copies replace the states unless the batch is
//! denied.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{
    MemoryStore,
    fingerprint::Fingerprint,
    shard::{Shard, SlotValue},
    table::Now,
};
use crate::{Answers, Batch, Charge};
use weir_limit::{ChargeOutcome, Packed, State};

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

impl Value {
    fn charge(&mut self, charge: &Charge<'_>, now: Now) -> ChargeOutcome {
        match self {
            Value::Packed(packed) => packed.charge(charge, now),
            Value::Boxed(state) => state.charge(charge, now),
        }
    }
}

impl<C> MemoryStore<C> {
    /// Charges a batch, all or none, and adds its answers.
    pub(super) fn charge_together(&self, batch: Batch<'_>, now: Now, answers: &mut Answers) {
        let charges = batch.charges;
        let fingerprints: SmallVec<[Fingerprint; 8]> =
            charges.iter().map(|charge| self.fingerprints.of(charge)).collect();
        let mut order: SmallVec<[usize; 8]> = (0..charges.len()).collect();
        order.sort_unstable_by_key(|&i| (self.shard_of(&fingerprints[i]), fingerprints[i]));

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
                let value = if self.packs(charges[i].plan) {
                    Value::Packed(locks[lock].copy(&fingerprint.print))
                } else {
                    Value::Boxed(locks[lock].copy(&fingerprint.print))
                };
                drafts.push(Draft { lock, fingerprint, value, charged: None });
            }
            draft_of[i] = drafts.len() - 1;
        }

        let first = answers.len();
        for (charge, &draft) in charges.iter().zip(&draft_of) {
            let draft = &mut drafts[draft];
            let charged = draft.value.charge(charge, now);
            answers.push(Ok(charged.decision.clone()));
            // What is only looked at stays as it is.
            if !charge.op.is_look(&charged.decision) {
                draft.charged = Some(charged);
            }
        }

        if !batch.is_denied(&answers[first..]) {
            for Draft { lock, fingerprint, value, charged } in drafts {
                let Some(charged) = charged else { continue };
                match value {
                    Value::Packed(packed) => {
                        locks[lock].put(&fingerprint.print, packed, &charged, now);
                    }
                    Value::Boxed(state) => {
                        locks[lock].put(&fingerprint.print, state, &charged, now);
                    }
                }
            }
            return;
        }
        // The answers stay; of the charges only those that do not depend on the others are made.
        for (charge, &draft) in charges.iter().zip(&draft_of) {
            if charge.op.is_unconditional() {
                let Draft { lock, fingerprint, .. } = &drafts[draft];
                self.charge_shard(&mut locks[*lock], &fingerprint.print, charge, now);
            }
        }
    }
}

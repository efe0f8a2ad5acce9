//! Copies of the reservations (hits charged before it is known how many are used) of a batch, kept unless it is denied.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{ReservationShard, Reservations, shard_of};
use crate::charge::Charge;
use crate::memory::changes::SavedReservation;
use crate::memory::fingerprint::{Fingerprints, Print};
use crate::memory::table::Now;
use weir_limit::{Micros, Op, Reservation};

/// The reservations of some charges, under the locks of their shards.
#[derive(Default)]
pub(in crate::memory) struct Drafts<'s> {
    locks: SmallVec<[MutexGuard<'s, ReservationShard>; 2]>,
    drafts: SmallVec<[ReservationDraft; 2]>,
    /// The index of each operation on a reservation, and of its draft.
    of_charges: SmallVec<[(usize, usize); 2]>,
    /// The draft of charges that have none, because nothing was ever reserved.
    nothing: Option<Reservation>,
}

/// A copy of a reservation. Charges of the same key and id share it.
struct ReservationDraft {
    /// The index of the lock that guards the reservation.
    lock: usize,
    print: Print,
    before: Option<Reservation>,
    after: Option<Reservation>,
}

impl Reservations {
    pub fn drafts(
        &self,
        charges: &[Charge<'_>],
        fingerprints: &Fingerprints,
        now: Now,
    ) -> Drafts<'_> {
        let mut drafts = Drafts::default();
        let operations = charges.iter().enumerate().filter_map(|(i, charge)| match charge.op {
            Op::Reservation(op) => Some((i, charge, op)),
            _ => None,
        });
        let shards = match self.shards.get() {
            Some(shards) => shards,
            None if operations.clone().any(|(.., op)| op.reserve().is_some()) => self.shards(),
            None => return drafts,
        };
        // Each id, and the reset of its key.
        let ids = operations.flat_map(|(i, charge, _)| {
            let [id, reset] = fingerprints.of_reservation(charge);
            let with_shard = |print, charge| (shard_of(&print, shards.len()), print, charge);
            [with_shard(id, Some(i)), with_shard(reset, None)]
        });
        let mut ids: SmallVec<[(usize, Print, Option<usize>); 4]> = ids.collect();
        ids.sort_unstable();
        let mut locked = None;
        let mut resets: SmallVec<[(Print, Micros); 2]> = SmallVec::new();
        for (shard, print, charge) in ids {
            if locked != Some(shard) {
                drafts.locks.push(shards[shard].0.lock());
                locked = Some(shard);
            }
            let Some(charge) = charge else {
                let reset = drafts.locks.last_mut().and_then(|lock| lock.get(&print, now));
                resets.extend(reset.map(|reset| (print, reset.taken)));
                continue;
            };
            if drafts.drafts.last().is_none_or(|draft| draft.print != print) {
                let lock = drafts.locks.len() - 1;
                let before = drafts.locks[lock].get(&print, now);
                drafts.drafts.push(ReservationDraft { lock, print, before, after: before });
            }
            drafts.of_charges.push((charge, drafts.drafts.len() - 1));
        }
        if !resets.is_empty() {
            let reset_print =
                |charge: usize| fingerprints.of_reset(&fingerprints.of(&charges[charge]));
            drafts.reset(&resets, reset_print);
        }
        drafts
    }
}

impl Drafts<'_> {
    /// Leaves of reservations what is left after their keys were reset.
    #[cold]
    fn reset(&mut self, resets: &[(Print, Micros)], reset_print: impl Fn(usize) -> Print) {
        for &(charge, draft) in &self.of_charges {
            let print = reset_print(charge);
            let reset = resets.iter().find(|(reset, _)| *reset == print);
            if let (Some(&(_, at)), draft) = (reset, &mut self.drafts[draft]) {
                draft.before = draft.before.map(|before| before.after_reset(at));
                draft.after = draft.before;
            }
        }
    }

    pub fn of(&mut self, charge: usize) -> &mut Option<Reservation> {
        match self.of_charges.iter().find(|(index, _)| *index == charge) {
            Some(&(_, draft)) => &mut self.drafts[draft].after,
            None => {
                self.nothing = None;
                &mut self.nothing
            }
        }
    }

    /// Drops what was drafted: the batch is denied.
    pub fn start_over(&mut self) {
        for draft in &mut self.drafts {
            draft.after = draft.before;
        }
    }

    /// Keeps the draft of a charge, if it is another than what is kept and there is room. Returns it then.
    pub fn keep(&mut self, charge: usize, now: Now) -> Option<SavedReservation> {
        let &(_, draft) = self.of_charges.iter().find(|(index, _)| *index == charge)?;
        let ReservationDraft { lock, print, before, after } = &mut self.drafts[draft];
        if before == after {
            return None;
        }
        *before = *after;
        let is_kept = self.locks[*lock].put(print, *after, now);
        is_kept.then_some(SavedReservation { print: *print, reservation: *after })
    }
}

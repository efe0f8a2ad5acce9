//! The memory store: counts in the memory of this process.

pub(super) mod changes;
pub(super) mod fingerprint;
mod operations;
mod reservations;
pub(super) mod saving;
mod shard;
mod states;
mod stats;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod together;

use std::fmt;
use std::future::{Future, Pending};
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

use self::fingerprint::{Fingerprint, Fingerprints, Print};
use self::reservations::Reservations;
use self::shard::Shard;
pub use self::stats::{Evicted, MemoryStats};
use self::sweep::{Aligned, sweep_next};
use self::table::Now;
use crate::charge::{Answers, Batch, Charge};
use crate::store::Store;
use weir_common::clock::Clock;
use weir_limit::{Decision, Micros, Op, Packed, Plan, Reservation, SECOND, State};

/// How far the clock may step back before keys expire early: half of the 136 years of seconds that slots count.
const EXPIRY_BEHIND: Micros = (1 << 31) * SECOND;

/// How many keys there may be for each open reservation (hits charged before it is known how many are used).
const KEYS_PER_RESERVATION: usize = 8;

/// Keeps states in the memory of this process; they are lost when it ends.
///
/// **Exact.** A key is decided and charged under a lock, and a batch charged together under the locks of all its keys:
/// of concurrent requests exactly as many are admitted as the limit allows. No charge waits.
///
/// **Memory.** A key is kept as a fingerprint, not as text. With a state that packs (a lone fixed window, for instance)
/// it takes a slot of 28 bytes and a byte of index in tables that are between 44 and 88 % full: 48 bytes on average, 54
/// to 57 of resident memory. With another state it takes a slot of 24 bytes and the state on the heap. Keys expire once
/// their state means the same as none, and are removed when charged, when others are inserted, and by `sweep`.
///
/// **Bounded.** There are never more than `max_keys` keys. Each shard has its part of them and evicts a key when a new
/// one finds it full. As keys do not spread evenly, some shards are full before others. Of a sample of eight, the
/// evicted key has expired, else has used least of its limit, else expires first; a key at its limit is evicted only if
/// all of the sample and two dozen more are at theirs. So a flood of new keys replaces new keys, at a constant cost.
///
/// **Reservations** are kept in tables of their own, allocated with the first one, as fingerprints of key and id in
/// slots of 32 bytes: 55 bytes on average. There are never more than an eighth of `max_keys`. A new one that finds its
/// shard full evicts the one of a sample of eight that lapses first, whose hits stay charged. If its key has a
/// sixteenth of the shard, the new one is not kept instead, so that no client evicts the reservations of all others.
///
/// **Many small shards.** A shard has one to three thousand keys. It is locked to charge a key, to sweep some buckets
/// or, rarely, to move its keys to a table of another size: for well below a millisecond.
///
/// **Fingerprints.** 88 bits in the slot, and the shard, of a keyed hash (SipHash-1-3) over the whole key; each store
/// draws its secret from the operating system. Two keys with the same fingerprint would count as one: with ten million
/// keys, 1 in 10^23 new keys, which is one in some billion years at a million new keys a second.
pub struct MemoryStore<C> {
    clock: C,
    /// The time from which slots count the seconds until they expire.
    start: Micros,
    fingerprints: Fingerprints,
    shards: Box<[Aligned<Shard>]>,
    max_keys: usize,
    reservations: Reservations,
    next_swept: AtomicUsize,
    #[cfg(test)]
    boxes: bool,
}

impl<C: Clock> MemoryStore<C> {
    /// Keeps at most `max_keys` keys and an eighth as many reservations, but at least one of each.
    pub fn new(clock: C, max_keys: usize) -> MemoryStore<C> {
        let shards = fingerprint::shards(max_keys);
        let caps = fingerprint::caps(max_keys, shards);
        let shards = caps.map(|cap| Aligned(Mutex::new(Shard::new(cap)))).collect();
        MemoryStore::with(clock, max_keys, shards, Fingerprints::new())
    }

    fn with(
        clock: C,
        max_keys: usize,
        shards: Box<[Aligned<Shard>]>,
        fingerprints: Fingerprints,
    ) -> MemoryStore<C> {
        // The clock may step back. A whole second, so that seconds since then are those of the epoch.
        let start = clock.now().saturating_sub(EXPIRY_BEHIND) / SECOND * SECOND;
        MemoryStore {
            start,
            clock,
            fingerprints,
            shards,
            max_keys: max_keys.max(1),
            reservations: Reservations::new(max_keys / KEYS_PER_RESERVATION),
            next_swept: AtomicUsize::new(0),
            #[cfg(test)]
            boxes: false,
        }
    }

    /// Removes expired keys from the next `shards` shards, from each at most once, and lapsed reservations from as
    /// large a part of theirs. Shrinks tables that have become too large. No shard is locked for longer than it takes
    /// to sweep a thousand buckets or to move the remaining keys to a smaller table.
    ///
    /// Inserting keys sweeps too. This is for a timer, so that memory is freed when traffic has stopped.
    pub fn sweep(&self, shards: usize) {
        let (now, count) = (self.now(), shards.min(self.shards.len()));
        sweep_next(&self.shards, &self.next_swept, count, now);
        self.reservations.sweep(count, self.shards.len(), now);
    }

    pub(crate) fn charge_now(&self, batch: &Batch<'_>, answers: &mut Answers) {
        let now = self.now();
        if batch.together {
            self.charge_together(*batch, now, answers);
            return;
        }
        for charge in batch.charges {
            if let Op::Reservation(_) = charge.op {
                self.charge_reservation(charge, batch, now, answers);
                continue;
            }
            let fingerprint = self.fingerprints.of(charge);
            let mut shard = self.shards[self.shard_of(&fingerprint)].0.lock();
            answers.push(Ok(self.charge_shard(&mut shard, &fingerprint.print, charge, now)));
        }
    }

    #[cold]
    fn charge_reservation(
        &self,
        charge: &Charge<'_>,
        batch: &Batch<'_>,
        now: Now,
        answers: &mut Answers,
    ) {
        let charges = std::slice::from_ref(charge);
        self.charge_together(Batch { charges, ..*batch }, now, answers);
    }

    /// Returns what a charge's id has reserved, if it can still be settled.
    pub(crate) fn reservation_now(&self, charge: &Charge<'_>) -> Option<Reservation> {
        let [print, _] = self.fingerprints.of_reservation(charge);
        self.reservations.get(&print, self.now())
    }

    fn now(&self) -> Now {
        Now { micros: self.clock.now(), start: self.start }
    }
}

impl<C> MemoryStore<C> {
    /// The number of shards: what [`sweep`](Self::sweep) takes to sweep all.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Adds up the counts of the shards, each under its lock for an instant.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for Aligned(shard) in &self.shards {
            shard.lock().add_stats(&mut stats);
        }
        self.reservations.add_stats(&mut stats);
        stats
    }

    fn shard_of(&self, fingerprint: &Fingerprint) -> usize {
        fingerprint::shard(fingerprint.shard, self.shards.len())
    }

    fn charge_shard(
        &self,
        shard: &mut Shard,
        print: &Print,
        charge: &Charge<'_>,
        now: Now,
    ) -> Decision {
        if self.packs(charge.plan) {
            if charge.plan.needs_expiry() {
                return shard.charge_unexpired(print, charge, now);
            }
            shard.charge::<Packed>(print, charge, now)
        } else {
            shard.charge::<Box<State>>(print, charge, now)
        }
    }

    fn packs(&self, plan: &Plan) -> bool {
        #[cfg(test)]
        if self.boxes {
            return false;
        }
        plan.packs()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, C>> {
        self.charge_now(&batch, answers);
        None::<Pending<Answers>>
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    /// Omits the states and the secret of the fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

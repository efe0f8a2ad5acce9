//! The memory store's reservations: hits that clients charge under an id before they know how many they will use.
//!
//! A reservation has a fingerprint of its own, over its key and its id, which also chooses its shard: however many a
//! key has, they are spread over all shards. Shards of reservations are locked before those of keys, both in ascending
//! order.

mod drafts;

use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use parking_lot::{Mutex, MutexGuard};

use super::changes::SavedReservation;
use super::fingerprint::{self, Print, key_of};
use super::stats::MemoryStats;
use super::sweep::{Aligned, Sweep, sweep_next};
use super::table::{Candidate, Now, Slot, Table};
use weir_limit::{Fill, Micros, Reservation, SECOND};

/// How many slots are sampled for one to evict.
const SAMPLE: usize = 8;

/// One key may have at most one part of this number of a full table.
const SHARE: usize = 16;

pub(super) struct Reservations {
    pub max: usize,
    shards: OnceLock<Box<[Aligned<ReservationShard>]>>,
    next_swept: AtomicUsize,
}

impl Reservations {
    pub fn new(max: usize) -> Reservations {
        Reservations { max: max.max(1), shards: OnceLock::new(), next_swept: AtomicUsize::new(0) }
    }

    pub fn get(&self, print: &Print, now: Now) -> Option<Reservation> {
        let shards = self.shards.get()?;
        shards.get(shard_of(print, shards.len()))?.0.lock().get(print, now)
    }

    /// Keeps the time of a reset, as a reservation of no hits, until all that were made before have lapsed. Returns the
    /// lock of its shard, and what is kept; nothing if nothing was ever reserved.
    pub fn reset(
        &self,
        print: Print,
        now: Now,
    ) -> Option<(MutexGuard<'_, ReservationShard>, SavedReservation)> {
        let shards = self.shards.get()?;
        let lapses = now.micros + (Micros::from(Reservation::MAX_TIMEOUT) + 1) * SECOND;
        let taken = now.micros;
        let reset = Some(Reservation { hits: 0, count: 0, limits: 0, taken, lapses, tag: 0 });
        let mut shard = shards.get(shard_of(&print, shards.len()))?.0.lock();
        shard.put(&print, reset, now);
        Some((shard, SavedReservation { print, reservation: reset }))
    }

    pub fn saved(&self, shard: usize, now: Now) -> Option<Vec<SavedReservation>> {
        let shard = self.shards.get()?.get(shard)?.0.lock();
        let live = shard.table.slots.iter().filter(|slot| !slot.has_expired(now));
        let saved = live.map(|slot| SavedReservation {
            print: slot.print,
            reservation: Some(reservation(slot, now)),
        });
        Some(saved.collect())
    }

    /// Makes of a fingerprint what was saved. Until [`loaded`](Self::loaded) there may be twice as many reservations: a
    /// log may have new ones before the end of others.
    pub fn load(&self, saved: SavedReservation, now: Now) {
        let SavedReservation { print, reservation } = saved;
        let reservation = reservation.filter(|reservation| reservation.is_live(now.micros));
        if reservation.is_none() && self.shards.get().is_none() {
            return;
        }
        let shards = self.shards();
        if let Some(Aligned(shard)) = shards.get(shard_of(&print, shards.len())) {
            let mut shard = shard.lock();
            let max = shard.cap.saturating_mul(2);
            shard.replace(&print, reservation, (max, usize::MAX), now);
        }
    }

    /// Evicts what was loaded beyond the cap, once everything is loaded.
    pub fn loaded(&self, now: Now) {
        for Aligned(shard) in self.shards.get().into_iter().flatten() {
            let mut shard = shard.lock();
            for _ in 0..shard.table.len().saturating_sub(shard.cap) {
                shard.evict(now);
            }
        }
    }

    /// Removes all; what they hold stays charged.
    pub fn clear(&self) {
        for Aligned(shard) in self.shards.get().into_iter().flatten() {
            let unused = std::mem::take(&mut shard.lock().table);
            drop(unused);
        }
    }

    pub fn add_stats(&self, stats: &mut MemoryStats) {
        for Aligned(shard) in self.shards.get().into_iter().flatten() {
            let shard = shard.lock();
            stats.reservations += shard.table.len();
            stats.table_bytes += shard.table.slots.allocation_size();
            stats.reservations_evicted += shard.evicted;
            stats.reservations_unrecorded += shard.unrecorded;
        }
    }

    /// Sweeps as many of the next shards as `part` is of `whole`.
    pub fn sweep(&self, part: usize, whole: usize, now: Now) {
        if let Some(shards) = self.shards.get() {
            let count = (shards.len() * part).div_ceil(whole.max(1));
            sweep_next(shards, &self.next_swept, count, now);
        }
    }

    fn shards(&self) -> &[Aligned<ReservationShard>] {
        self.shards.get_or_init(|| {
            let caps = fingerprint::caps(self.max, fingerprint::shards(self.max));
            caps.map(|cap| Aligned(Mutex::new(ReservationShard::new(cap)))).collect()
        })
    }
}

/// Returns the shard of a fingerprint by the bits that do not place it in a table: to load needs no number of a shard.
fn shard_of(print: &Print, shards: usize) -> usize {
    let [.., a, b, c] = *print;
    fingerprint::shard(u32::from_le_bytes([0, a, b, c]), shards)
}

/// What a slot has of a reservation besides its lapse: of four-byte numbers, so that slots have no padding.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    hits: u32,
    count: u16,
    limits: u16,
    /// The time, and above it the tag.
    taken: [u32; 2],
}

/// The bits of a time, which reach 142 years. The tag is above them.
const TIME_BITS: u32 = 52;

fn reservation(slot: &Slot<Reserved>, now: Now) -> Reservation {
    let Reserved { hits, count, limits, taken: [low, high] } = slot.value;
    let wide = u64::from(low) | u64::from(high) << 32;
    let (taken, tag) = (wide & ((1 << TIME_BITS) - 1), (wide >> TIME_BITS) as u16);
    let lapses = now.start + Micros::from(slot.expires) * SECOND;
    Reservation { hits, count, limits, taken, lapses, tag }
}

#[derive(Debug)]
pub(super) struct ReservationShard {
    table: Table<Reserved>,
    /// The most reservations; at least 1.
    cap: usize,
    evicted: u64,
    unrecorded: u64,
}

impl ReservationShard {
    fn new(cap: usize) -> ReservationShard {
        ReservationShard { table: Table::default(), cap: cap.max(1), evicted: 0, unrecorded: 0 }
    }

    fn get(&mut self, print: &Print, now: Now) -> Option<Reservation> {
        let slot = self.table.get_slot(print).filter(|slot| !slot.has_expired(now))?;
        Some(reservation(slot, now))
    }

    /// Replaces a reservation. Returns false for a new one if the table is full and its key has its share.
    fn put(&mut self, print: &Print, reservation: Option<Reservation>, now: Now) -> bool {
        self.replace(print, reservation, (self.cap, self.cap.div_ceil(SHARE)), now)
    }

    /// Replaces a reservation as [`put`](Self::put) does, in a table of at most `max`, of which a key may have `share`.
    fn replace(
        &mut self,
        print: &Print,
        reservation: Option<Reservation>,
        (max, share): (usize, usize),
        now: Now,
    ) -> bool {
        let slot = reservation.map(|reservation| {
            let time = reservation.taken.min((1 << TIME_BITS) - 1);
            let wide = time | u64::from(reservation.tag & Reservation::MAX_TAG) << TIME_BITS;
            let taken = [wide as u32, (wide >> 32) as u32];
            let Reservation { hits, count, limits, lapses, .. } = reservation;
            let value = Reserved { hits, count, limits, taken };
            // How full its key is does not matter.
            Slot::loaded(*print, value, Fill::Low, now.expiry(lapses))
        });
        match (self.table.find(print), slot) {
            (Some(mut found), Some(slot)) => *found.get_mut() = slot,
            (Some(found), None) => _ = found.remove(),
            (None, Some(slot)) => {
                self.table.sweep_on_insert(now);
                if self.table.len() >= max && !self.evict_for(print, share, now) {
                    return false;
                }
                self.table.insert(slot);
            }
            (None, None) => {}
        }
        true
    }

    fn evict_for(&mut self, print: &Print, share: usize, now: Now) -> bool {
        let Some(candidate) = self.table.sample(SAMPLE, now, Slot::fill) else { return true };
        if candidate.worth.fill.is_some() && self.has(share, print, now) {
            self.unrecorded += 1;
            return false;
        }
        self.drop_candidate(candidate);
        true
    }

    /// Returns whether the key of a reservation has as many others here. As its reservations are spread evenly, it then
    /// has this part of all.
    fn has(&self, share: usize, print: &Print, now: Now) -> bool {
        let key = key_of(print);
        let of_key = self.table.slots.iter().filter(|slot| key_of(&slot.print) == key);
        of_key.filter(|slot| !slot.has_expired(now)).take(share).count() == share
    }

    /// Evicts the reservation of a sample that lapses first; what it holds stays charged.
    fn evict(&mut self, now: Now) {
        if let Some(candidate) = self.table.sample(SAMPLE, now, Slot::fill) {
            self.drop_candidate(candidate);
        }
    }

    fn drop_candidate(&mut self, candidate: Candidate) {
        self.evicted += u64::from(candidate.worth.fill.is_some());
        self.table.drop_candidate(candidate);
    }
}

impl Sweep for ReservationShard {
    fn buckets(&self) -> usize {
        self.table.buckets()
    }

    fn sweep(&mut self, buckets: usize, now: Now) {
        self.table.sweep(buckets, now);
    }

    fn shrink(&mut self) -> impl Sized + use<> {
        self.table.shrink()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_small() {
        assert_eq!(size_of::<Slot<Reserved>>(), 32);
    }
}

//! The hash table of a shard of the memory store. A slot has the state of one key or a reservation, and expires.

use std::mem;

use hashbrown::{HashTable, hash_table::OccupiedEntry};

use super::fingerprint::{Print, place};
use weir_limit::{ChargeOutcome, Fill, Micros};

/// A table is swept by this many buckets each time after this many insertions. Four buckets per insertion go round
/// faster than insertions can fill the table, so expired keys stay a fraction of the others without a timer. Sweeping
/// in strides reads memory in order.
const SWEEP_EVERY: u32 = 16;
const SWEEP_BUCKETS: usize = 64;

/// How many buckets are read at most for a sample, once it has a slot.
const SAMPLE_BUCKETS: usize = 256;

/// An instant, for a store that counts seconds from `start`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) micros: Micros,
    pub(super) start: Micros,
}

impl Now {
    pub(super) fn seconds(self) -> u32 {
        // The last second is never reached: what expires beyond it is removed only by eviction.
        u32::try_from(self.micros.saturating_sub(self.start) / 1_000_000).unwrap_or(u32::MAX - 1)
    }

    /// Returns the first whole second at which what expires at `expires` has expired.
    pub(super) fn expiry(self, expires: Micros) -> u32 {
        let after = expires.saturating_sub(self.start).div_ceil(1_000_000);
        u32::try_from(after).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Slot<V> {
    pub(super) print: Print,
    /// How full the state is, and the bit [`LISTED`]: whether it is listed to be saved on disk.
    mark: u8,
    /// The expiry in seconds since the store's `start`, rounded up: 4 bytes reach 136 years.
    pub(super) expires: u32,
    pub(super) value: V,
}

/// The bit of a mark that lists the slot as changed. In a store that lists no changes, each slot is marked so: charges
/// need not ask which store it is.
const LISTED: u8 = 1 << 7;

impl<V> Slot<V> {
    /// Returns the slot of a new key, which is to be listed as changed.
    pub(super) fn new(print: Print, value: V, charged: &ChargeOutcome, now: Now) -> Slot<V> {
        let expires = now.expiry(charged.expires);
        Slot { print, mark: charged.fill as u8 | LISTED, expires, value }
    }

    /// Returns a slot as it was saved. `expires` counts from the store's `start`.
    pub(super) fn loaded(print: Print, value: V, fill: Fill, expires: u32) -> Slot<V> {
        Slot { print, mark: fill as u8, expires, value }
    }

    pub(super) fn fill(&self) -> Fill {
        match self.mark & !LISTED {
            0 => Fill::Low,
            1 => Fill::High,
            _ => Fill::Full,
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.mark & LISTED != 0
    }

    pub(super) fn unlist(&mut self) {
        self.mark &= !LISTED;
    }

    /// Returns sixteen unpredictable bits that do not place the slot.
    pub(super) fn random(&self) -> u16 {
        let [.., a, b] = self.print;
        u16::from_le_bytes([a, b])
    }

    pub(super) fn has_expired(&self, now: Now) -> bool {
        self.expires <= now.seconds()
    }

    /// Records a charge. The slot is to be listed, unless it is.
    pub(super) fn note(&mut self, charged: &ChargeOutcome, now: Now) {
        self.mark = charged.fill as u8 | LISTED;
        self.expires = now.expiry(charged.expires);
    }

    /// Records a look or a denial, which never makes the slot expire sooner: it may be of a limit that refills faster
    /// than the one that charged.
    pub(super) fn note_unchanged(&mut self, charged: &ChargeOutcome, now: Now) {
        let expires = self.expires;
        self.note(charged, now);
        self.expires = self.expires.max(expires);
    }
}

/// How much is lost with a slot; the least is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Worth {
    /// How full the state is; none once the slot has expired.
    pub(super) fill: Option<Fill>,
    expires: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) worth: Worth,
    bucket: usize,
}

/// Slots by fingerprint. One cursor moves over the buckets to sweep, another one to sample.
#[derive(Debug, Default)]
pub(super) struct Table<V> {
    pub(super) slots: HashTable<Slot<V>>,
    sweep_hand: usize,
    sample_hand: usize,
    inserted: u32,
    pub(super) swept: u64,
}

impl<V> Table<V> {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn buckets(&self) -> usize {
        self.slots.num_buckets()
    }

    pub(super) fn get(&self, print: &Print) -> Option<&V> {
        Some(&self.slots.find(place(print), |slot| slot.print == *print)?.value)
    }

    pub(super) fn get_slot(&mut self, print: &Print) -> Option<&mut Slot<V>> {
        self.slots.find_mut(place(print), |slot| slot.print == *print)
    }

    pub(super) fn find(&mut self, print: &Print) -> Option<OccupiedEntry<'_, Slot<V>>> {
        self.slots.find_entry(place(print), |slot| slot.print == *print).ok()
    }

    /// Inserts a slot whose fingerprint is not in the table.
    pub(super) fn insert(&mut self, slot: Slot<V>) {
        let (len, full) = (self.len(), self.full());
        if len == self.slots.capacity() && len < full - full / 8 {
            // It is full of the tombstones of removed slots. The hash table would double by itself; moving to one of
            // the same size removes the tombstones.
            drop(self.resize(full));
        }
        self.slots.insert_unique(place(&slot.print), slot, |slot| place(&slot.print));
    }

    pub(super) fn sweep_on_insert(&mut self, now: Now) {
        self.inserted = self.inserted.wrapping_add(1);
        if self.inserted.is_multiple_of(SWEEP_EVERY) {
            self.sweep(SWEEP_BUCKETS, now);
        }
    }

    /// Removes expired slots from the next `buckets` buckets, up to the last one; then starts over.
    pub(super) fn sweep(&mut self, buckets: usize, now: Now) {
        let seconds = now.seconds();
        let end = self.buckets();
        let stop = self.sweep_hand.saturating_add(buckets).min(end);
        for bucket in self.sweep_hand..stop {
            if let Ok(found) = self.slots.get_bucket_entry(bucket)
                && found.get().expires <= seconds
            {
                found.remove();
                self.swept += 1;
            }
        }
        self.sweep_hand = if stop == end { 0 } else { stop };
    }

    /// Moves to a smaller table if most of this one is unused. Returns the old one, empty: freeing much memory takes
    /// milliseconds, and should happen after the lock is released.
    pub(super) fn shrink(&mut self) -> Option<HashTable<Slot<V>>> {
        let shrinks = self.buckets() > 1 && self.len() <= self.full() / 4;
        shrinks.then(|| self.resize(self.len() * 2))
    }

    /// Returns the least of the next `wanted` slots, as full as `fill` returns; none only if there are no slots.
    pub(super) fn sample(
        &mut self,
        wanted: usize,
        now: Now,
        fill: impl Fn(&Slot<V>) -> Fill,
    ) -> Option<Candidate> {
        let seconds = now.seconds();
        let buckets = self.buckets();
        let mut least: Option<Candidate> = None;
        let (mut seen, mut looked) = (0, 0);
        while seen < wanted && looked < buckets && (looked < SAMPLE_BUCKETS || seen == 0) {
            // The number of buckets is a power of two.
            let bucket = self.sample_hand & (buckets - 1);
            self.sample_hand = bucket + 1;
            looked += 1;
            let Some(slot) = self.slots.get_bucket(bucket) else { continue };
            seen += 1;
            let fill = (slot.expires > seconds).then(|| fill(slot));
            let worth = Worth { fill, expires: slot.expires };
            if least.is_none_or(|least| worth < least.worth) {
                least = Some(Candidate { worth, bucket });
            }
        }
        least
    }

    /// Removes a slot that was sampled just now. Returns its fingerprint if it is to be listed as changed.
    pub(super) fn drop_candidate(&mut self, candidate: Candidate) -> Option<Print> {
        let (slot, _) = self.slots.get_bucket_entry(candidate.bucket).ok()?.remove();
        (!slot.is_listed() && candidate.worth.fill.is_some()).then_some(slot.print)
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.slots.shrink_to(0, |slot| place(&slot.print));
    }

    /// The number of slots that the table can hold before it has to grow.
    fn full(&self) -> usize {
        match self.buckets() {
            buckets @ 0..8 => buckets - 1,
            buckets => buckets / 8 * 7,
        }
    }

    fn resize(&mut self, capacity: usize) -> HashTable<Slot<V>> {
        let mut old = mem::replace(&mut self.slots, HashTable::with_capacity(capacity));
        for slot in old.drain() {
            self.slots.insert_unique(place(&slot.print), slot, |slot| place(&slot.print));
        }
        old
    }
}

//! What the disk store calls of a memory store: to list changed keys, to copy their slots (states), and to load them.

use std::hint::black_box;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::changes::{Changed, Changes, NEVER, Room, SavedReservation, SavedSlot, SavedValue};
use super::fingerprint::{self, Fingerprints, Print};
use super::shard::{AnySlot, Shard};
use super::sweep::Aligned;
use super::table::Slot;
use super::{KEYS_PER_RESERVATION, MemoryStore};
use weir_common::clock::Clock;
use weir_limit::{Packed, SECOND, State};

/// How many keys are looked up ahead of their copy.
const READ_AHEAD: usize = 256;

/// Returns the number of shards for at most `max_keys` keys, as its binary logarithm.
pub(crate) fn shard_bits(max_keys: usize) -> u8 {
    fingerprint::shards(max_keys).ilog2() as u8
}

impl<C: Clock> MemoryStore<C> {
    /// Makes a store that lists its changes, with `2^shard_bits` shards. Fingerprints of slots to be loaded were made
    /// with `secret`.
    pub(crate) fn listing_changes(
        clock: C,
        max_keys: usize,
        shard_bits: u8,
        secret: [u64; 2],
    ) -> MemoryStore<C> {
        let shards = 1 << shard_bits;
        let caps = fingerprint::caps(max_keys, shards);
        let room = Arc::new(Room::new(max_keys / KEYS_PER_RESERVATION));
        let shard = |cap| Aligned(Mutex::new(Shard::listing_changes(cap, room.clone())));
        let shards = caps.map(shard).collect();
        MemoryStore::with(clock, max_keys, shards, Fingerprints::of_secret(secret))
    }

    fn locked(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// The time in whole seconds since the Unix epoch.
    pub(crate) fn now_seconds(&self) -> u64 {
        self.clock.now() / SECOND
    }

    pub(crate) fn take_changes(&self, shard: usize) -> Changed {
        let mut shard = self.locked(shard);
        shard.changes.as_mut().map_or(Changed::Keys(Vec::new()), Changes::take)
    }

    /// Drops the lists of a shard's changes: what is in memory now is to be saved.
    pub(crate) fn forget_changes(&self, shard: usize) {
        self.locked(shard).changes.as_mut().into_iter().for_each(Changes::forget);
    }

    /// Returns the keys of a shard with changed reservations that were not taken; none if some could not be listed.
    pub(crate) fn keys_of_changed_reservations(&self, shard: usize) -> Option<Vec<Print>> {
        let shard = self.locked(shard);
        shard.changes.as_ref().map_or(Some(Vec::new()), |changes| changes.keys_of_reservations())
    }

    /// Returns the reservations of a shard that have not lapsed; none if there is no such shard.
    pub(crate) fn saved_reservations(&self, shard: usize) -> Option<Vec<SavedReservation>> {
        self.reservations.saved(shard, self.now())
    }

    pub(crate) fn prints(&self, shard: usize) -> Vec<Print> {
        self.locked(shard).prints()
    }

    /// Calls `copy` under the lock of the shard for each key, with its slot if it has one, until it returns false; then
    /// a thread that waits for the shard comes first. Copied slots are no longer listed as changed, and neither are, if
    /// it `takes_reservations`, the changed reservations that `copy` gets too. Returns the keys that are left.
    pub(crate) fn copy_slots<'p>(
        &self,
        shard: usize,
        prints: &'p [Print],
        takes_reservations: bool,
        mut copy: impl FnMut(
            &Print,
            Option<SavedSlot<SavedValue<&State>>>,
            Vec<SavedReservation>,
        ) -> bool,
    ) -> &'p [Print] {
        let mut shard = self.locked(shard);
        // Look-ups that do not depend on each other wait for memory at the same time. Of boxed states only a few are
        // copied at a time.
        if !shard.has_boxed() {
            let ahead = prints.iter().take(READ_AHEAD);
            black_box(ahead.filter(|key| shard.get::<Packed>(key).is_some()).count());
        }
        for (i, print) in prints.iter().enumerate() {
            let changes = shard.changes.as_mut().filter(|_| takes_reservations);
            let reservations =
                changes.map(|changes| changes.take_reservations(print)).unwrap_or_default();
            let slot = shard.slot(print).map(|slot| match slot {
                AnySlot::Packed(slot) => self.saved(slot, |value| SavedValue::Packed(*value)),
                AnySlot::Boxed(slot) => self.saved(slot, |value| SavedValue::Boxed(&**value)),
            });
            if !copy(print, slot, reservations) {
                MutexGuard::unlock_fair(shard);
                return prints.get(i + 1..).unwrap_or_default();
            }
        }
        &[]
    }

    /// Calls `read` with the boxed state of a key, if it has one, under the lock of the shard.
    pub(crate) fn read_boxed<T>(
        &self,
        shard: usize,
        print: &Print,
        read: impl FnOnce(&State) -> T,
    ) -> Option<T> {
        let mut shard = self.locked(shard);
        let read = shard.get::<Box<State>>(print).map(|state| read(state));
        MutexGuard::unlock_fair(shard);
        read
    }

    fn saved<'s, V>(
        &self,
        slot: &'s mut Slot<V>,
        value: impl FnOnce(&'s V) -> SavedValue<&'s State>,
    ) -> SavedSlot<SavedValue<&'s State>> {
        slot.unlist();
        let expires = match slot.expires {
            u32::MAX => NEVER,
            seconds => self.start / SECOND + u64::from(seconds),
        };
        SavedSlot { print: slot.print, fill: slot.fill(), expires, value: value(&slot.value) }
    }

    /// Inserts a slot as it was saved in place of the key's, which is no change. An expired one only removes the other.
    pub(crate) fn load(&self, shard: usize, saved: SavedSlot<SavedValue<Box<State>>>) {
        let SavedSlot { print, fill, expires, value } = saved;
        let now = self.now();
        let after_start = expires.saturating_sub(self.start / SECOND);
        let expires = u32::try_from(after_start).unwrap_or(u32::MAX);
        let Some(Aligned(shard)) = self.shards.get(shard) else { return };
        let mut shard = shard.lock();
        if expires <= now.seconds() {
            shard.forget(&print);
            return;
        }
        match value {
            SavedValue::Packed(value) => shard.load(Slot::loaded(print, value, fill, expires), now),
            SavedValue::Boxed(state) => shard.load(Slot::loaded(print, state, fill, expires), now),
        }
    }

    pub(crate) fn load_reservation(&self, saved: SavedReservation) {
        self.reservations.load(saved, self.now());
    }

    pub(crate) fn forget_reservations(&self) {
        self.reservations.clear();
    }

    pub(crate) fn loaded(&self) {
        let now = self.now();
        self.reservations.loaded(now);
        for Aligned(shard) in &self.shards {
            shard.lock().loaded(now);
        }
    }

    /// Removes a key. That is no change.
    pub(crate) fn forget(&self, shard: usize, print: &Print) {
        if let Some(Aligned(shard)) = self.shards.get(shard) {
            shard.lock().forget(print);
        }
    }
}

//! The list of a shard's keys that changed since the disk store last saved them, and the form in which it gets them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fingerprint::Print;
use weir_limit::{Fill, Packed, Reservation};

/// Changes listed by any shard, however few keys it may hold.
const MIN_LISTED: usize = 1024;

/// Changed reservations listed by all shards, however few reservations there may be: each of them may change often.
const MIN_LISTED_RESERVATIONS: usize = 1 << 16;

/// A key that expires later than can be written: only eviction removes it.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SavedSlot<V> {
    pub print: Print,
    pub fill: Fill,
    /// The expiry, in whole seconds since the Unix epoch, or [`NEVER`].
    pub expires: u64,
    pub value: V,
}

/// What an id has reserved, as it is saved; nothing if that has been settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedReservation {
    pub print: Print,
    pub reservation: Option<Reservation>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SavedValue<S> {
    Packed(Packed),
    Boxed(S),
}

/// The keys of a shard that changed since they were last saved: charged, inserted or removed.
///
/// A slot is marked as listed, so that a key that is charged often is listed once. The list is as long as the shard may
/// have keys. It is full if more keys than that came and went, or if nothing takes it because a disk hangs: then it is
/// emptied, and the whole store has to be saved.
///
/// **Reservations** that changed are listed by the key that was charged, with what they are now: a key and its
/// reservations are saved as of the same moment, or a restart could return hits twice. They have other locks, so that
/// they cannot be looked up then.
#[derive(Debug)]
pub(super) struct Changes {
    prints: Vec<Print>,
    max: usize,
    is_full: bool,
    /// In the order of the changes. Their keys are among the listed ones.
    reservations: HashMap<Print, Vec<SavedReservation>>,
    room: Arc<Room>,
    lacks_reservations: bool,
}

/// The number of changed reservations that all shards list together.
#[derive(Debug)]
pub(super) struct Room {
    max: usize,
    listed: AtomicUsize,
}

impl Room {
    pub fn new(max_reservations: usize) -> Room {
        Room { max: max_reservations.max(MIN_LISTED_RESERVATIONS), listed: AtomicUsize::new(0) }
    }

    fn take(&self) -> bool {
        self.listed.fetch_add(1, Ordering::Relaxed) < self.max
    }

    fn free(&self, count: usize) {
        self.listed.fetch_sub(count, Ordering::Relaxed);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The fingerprints of changed keys, maybe repeated.
    Keys(Vec<Print>),
    TooMany,
}

impl Changes {
    pub fn new(cap: usize, room: Arc<Room>) -> Changes {
        let (prints, is_full, reservations, lacks_reservations) = Default::default();
        let max = cap.max(MIN_LISTED);
        Changes { prints, max, is_full, reservations, room, lacks_reservations }
    }

    pub fn list(&mut self, print: &Print) {
        if self.is_full {
            return;
        }
        if self.prints.len() < self.max {
            self.prints.push(*print);
        } else {
            self.is_full = true;
            self.prints = Vec::new();
        }
    }

    /// Empties the list. The slots stay marked until they are copied.
    pub fn take(&mut self) -> Changed {
        if std::mem::take(&mut self.is_full) {
            return Changed::TooMany;
        }
        // As many again find room, so that charges seldom wait for memory.
        let room = Vec::with_capacity((2 * self.prints.len()).min(self.max));
        Changed::Keys(std::mem::replace(&mut self.prints, room))
    }

    /// Lists a changed reservation of a key, unless there is no room. Returns whether to list the key: it is its first.
    pub fn list_reservation(&mut self, key: &Print, changed: SavedReservation) -> bool {
        if !self.room.take() {
            self.room.free(1);
            self.forget_reservations();
            (self.lacks_reservations, self.is_full) = (true, true);
            self.prints = Vec::new();
            return false;
        }
        // Most keys have one: no room for more.
        let listed = self.reservations.entry(*key).or_insert_with(|| Vec::with_capacity(1));
        listed.push(changed);
        listed.len() == 1
    }

    pub fn take_reservations(&mut self, key: &Print) -> Vec<SavedReservation> {
        let taken = self.reservations.remove(key).unwrap_or_default();
        self.room.free(taken.len());
        if self.reservations.is_empty() && self.reservations.capacity() > 0 {
            self.reservations = HashMap::new();
        }
        taken
    }

    /// Returns the keys of changed reservations; none if some are missing.
    pub fn keys_of_reservations(&self) -> Option<Vec<Print>> {
        (!self.lacks_reservations).then(|| self.reservations.keys().copied().collect())
    }

    /// Empties all lists: what is in memory now is to be saved.
    pub fn forget(&mut self) {
        self.take();
        self.forget_reservations();
        self.lacks_reservations = false;
    }

    fn forget_reservations(&mut self) {
        self.room.free(self.reservations.values().map(Vec::len).sum());
        self.reservations = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(i: usize) -> Print {
        let [a, b, c, ..] = i.to_le_bytes();
        [a, b, c, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    fn ended(i: usize) -> SavedReservation {
        SavedReservation { print: print(i), reservation: None }
    }

    #[test]
    fn a_full_list_takes_no_memory() {
        let mut changes = Changes::new(7, Arc::new(Room::new(7)));
        changes.list(&print(1));
        changes.list(&print(2));
        assert_eq!(changes.take(), Changed::Keys(vec![print(1), print(2)]));
        for _ in 0..MIN_LISTED + 9 {
            changes.list(&print(3));
        }
        assert_eq!(changes.prints.capacity(), 0);
        assert_eq!(changes.take(), Changed::TooMany);
        changes.list(&print(4));
        assert_eq!(changes.take(), Changed::Keys(vec![print(4)]));
    }

    #[test]
    fn reservations_are_taken_by_key_and_in_order() {
        let room = Arc::new(Room::new(7));
        let mut changes = Changes::new(7, room.clone());
        let firsts: Vec<_> = [(1, 5), (2, 6), (1, 7)]
            .map(|(key, of)| changes.list_reservation(&print(key), ended(of)))
            .into();
        assert_eq!(firsts, [true, true, false]);
        assert_eq!(changes.keys_of_reservations().map(|keys| keys.len()), Some(2));
        assert_eq!(changes.take_reservations(&print(1)), [ended(5), ended(7)]);
        assert_eq!(changes.take_reservations(&print(1)), []);
        assert_eq!(changes.take_reservations(&print(2)), [ended(6)]);
        assert_eq!(room.listed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn shards_share_the_room_for_reservations() {
        let room = Arc::new(Room::new(7));
        let [mut one, mut other] = [(); 2].map(|()| Changes::new(7, room.clone()));
        for i in 0..MIN_LISTED_RESERVATIONS - 1 {
            one.list_reservation(&print(i), ended(i));
        }
        assert!(other.list_reservation(&print(1), ended(1)));
        assert!(!other.list_reservation(&print(2), ended(2)));
        assert_eq!((other.keys_of_reservations(), other.reservations.capacity()), (None, 0));
        assert_eq!(other.take(), Changed::TooMany);
        // Still, until it is emptied.
        assert!(other.list_reservation(&print(1), ended(1)));
        assert_eq!(other.keys_of_reservations(), None);
        other.forget();
        one.forget();
        assert_eq!(other.keys_of_reservations(), Some(vec![]));
        assert_eq!(room.listed.load(Ordering::Relaxed), 0);
    }
}

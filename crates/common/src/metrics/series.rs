//! Metrics by a name that clients choose, such as a domain: a bounded number of names have series, others share one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::counter::Counter;

/// The longest name that gets a series of its own, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// How many series several [`SeriesMap`]s may have together, and the series `other` for all further names.
#[derive(Debug, Default)]
pub struct SeriesLimit<V> {
    max: AtomicUsize,
    used: AtomicUsize,
    /// Counts what has no series of its own.
    pub other: V,
    /// Counts the updates of `other`.
    pub folded: Counter,
}

/// Values by name. A name beyond the limit, or a very long one, has no value of its own.
#[derive(Debug)]
pub struct SeriesMap<V> {
    limit: Arc<SeriesLimit<V>>,
    series: RwLock<HashMap<Arc<str>, V>>,
}

impl<V> SeriesLimit<V> {
    /// Sets the number of series; those beyond a smaller number stay.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Whether there is room, without taking it.
    fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.max.load(Ordering::Relaxed)
    }

    /// Takes one series, if there is room.
    fn take(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let more = |used| (used < max).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl<V: Default> SeriesMap<V> {
    /// Returns a map without series; all maps of a limit share its room.
    pub fn new(limit: Arc<SeriesLimit<V>>) -> SeriesMap<V> {
        SeriesMap { limit, series: RwLock::default() }
    }

    /// Calls `update` with the value of `name`, which is created if there is room, or else with that of all others.
    pub fn update(&self, name: &str, update: impl FnOnce(&V)) {
        if let Some(value) = self.series.read().get(name) {
            return update(value);
        }
        // Without room, new names do not take the exclusive lock.
        if name.len() <= MAX_NAME_BYTES && self.limit.has_room() {
            let mut series = self.series.write();
            // Another thread may have added it.
            if let Some(value) = series.get(name) {
                return update(value);
            }
            if self.limit.take() {
                return update(series.entry(name.into()).or_default());
            }
        }
        self.limit.folded.inc();
        update(&self.limit.other);
    }

    /// Calls `read` with each value, with the lock held.
    pub fn for_each(&self, read: impl FnMut(&V)) {
        self.series.read().values().for_each(read);
    }

    /// Returns all names in order, each with what `read` returns. The lock is held only while they are copied.
    pub fn snapshot<T>(&self, read: impl Fn(&V) -> T) -> Vec<(Arc<str>, T)> {
        let copy = |(name, value): (&Arc<str>, &V)| (name.clone(), read(value));
        let mut all: Vec<_> = self.series.read().iter().map(copy).collect();
        all.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        all
    }
}

/// Frees the room of the map's series.
impl<V> Drop for SeriesMap<V> {
    fn drop(&mut self) {
        self.limit.used.fetch_sub(self.series.get_mut().len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn limit(max: usize) -> Arc<SeriesLimit<AtomicU64>> {
        let limit = SeriesLimit::default();
        limit.set_max(max);
        Arc::new(limit)
    }

    fn add(map: &SeriesMap<AtomicU64>, name: &str) {
        map.update(name, |count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn counts(map: &SeriesMap<AtomicU64>) -> Vec<(Arc<str>, u64)> {
        map.snapshot(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn names_beyond_the_limit_and_long_ones_are_counted_together() {
        let limit = limit(2);
        let map = SeriesMap::new(limit.clone());
        add(&map, &"x".repeat(MAX_NAME_BYTES + 1));
        for name in ["a", "b", "c", "a", "d"] {
            add(&map, name);
        }
        assert_eq!(counts(&map), [("a".into(), 2), ("b".into(), 1)]);
        assert_eq!(limit.other.load(Ordering::Relaxed), 3);
        assert_eq!(limit.folded.get(), 3);
    }

    #[test]
    fn names_are_in_order() {
        let map = SeriesMap::new(limit(100));
        (0..100).rev().for_each(|i| add(&map, &format!("{i:02}")));
        assert!(counts(&map).is_sorted());
    }

    #[test]
    fn without_room_a_new_name_does_not_wait_for_readers() {
        let map = SeriesMap::new(limit(1));
        add(&map, "a");
        let _reader = map.series.read();
        add(&map, "b");
        assert_eq!(map.limit.folded.get(), 1);
    }

    #[test]
    fn maps_share_a_limit_and_a_dropped_one_frees_its_part() {
        let limit = limit(2);
        let (one, two) = (SeriesMap::new(limit.clone()), SeriesMap::new(limit));
        add(&one, "a");
        add(&two, "a");
        add(&two, "b");
        assert_eq!(counts(&two), [("a".into(), 1)]);
        drop(one);
        add(&two, "b");
        assert_eq!(counts(&two), [("a".into(), 1), ("b".into(), 1)]);
    }

    #[test]
    fn racing_threads_stay_within_the_limit() {
        let limit = limit(10);
        let map = SeriesMap::new(limit.clone());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || (0..100).for_each(|i| add(map, &format!("{thread} {i}"))));
            }
        });
        let own: u64 = counts(&map).iter().map(|(_, count)| count).sum();
        assert_eq!(counts(&map).len(), 10);
        assert_eq!(own + limit.other.load(Ordering::Relaxed), 400);
    }
}

//! Counts the requests of a replay: in all, by key, by minute, and over time for plots.

use hashbrown::HashMap;

use super::report::{Count, KeyCount, WorstMinute, share};
use super::time::stamp;
use weir_limit::{Micros, SECOND};

const MINUTE: Micros = 60 * SECOND;

/// The most buckets of a series (counts over time, one for each bucket).
const MAX_BUCKETS: u64 = 360;

/// How long a bucket can be, in seconds. Each is a multiple of the one before, so that buckets can be
/// added up when a log turns out to be longer.
const WIDTHS: [u64; 12] =
    [1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_419_200, 31_449_600];

/// The keys that a report lists, of each count.
const WORST_KEYS: usize = 10;

/// The memory of a key besides its text, roughly.
const KEY_BYTES: usize = 48;

/// The time of the request that is counted, and the bucket that it falls into.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    start: Option<Micros>,
    pub now: Micros,
    width: usize,
    bucket: usize,
}

impl Timeline {
    /// Moves to a time, which is not before the last.
    #[inline]
    pub fn advance(&mut self, now: Micros) {
        let start = *self.start.get_or_insert(now);
        self.now = now;
        loop {
            let bucket = bucket(now, self.width) - bucket(start, self.width);
            if bucket < MAX_BUCKETS || self.width + 1 == WIDTHS.len() {
                self.bucket = bucket as usize;
                return;
            }
            self.width += 1;
        }
    }

    /// Returns the times of the first and of the last request.
    pub fn span(&self) -> Option<(Micros, Micros)> {
        self.start.map(|start| (start, self.now))
    }

    pub fn bucket_width(&self) -> Micros {
        WIDTHS[self.width] * SECOND
    }

    pub fn plot_start(&self) -> Micros {
        bucket(self.start.unwrap_or(0), self.width) * self.bucket_width()
    }
}

/// Returns the number of the bucket of a time, counted from 1970.
fn bucket(time: Micros, width: usize) -> u64 {
    time / (WIDTHS[width] * SECOND)
}

/// Counts over time. Empty buckets at the end are not kept.
#[derive(Debug, Default)]
pub(super) struct Series {
    width: usize,
    buckets: Vec<u64>,
}

impl Series {
    #[inline]
    pub fn add(&mut self, timeline: &Timeline) {
        self.widen(timeline);
        if self.buckets.len() <= timeline.bucket {
            self.buckets.resize(timeline.bucket + 1, 0);
        }
        self.buckets[timeline.bucket] += 1;
    }

    /// Adds up buckets until they are as wide as those of the timeline.
    fn widen(&mut self, timeline: &Timeline) {
        let start = timeline.start.unwrap_or(0);
        while self.width < timeline.width {
            let factor = WIDTHS[self.width + 1] / WIDTHS[self.width];
            let first = bucket(start, self.width);
            let mut wider: Vec<u64> = Vec::new();
            for (i, count) in self.buckets.iter().enumerate() {
                let at = ((first + i as u64) / factor - first / factor) as usize;
                if wider.len() <= at {
                    wider.resize(at + 1, 0);
                }
                wider[at] += count;
            }
            self.buckets = wider;
            self.width += 1;
        }
    }

    pub fn finish(mut self, timeline: &Timeline) -> Vec<u64> {
        self.widen(timeline);
        self.buckets
    }
}

/// The bytes that keys may still take, of all counts together.
#[derive(Debug)]
pub(super) struct KeyMemory(pub usize);

#[derive(Debug, Default)]
pub(super) struct Tally {
    requests: u64,
    minute: Micros,
    in_minute: u64,
    worst_minute: Option<(Micros, u64)>,
    keys: HashMap<Box<str>, u64>,
    is_cut: bool,
    series: Series,
}

impl Tally {
    pub fn add(&mut self, timeline: &Timeline) {
        self.requests += 1;
        self.series.add(timeline);
        let minute = timeline.now / MINUTE * MINUTE;
        if minute != self.minute {
            (self.minute, self.in_minute) = (minute, 0);
        }
        self.in_minute += 1;
        if self.worst_minute.is_none_or(|(_, most)| self.in_minute > most) {
            self.worst_minute = Some((minute, self.in_minute));
        }
    }

    pub fn add_key(&mut self, key: &str, memory: &mut KeyMemory) {
        if let Some(count) = self.keys.get_mut(key) {
            *count += 1;
            return;
        }
        match memory.0.checked_sub(key.len() + KEY_BYTES) {
            Some(left) => {
                memory.0 = left;
                self.keys.insert(key.into(), 1);
            }
            None => self.is_cut = true,
        }
    }

    /// Returns the count, of so many requests that were decided.
    pub fn finish(self, timeline: &Timeline, requests: u64) -> Count {
        let keys = self.keys.len() as u64;
        let mut worst_keys: Vec<(Box<str>, u64)> = self.keys.into_iter().collect();
        worst_keys.sort_unstable_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        worst_keys.truncate(WORST_KEYS);
        Count {
            requests: self.requests,
            share: share(self.requests, requests),
            worst_minute: self
                .worst_minute
                .map(|(start, requests)| WorstMinute { start: stamp(start), requests }),
            worst_keys: worst_keys
                .into_iter()
                .map(|(key, requests)| KeyCount { key: key.into(), requests })
                .collect(),
            keys,
            keys_are_complete: !self.is_cut,
            series: self.series.finish(timeline),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_width_is_a_multiple_of_the_one_before() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1] % pair[0] == 0));
        // All times that logs may have fit.
        assert!(130 * 366 * 86_400 / WIDTHS[WIDTHS.len() - 1] < MAX_BUCKETS);
    }

    #[test]
    fn keys_have_a_bound() {
        let (mut tally, mut memory) = (Tally::default(), KeyMemory(2 * (KEY_BYTES + 1)));
        for key in ["a", "b", "c", "b"] {
            tally.add_key(key, &mut memory);
        }
        let count = tally.finish(&Timeline::default(), 4);
        let worst =
            [("b", 2), ("a", 1)].map(|(key, requests)| KeyCount { key: key.to_owned(), requests });
        assert_eq!(count.worst_keys, worst);
        assert!(!count.keys_are_complete);
    }

    proptest! {
        /// Against counts that are made once all times are known.
        #[test]
        fn counts_agree_with_a_naive_model(
            start in 0..1_000_000_000u64,
            steps in prop::collection::vec(
                (prop_oneof![0..3u64, 0..100u64, 0..100_000u64, 0..100_000_000u64], any::<bool>()),
                1..200,
            ),
        ) {
            let (mut timeline, mut tally, mut series) =
                (Timeline::default(), Tally::default(), Series::default());
            let (mut now, mut times) = (start * SECOND, Vec::new());
            for (step, is_counted) in steps {
                now += step * SECOND / 2;
                timeline.advance(now);
                series.add(&timeline);
                if is_counted {
                    tally.add(&timeline);
                    times.push(now);
                }
            }
            let count = tally.finish(&timeline, times.len() as u64);
            prop_assert_eq!(count.requests, times.len() as u64);
            let width = timeline.bucket_width();
            let first = timeline.plot_start() / width;
            let mut buckets = Vec::new();
            for time in &times {
                let at = (time / width - first) as usize;
                buckets.resize(buckets.len().max(at + 1), 0);
                buckets[at] += 1;
            }
            prop_assert_eq!(&count.series, &buckets);
            prop_assert!(series.finish(&timeline).len() as u64 <= MAX_BUCKETS);
            let in_minute = |minute: Micros| times.iter().filter(|time| *time / MINUTE == minute / MINUTE).count();
            let most = times.iter().map(|time| in_minute(*time)).max();
            prop_assert_eq!(count.worst_minute.as_ref().map(|worst| worst.requests as usize), most);
            if let Some(WorstMinute { start, requests }) = count.worst_minute {
                prop_assert_eq!(in_minute(start.as_microsecond() as u64), requests as usize);
            }
        }
    }
}

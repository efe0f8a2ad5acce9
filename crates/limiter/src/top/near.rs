//! The keys that are near one of their limits.

use super::key::Key;
use super::sketch::{Sketch, Snapshot};
use weir_limit::Micros;

/// The part of the rows that is kept for rows past their reset, which are removed all at once.
const SPARE_PART: usize = 8;

/// Admissions at or over `near_limit_ratio`, by key and limit. Up to the configured number of keys that
/// are near a limit at a time all have rows; beyond it, those with the fewest such hits are replaced.
#[derive(Debug)]
pub(super) struct NearKeys {
    sketch: Sketch<Near>,
    spare: usize,
    /// Rows made since those past their reset were removed.
    inserted: usize,
}

/// The last admission of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Near {
    /// The name of the limit.
    pub limit: Box<str>,
    pub used: u64,
    pub n: u32,
    /// When it was, by the monotonic clock.
    pub at: Micros,
    /// When the limit is back to its full allowance if left alone.
    pub reset: Micros,
}

impl Near {
    /// Takes over what another thread has recorded later.
    pub(crate) fn combine(&mut self, other: Near) {
        if (other.at, other.used) > (self.at, self.used) {
            *self = other;
        }
    }
}

impl NearKeys {
    pub fn new(entries: usize) -> NearKeys {
        let spare = entries / SPARE_PART + 1;
        NearKeys { sketch: Sketch::new(entries + spare), spare, inserted: 0 }
    }

    /// Records an admission of hits.
    #[inline]
    pub fn add(&mut self, key: &Key<'_>, rule: &str, hits: u64, near: &NearNow<'_>) {
        match self.sketch.add(key, hits) {
            Some(row) => near.update(&mut row.payload),
            None => self.insert(key, rule, hits, near),
        }
    }

    #[inline(never)]
    fn insert(&mut self, key: &Key<'_>, rule: &str, hits: u64, near: &NearNow<'_>) {
        if self.sketch.is_full() && self.inserted >= self.spare {
            self.sketch.retain(|row| row.reset > near.at);
            self.inserted = 0;
        }
        self.inserted += 1;
        self.sketch.insert(key, rule, hits, near.to_row());
    }

    /// Returns a copy, with rows past their reset.
    pub fn snapshot(&self) -> Snapshot<Near> {
        self.sketch.snapshot()
    }
}

/// An admission near a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct NearNow<'a> {
    pub limit: &'a str,
    pub used: u64,
    pub n: u32,
    pub at: Micros,
    pub reset: Micros,
}

impl NearNow<'_> {
    fn to_row(self) -> Near {
        let NearNow { limit, used, n, at, reset } = self;
        Near { limit: limit.into(), used, n, at, reset }
    }

    fn update(&self, row: &mut Near) {
        // A reload may rename a limit.
        if *row.limit != *self.limit {
            row.limit = self.limit.into();
        }
        (row.used, row.n, row.at, row.reset) = (self.used, self.n, self.at, self.reset);
    }
}

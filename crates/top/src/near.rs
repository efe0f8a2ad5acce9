//! The keys that are near one of their limits, for the lists of top keys.

use super::sketch::{Key, Sketch, Snapshot};
use weir_limit::{Limit, Micros};

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
    /// The name of the limit, or its text.
    pub limit: Box<str>,
    pub used: u64,
    /// The most hits that the limit can allow at once.
    pub n: u32,
    /// When the key was admitted, by the monotonic clock.
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

    /// Records the limit that a key is near after a decision at some time.
    #[inline(never)]
    pub fn add(&mut self, key: &Key<'_>, hits: u64, near: &NearAdmission<'_>, at: Micros) {
        let key = key.of_limit(near.limit);
        match self.sketch.add(&key, hits) {
            Some(row) => near.update(&mut row.payload, at),
            None => self.insert(&key, hits, near.to_row(at)),
        }
    }

    pub fn return_hits(&mut self, key: &Key<'_>, hits: u64, near_threshold: f32) {
        let Some(row) = self.sketch.add(key, 0) else { return };
        row.payload.used = row.payload.used.saturating_sub(hits);
        if (row.payload.used as f32) < near_threshold {
            row.payload.reset = 0;
        }
    }

    #[inline(never)]
    fn insert(&mut self, key: &Key<'_>, hits: u64, near: Near) {
        if self.sketch.is_full() && self.inserted >= self.spare {
            self.sketch.retain(|row| row.reset > near.at);
            self.inserted = 0;
        }
        self.inserted += 1;
        self.sketch.insert(key, hits, near);
    }

    /// Returns a copy, with rows past their reset.
    pub fn snapshot(&self) -> Snapshot<Near> {
        self.sketch.snapshot()
    }
}

/// A limit after hits that it admitted.
#[derive(Clone, Copy, Debug)]
pub struct NearAdmission<'a> {
    /// Identifies the limit among all that the key may have, by any evenly spread number.
    pub limit: u64,
    /// The name of the limit; may be empty.
    pub name: &'a str,
    /// The limit, to be shown by its text, if it is one of several without a name.
    pub unnamed: Option<&'a Limit>,
    pub used: u64,
    /// The most hits that the limit can allow at once.
    pub n: u32,
    /// The time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
}

impl NearAdmission<'_> {
    fn to_row(self, at: Micros) -> Near {
        let NearAdmission { used, n, reset_after, .. } = self;
        Near { limit: self.text(), used, n, at, reset: at.saturating_add(reset_after) }
    }

    fn update(&self, row: &mut Near, at: Micros) {
        // A reload may rename a limit, or change it.
        if row.n != self.n || self.unnamed.is_none() && *row.limit != *self.name {
            row.limit = self.text();
        }
        (row.used, row.n, row.at) = (self.used, self.n, at);
        row.reset = at.saturating_add(self.reset_after);
    }

    fn text(&self) -> Box<str> {
        self.unnamed.map_or_else(|| self.name.into(), |limit| limit.to_string().into())
    }
}

//! The keys that are banned now, for the lists of top keys: a ban denies a key for a while after many denials.
//!
//! **Bounded.** A thread has as many rows for bans as in each of its lists. If there are more, those that end first
//! have none.

use std::collections::{BTreeMap, HashMap};

use super::key::RowKey;
use super::sketch::{Cells, Key, Row, Snapshot};
use weir_limit::Micros;

/// The bans of one thread, each with the hits that it has denied there.
#[derive(Debug)]
pub(super) struct Bans {
    max_rows: usize,
    /// When the ban of a key ends, by the monotonic clock, by the hash of the key.
    ends: HashMap<u64, Micros>,
    /// In the order in which they end, by that time and the hash of the key.
    rows: BTreeMap<(Micros, u64), Row<()>>,
}

impl Bans {
    pub fn new(max_rows: usize) -> Bans {
        Bans { max_rows, ends: HashMap::new(), rows: BTreeMap::new() }
    }

    /// Records hits that a ban denied, which ends at some time.
    #[inline(never)]
    pub fn add(&mut self, key: &Key<'_>, hits: u64, now: Micros, end: Micros) {
        let mut row = self.remove(key.hash, now).unwrap_or_else(|| Row {
            hash: key.hash,
            key: RowKey::new(key.domain, key.entries, key.rule),
            count: 0,
            error: 0,
            payload: (),
        });
        row.count = row.count.saturating_add(hits);
        self.ends.insert(key.hash, end);
        self.rows.insert((end, key.hash), row);
        while let Some((&(end, hash), _)) = self.rows.first_key_value()
            && (end <= now || self.rows.len() > self.max_rows)
        {
            self.remove(hash, now);
        }
    }

    /// Removes a key. Returns its row unless its ban has ended.
    pub fn remove(&mut self, hash: u64, now: Micros) -> Option<Row<()>> {
        let end = self.ends.remove(&hash)?;
        self.rows.remove(&(end, hash)).filter(|_| end > now)
    }

    /// Returns the hashes of the keys that are banned at `now`, each with the end of its ban.
    pub fn ends(&self, now: Micros) -> impl Iterator<Item = (u64, Micros)> {
        self.ends.iter().map(|(hash, end)| (*hash, *end)).filter(move |(_, end)| *end > now)
    }

    /// Returns a copy with the time until each ban ends, in milliseconds.
    pub fn snapshot(&self, now: Micros) -> Snapshot<u64> {
        let rows = self.rows.range((now.saturating_add(1), 0)..);
        let rows: Vec<_> = rows
            .map(|((end, _), row)| Row {
                hash: row.hash,
                key: row.key.clone(),
                count: row.count,
                error: 0,
                payload: (end - now).div_ceil(1_000),
            })
            .collect();
        let total = rows.iter().fold(0, |total: u64, row| total.saturating_add(row.count));
        Snapshot { rows, cells: Cells::default(), total }
    }
}

//! The keys with the most hits of a stream, in a fixed number of rows.
//!
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
//! elements in data streams", ICDT 2005) with the filter of Homem and Carvalho ("Finding top-k
//! elements in data streams", Information Sciences 2010). A row counts the hits of a key. When all
//! rows are taken, the row with the least count is given to a new key. A table of cells, by hash,
//! keeps how many hits a key without a row can have had at most:
//!
//! - A new row starts with its cell as its error and a part of its count.
//! - The cell of a row that is replaced is raised to the count of the row.
//! - A key whose hits, with those of its cell, are not more than the least count gets no row; its
//!   hits are added to the cell. So a flood of rare keys replaces few rows, and costs little.
//!
//! After any stream of `n` hits, of any weights, without sampling:
//!
//! - The true count of a row is from `count - error` to `count`.
//! - A key without a row has had at most the hits of its cell, and that is at most `n / rows`.
//!
//! Cost: a hit of a key with a row is a look-up and an addition. The least count is found by a heap
//! whose order is repaired only when a row is to be replaced: counts only grow, so that the top is the
//! least once its count is up to date.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::key::RowKey;
use weir_common::entry::Entry;

/// Cells for each row, rounded up to a power of two in total: with more, keys share fewer of them.
const CELLS_PER_ROW: usize = 16;

/// Hashes keys with a secret of its own.
#[derive(Clone, Default)]
pub(super) struct KeyHasher(DefaultHashBuilder);

/// The key of a charge, borrowed from its request. Keys of the same hash are the same: comparing texts
/// would take longer, and of a billion keys one in 10 million takes the place of a listed one.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub domain: &'a str,
    pub entries: &'a [Entry<'a>],
    /// The path of the rule: two rules may count the same entries.
    pub rule: &'a str,
    pub hash: u64,
}

/// Counts the hits of keys, each row with a `P` of its own.
#[derive(Debug)]
pub(super) struct Sketch<P> {
    capacity: usize,
    rows: Vec<Row<P>>,
    /// Indices of rows, by the hash of their key.
    index: HashTable<u32>,
    order: Order,
    cells: Cells,
    /// The hits of all keys.
    total: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Row<P> {
    pub hash: u64,
    pub key: RowKey,
    /// An upper bound of the key's hits.
    pub count: u64,
    /// How many more than the hits of the key `count` is at most.
    pub error: u64,
    pub payload: P,
}

/// Upper bounds of the hits of keys without a row, by the hash of the key. Empty while all have rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    cells: Box<[u32]>,
    /// How many hits any key can have had while it had no row, but was to be listed.
    pub greatest: u64,
}

/// A copy of a sketch, to be merged with others.
#[derive(Debug)]
pub(super) struct Snapshot<P> {
    pub rows: Vec<Row<P>>,
    pub cells: Cells,
    pub total: u64,
}

impl KeyHasher {
    #[inline]
    pub fn key<'a>(&self, domain: &'a str, entries: &'a [Entry<'a>], rule: &'a str) -> Key<'a> {
        let mut hasher = self.0.build_hasher();
        hasher.write(domain.as_bytes());
        hasher.write(rule.as_bytes());
        for (key, value) in entries {
            hasher.write(key.as_bytes());
            hasher.write(value.as_bytes());
        }
        Key { domain, entries, rule, hash: hasher.finish() }
    }
}

impl<'a> Key<'a> {
    /// Returns the key of one limit for the same entries. The hash is secret, so that any fixed change
    /// does.
    #[inline]
    pub fn of_limit(&self, limit: u64) -> Key<'a> {
        Key { hash: self.hash ^ limit, ..*self }
    }
}

impl<P> Sketch<P> {
    pub fn new(capacity: usize) -> Sketch<P> {
        Sketch {
            capacity,
            rows: Vec::new(),
            index: HashTable::new(),
            order: Order::default(),
            cells: Cells::default(),
            total: 0,
        }
    }

    /// Returns an empty one, in which as many keys are counted without an allocation but for their rows.
    pub fn emptied(&self) -> Sketch<P> {
        let rows = self.rows.len();
        Sketch {
            capacity: self.capacity,
            rows: Vec::with_capacity(rows),
            index: HashTable::with_capacity(rows),
            order: Order { heap: BinaryHeap::with_capacity(self.order.heap.len()) },
            cells: Cells { cells: vec![0; self.cells.cells.len()].into(), greatest: 0 },
            total: 0,
        }
    }

    pub fn into_snapshot(self) -> Snapshot<P> {
        Snapshot { rows: self.rows, cells: self.cells, total: self.total }
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.capacity
    }

    /// Adds hits to the row of a key, if it has one. They are part of the total in any case.
    #[inline]
    pub fn add(&mut self, key: &Key<'_>, hits: u64) -> Option<&mut Row<P>> {
        self.total = self.total.saturating_add(hits);
        let rows = &self.rows;
        let is_of_key = |at: &u32| rows.get(*at as usize).is_some_and(|row| row.hash == key.hash);
        let at = *self.index.find(key.hash, is_of_key)?;
        let row = self.rows.get_mut(at as usize)?;
        row.count = row.count.saturating_add(hits);
        Some(row)
    }

    /// Gives a row to a key without one, in place of that with the least count if there is no room.
    pub fn insert(&mut self, key: &Key<'_>, hits: u64, payload: P) {
        let error = self.cells.get(key.hash);
        let (hash, count) = (key.hash, error.saturating_add(hits));
        let stored = RowKey::new(key.domain, key.entries, key.rule);
        let row = Row { hash, key: stored, count, error, payload };
        let at = if self.is_full() {
            let (_, at) = self.order.least(&self.rows);
            let Some(replaced) = self.rows.get_mut(at as usize) else { return };
            let (hash, count) = (replaced.hash, replaced.count);
            *replaced = row;
            if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
                found.remove();
            }
            self.cells.raise(hash, count, CELLS_PER_ROW * self.capacity);
            at
        } else {
            self.order.clear();
            self.rows.push(row);
            self.rows.len() as u32 - 1
        };
        let rows = &self.rows;
        self.index.insert_unique(key.hash, at, |at| rows[*at as usize].hash);
    }

    /// Removes rows whose keys are not to be listed any more: they are not unlisted.
    pub fn retain(&mut self, keep: impl Fn(&P) -> bool) {
        let Sketch { rows, index, cells, capacity, .. } = self;
        rows.retain(|row| {
            let keep = keep(&row.payload);
            if !keep {
                cells.keep(row.hash, row.count, CELLS_PER_ROW * *capacity);
            }
            keep
        });
        index.clear();
        for (at, row) in (0..).zip(rows.iter()) {
            index.insert_unique(row.hash, at, |at| rows[*at as usize].hash);
        }
        self.order.clear();
    }
}

impl Sketch<()> {
    #[inline]
    pub fn count(&mut self, key: &Key<'_>, hits: u64) {
        if self.add(key, hits).is_none() && !self.cells.add(key.hash, hits, self.order.bound()) {
            self.count_without_row(key, hits);
        }
    }

    /// Adds hits to the cell of a key, or gives it a row if they may make them more than the least count.
    #[inline(never)]
    fn count_without_row(&mut self, key: &Key<'_>, hits: u64) {
        let estimate = self.cells.get(key.hash).saturating_add(hits);
        if self.is_full() && estimate <= self.order.least(&self.rows).0 {
            self.cells.raise(key.hash, estimate, CELLS_PER_ROW * self.capacity);
        } else {
            self.insert(key, hits, ());
        }
    }
}

impl<P: Clone> Sketch<P> {
    pub fn snapshot(&self) -> Snapshot<P> {
        let (rows, cells) = (self.rows.clone(), self.cells.clone());
        Snapshot { rows, cells, total: self.total }
    }
}

impl Cells {
    /// Returns cells with these bounds; none if they are 0.
    pub fn of(bounds: &[u64]) -> Cells {
        match bounds.iter().copied().max() {
            None | Some(0) => Cells::default(),
            Some(greatest) => {
                Cells { cells: bounds.iter().copied().map(narrowed).collect(), greatest }
            }
        }
    }

    /// Returns the sums of cells, of which all have the same number or none.
    pub fn sum(all: &[&Cells]) -> Cells {
        let mut sums = vec![0; all.iter().map(|cells| cells.cells.len()).max().unwrap_or(0)];
        all.iter().for_each(|cells| cells.add_to(&mut sums));
        Cells::of(&sums)
    }

    /// Returns how many hits the key of a hash can have had while it had no row.
    #[inline]
    pub fn get(&self, hash: u64) -> u64 {
        self.cells.get(cell_at(hash, self.cells.len())).map_or(0, |cell| self.bound(*cell))
    }

    /// Adds hits to a cell, if there are cells and it is `max` at most then. Returns whether it did; it need not
    /// for numbers that hardly fit.
    #[inline]
    fn add(&mut self, hash: u64, hits: u64, max: u64) -> bool {
        let at = cell_at(hash, self.cells.len());
        let Some(cell) = self.cells.get_mut(at) else { return false };
        let bound = u64::from(*cell).saturating_add(hits);
        if bound > max.min(MOST_THAT_FIT) {
            return false;
        }
        *cell = bound as u32;
        self.greatest = bound.max(self.greatest);
        true
    }

    /// Adds the bounds to as many others.
    pub fn add_to(&self, bounds: &mut [u64]) {
        for (bound, cell) in bounds.iter_mut().zip(&self.cells) {
            *bound = bound.saturating_add(self.bound(*cell));
        }
    }

    /// Raises the bounds of other cells, which may be fewer, to these.
    pub fn raise_all(&self, bounds: &mut [u64]) {
        for (at, cell) in self.cells.iter().enumerate() {
            let at = at & bounds.len().wrapping_sub(1);
            if let Some(bound) = bounds.get_mut(at) {
                *bound = self.bound(*cell).max(*bound);
            }
        }
    }

    /// Raises the bound of a key. `cells`: how many there are, rounded up to a power of two.
    pub fn raise(&mut self, hash: u64, to: u64, cells: usize) {
        self.keep(hash, to, cells);
        self.greatest = to.max(self.greatest);
    }

    /// Keeps the hits of a key that is not to be listed.
    fn keep(&mut self, hash: u64, to: u64, cells: usize) {
        if self.cells.is_empty() {
            self.cells = vec![0; cells.next_power_of_two()].into();
        }
        let at = cell_at(hash, self.cells.len());
        if let Some(cell) = self.cells.get_mut(at) {
            *cell = narrowed(to).max(*cell);
            if *cell == TOO_MANY {
                self.greatest = to.max(self.greatest);
            }
        }
    }

    #[inline]
    fn bound(&self, cell: u32) -> u64 {
        if cell == TOO_MANY { self.greatest } else { cell.into() }
    }
}

/// A cell with as many hits as any other, at most: they do not fit.
const TOO_MANY: u32 = u32::MAX;

const MOST_THAT_FIT: u64 = TOO_MANY as u64 - 1;

fn narrowed(bound: u64) -> u32 {
    u32::try_from(bound).unwrap_or(TOO_MANY)
}

/// Returns the cell of a key among a power of two, by bits of the hash that do not choose the bucket of the
/// index.
#[inline]
pub(super) fn cell_at(hash: u64, cells: usize) -> usize {
    (hash >> 24) as usize & cells.wrapping_sub(1)
}

/// The rows by counts that they had: the least at the top.
#[derive(Debug, Default)]
struct Order {
    /// A count and the index of its row; empty until all rows are taken and the least is needed.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Order {
    /// Forgets the order, because there are other rows.
    fn clear(&mut self) {
        self.heap.clear();
    }

    /// Returns a lower bound of the least count; 0 while there are free rows.
    #[inline]
    fn bound(&self) -> u64 {
        self.heap.peek().map_or(0, |Reverse((count, _))| *count)
    }

    /// Returns the least count and the index of its row; 0 and 0 if there are none.
    fn least<P>(&mut self, rows: &[Row<P>]) -> (u64, u32) {
        if self.heap.is_empty() {
            self.heap.extend(rows.iter().map(|row| row.count).zip(0..).map(Reverse));
        }
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((known, at)) = *top;
            let count = rows.get(at as usize).map_or(0, |row| row.count);
            if count == known {
                return (count, at);
            }
            // The heap restores its order once `top` is dropped.
            *top = Reverse((count, at));
        }
        (0, 0)
    }
}

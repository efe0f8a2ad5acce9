//! Merges the sketches of all threads, in which each counts its keys with the most hits, for lists and the history.
//!
//! As in Agarwal and others, "Mergeable summaries" (PODS 2012): the counts and the errors of a key add
//! up. Where it has no row, it has had at most the hits of its cell, which are part of both.

use std::cmp::Ordering;

use hashbrown::HashTable;

use super::sketch::{Cells, Row, Snapshot};

/// The rows of all sketches, in no order.
#[derive(Debug)]
pub(super) struct Merged<P> {
    pub rows: Vec<Row<P>>,
    /// The hits of all keys.
    pub total: u64,
    /// A key without a row has had at most this many.
    pub unlisted: u64,
    cells: Vec<Cells>,
}

/// Merges sketches of one hasher. `combine` gets the payloads of a key that has several rows.
pub(super) fn merge<P>(snapshots: Vec<Snapshot<P>>, combine: impl Fn(&mut P, P)) -> Merged<P> {
    let mut merged = Merged { rows: Vec::new(), total: 0, unlisted: 0, cells: Vec::new() };
    let mut index: HashTable<usize> = HashTable::new();
    // Of each row, the cells of the sketches in which the key has one.
    let mut own_cells: Vec<u64> = Vec::new();
    for Snapshot { rows, cells, total } in snapshots {
        merged.total = merged.total.saturating_add(total);
        merged.unlisted = merged.unlisted.saturating_add(cells.greatest);
        for row in rows {
            let hash = row.hash;
            let known = index.find(hash, |at| merged.rows[*at].hash == hash).copied();
            let known = known.and_then(|at| merged.rows.get_mut(at).zip(own_cells.get_mut(at)));
            if let Some((known, own_cells)) = known {
                known.count = known.count.saturating_add(row.count);
                known.error = known.error.saturating_add(row.error);
                *own_cells = own_cells.saturating_add(cells.get(hash));
                combine(&mut known.payload, row.payload);
                continue;
            }
            index.insert_unique(hash, merged.rows.len(), |at| merged.rows[*at].hash);
            merged.rows.push(row);
            own_cells.push(cells.get(hash));
        }
        merged.cells.push(cells);
    }
    let Merged { rows, cells, .. } = &mut merged;
    for (row, own_cells) in rows.iter_mut().zip(own_cells) {
        let others = bound(cells, row.hash).saturating_sub(own_cells);
        row.count = row.count.saturating_add(others);
        row.error = row.error.saturating_add(others);
    }
    merged
}

/// Returns how many hits the key of a hash can have had in all sketches in which it had no row.
fn bound(cells: &[Cells], hash: u64) -> u64 {
    cells.iter().map(|cells| cells.get(hash)).fold(0, u64::saturating_add)
}

impl<P> Merged<P> {
    /// Sorts the rows, those that are equal by their texts.
    pub fn sort(&mut self, order: impl Fn(&Row<P>, &Row<P>) -> Ordering) {
        let texts = |a: &Row<P>, b: &Row<P>| {
            (a.key.texts(), a.key.rule()).cmp(&(b.key.texts(), b.key.rule()))
        };
        self.rows.sort_unstable_by(|a, b| order(a, b).then_with(|| texts(a, b)));
    }

    /// Returns how many hits the key of a hash, which has no row, can have had.
    pub fn bound(&self, hash: u64) -> u64 {
        bound(&self.cells, hash)
    }

    /// Adds to fewer cells, by the hash of keys, how many hits one without a row can have had.
    pub fn add_bounds(&self, cells: &mut [u64]) {
        let mut greatest = vec![0; cells.len()];
        for of_sketch in &self.cells {
            greatest.fill(0);
            of_sketch.raise_all(&mut greatest);
            for (cell, greatest) in cells.iter_mut().zip(&greatest) {
                *cell = cell.saturating_add(*greatest);
            }
        }
    }
}

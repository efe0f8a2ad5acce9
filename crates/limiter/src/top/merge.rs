//! One list from the sketches of all threads.
//!
//! As in Agarwal and others, "Mergeable summaries" (PODS 2012): the counts and the errors of a key add
//! up. Where it has no row, it has had at most the hits of its cell, which are part of both.

use hashbrown::HashTable;

use super::key::StoredKey;
use super::sketch::Snapshot;

/// The rows of all sketches, in no order.
#[derive(Debug)]
pub(super) struct Merged<P> {
    pub rows: Vec<MergedRow<P>>,
    /// The hits of all keys.
    pub total: u64,
    /// A key without a row has had at most this many.
    pub unlisted: u64,
}

#[derive(Debug)]
pub(super) struct MergedRow<P> {
    pub key: StoredKey,
    pub count: u64,
    pub error: u64,
    pub payload: P,
    hash: u64,
    /// The cells of the sketches in which the key has a row.
    own_cells: u64,
}

/// Merges sketches of one hasher. `combine` gets the payloads of a key that has several rows.
pub(super) fn merge<P>(snapshots: Vec<Snapshot<P>>, combine: impl Fn(&mut P, P)) -> Merged<P> {
    let mut merged = Merged { rows: Vec::new(), total: 0, unlisted: 0 };
    let mut index: HashTable<usize> = HashTable::new();
    let mut all_cells = Vec::new();
    for Snapshot { rows, cells, total } in snapshots {
        merged.total = merged.total.saturating_add(total);
        merged.unlisted = merged.unlisted.saturating_add(cells.greatest());
        for row in rows {
            let hash = row.hash();
            let known = index.find(hash, |at| merged.rows[*at].hash == hash).copied();
            if let Some(known) = known.and_then(|at| merged.rows.get_mut(at)) {
                known.count = known.count.saturating_add(row.count);
                known.error = known.error.saturating_add(row.error);
                known.own_cells = known.own_cells.saturating_add(cells.get(hash));
                combine(&mut known.payload, row.payload);
                continue;
            }
            index.insert_unique(hash, merged.rows.len(), |at| merged.rows[*at].hash);
            merged.rows.push(MergedRow {
                hash,
                own_cells: cells.get(hash),
                key: row.key,
                count: row.count,
                error: row.error,
                payload: row.payload,
            });
        }
        all_cells.push(cells);
    }
    for row in &mut merged.rows {
        let cells = all_cells.iter().map(|cells| cells.get(row.hash));
        let others = cells.fold(0, u64::saturating_add).saturating_sub(row.own_cells);
        row.count = row.count.saturating_add(others);
        row.error = row.error.saturating_add(others);
    }
    merged
}

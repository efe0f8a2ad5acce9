//! The controls of this process, and how those of others are merged with them.
//!
//! The newest row of an id wins, and a deleted control leaves a tombstone: so the order in which
//! replicas learn of changes does not matter, and what Redis has lost comes back from any replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::control::TimeText;
use super::{Control, MAX_CONTROLS};
use crate::limit::{Micros, SECOND};
use crate::store::RowChange;

/// How long a tombstone is kept, unless the control would have ended before.
const TOMBSTONE_TIME: Micros = 7 * 86_400 * SECOND;

/// How long a row that says nothing any more stays in the table: until then every replica has seen it
/// end.
const EXPIRED_ROW_TIME: Micros = 60 * SECOND;

/// A control, or what is left of one that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Control(Arc<Control>),
    Tombstone(Tombstone),
}

/// A control that was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    pub at: Micros,
    pub until: Micros,
}

/// A row as text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RowText {
    Tombstone { deleted_at: TimeText, until: TimeText },
    Control(Box<Control>),
}

impl Row {
    pub fn at(&self) -> Micros {
        match self {
            Row::Control(control) => control.at,
            Row::Tombstone(tombstone) => tombstone.at,
        }
    }

    fn until(&self) -> Option<Micros> {
        match self {
            Row::Control(control) => control.until,
            Row::Tombstone(tombstone) => Some(tombstone.until),
        }
    }

    fn is_expired(&self, now: Micros) -> bool {
        self.until().is_some_and(|until| until <= now)
    }

    fn text(&self) -> String {
        let text = match self {
            Row::Control(control) => RowText::Control(Box::new((**control).clone())),
            Row::Tombstone(Tombstone { at, until }) => {
                RowText::Tombstone { deleted_at: TimeText(*at), until: TimeText(*until) }
            }
        };
        // It has only text and numbers, which are always valid.
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// Reads a row; none if it is not one, as of a newer version.
    fn read(name: &str, text: &str) -> Option<Row> {
        match serde_json::from_str(text).ok()? {
            RowText::Control(control) => {
                (control.id == name).then(|| Row::Control(Arc::from(control)))
            }
            RowText::Tombstone { deleted_at, until } => {
                Some(Row::Tombstone(Tombstone { at: deleted_at.0, until: until.0 }))
            }
        }
    }
}

/// All controls, and what the table does not have of them.
#[derive(Debug, Default)]
pub(super) struct ControlSet {
    rows: BTreeMap<String, Row>,
    /// The ids of rows that the table may lack.
    unshared: BTreeSet<String>,
    /// Rows of the table that have expired.
    expired: Vec<RowChange>,
}

/// What merging rows of the table has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    pub changed: bool,
    /// Rows that are not understood.
    pub unknown: usize,
    /// Controls that do not fit.
    pub omitted: usize,
}

impl ControlSet {
    /// The controls, expired or not.
    pub fn controls(&self) -> impl Iterator<Item = &Arc<Control>> {
        self.rows.values().filter_map(|row| match row {
            Row::Control(control) => Some(control),
            Row::Tombstone(_) => None,
        })
    }

    pub fn get(&self, id: &str) -> Option<&Arc<Control>> {
        match self.rows.get(id)? {
            Row::Control(control) => Some(control),
            Row::Tombstone(_) => None,
        }
    }

    /// Returns the time for a new row of this id: now, and after the row that is there.
    pub fn time_of(&self, id: &str, now: Micros) -> Micros {
        self.rows.get(id).map_or(now, |row| now.max(row.at() + 1))
    }

    pub fn put(&mut self, control: Arc<Control>, shares: bool) {
        self.set(control.id.clone(), Row::Control(control), shares);
    }

    /// Deletes a control at `at`. The tombstone stays only where others might have the control.
    pub fn delete(&mut self, id: &str, at: Micros, shares: bool) -> Option<Arc<Control>> {
        let control = self.get(id)?.clone();
        if shares {
            let until = (at + TOMBSTONE_TIME).min(control.until.unwrap_or(Micros::MAX));
            self.set(id.to_owned(), Row::Tombstone(Tombstone { at, until }), true);
        } else {
            self.rows.remove(id);
        }
        Some(control)
    }

    fn set(&mut self, id: String, row: Row, shares: bool) {
        if shares {
            self.unshared.insert(id.clone());
        }
        self.rows.insert(id, row);
    }

    /// Drops what has expired. Returns whether a control was among it.
    pub fn drop_expired(&mut self, now: Micros) -> bool {
        let (before, unshared) = (self.controls().count(), &mut self.unshared);
        self.rows.retain(|id, row| {
            let is_expired = row.is_expired(now);
            if is_expired {
                unshared.remove(id);
            }
            !is_expired
        });
        self.controls().count() < before
    }

    /// Merges all rows of the table. What is newer here, or missing there, is to be shared.
    pub fn merge(&mut self, rows: Vec<(String, String)>, now: Micros) -> Merged {
        let mut merged = Merged::default();
        let mut missing: BTreeSet<&String> = self.rows.keys().collect();
        let mut newer = Vec::new();
        let mut count = self.controls().count();
        self.expired.clear();
        for (id, text) in rows {
            missing.remove(&id);
            let Some(theirs) = Row::read(&id, &text) else {
                merged.unknown += 1;
                continue;
            };
            if theirs.is_expired(now) {
                if theirs.is_expired(now.saturating_sub(EXPIRED_ROW_TIME)) {
                    self.expired.push(RowChange { name: id, at: theirs.at(), text: None });
                }
                continue;
            }
            let mine = self.rows.get(&id);
            match mine.map(Row::at) {
                Some(mine) if mine > theirs.at() => drop(self.unshared.insert(id)),
                Some(mine) if mine == theirs.at() => drop(self.unshared.remove(&id)),
                _ => {
                    let is_new =
                        matches!(theirs, Row::Control(_)) && !matches!(mine, Some(Row::Control(_)));
                    if is_new && count >= MAX_CONTROLS {
                        merged.omitted += 1;
                        continue;
                    }
                    count += usize::from(is_new);
                    newer.push((id, theirs));
                }
            }
        }
        self.unshared.extend(missing.into_iter().cloned());
        for (id, row) in newer {
            merged.changed |= matches!(row, Row::Control(_)) || self.get(&id).is_some();
            self.unshared.remove(&id);
            self.rows.insert(id, row);
        }
        merged
    }

    /// Returns what the table lacks, and what can be removed from it.
    pub fn changes(&mut self) -> Vec<RowChange> {
        let rows = self.unshared.iter().filter_map(|id| {
            let row = self.rows.get(id)?;
            Some(RowChange { name: id.clone(), at: row.at(), text: Some(row.text()) })
        });
        rows.chain(std::mem::take(&mut self.expired)).collect()
    }

    /// Notes that the table has rows, unless they have changed since.
    pub fn shared(&mut self, changes: &[RowChange]) {
        for change in changes {
            if self.rows.get(&change.name).is_none_or(|row| row.at() == change.at) {
                self.unshared.remove(&change.name);
            }
        }
    }

    pub fn is_shared(&self, id: &str) -> bool {
        !self.unshared.contains(id)
    }

    /// The number of rows that the table lacks.
    pub fn unshared(&self) -> usize {
        self.unshared.len()
    }

    /// Returns the rows as text, for a file.
    pub fn texts(&self) -> Vec<(String, String)> {
        self.rows.iter().map(|(id, row)| (id.clone(), row.text())).collect()
    }
}

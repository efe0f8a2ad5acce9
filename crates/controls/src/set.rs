//! Operators' controls (blocks, allows, limits) that this process knows, merged with those of other replicas.
//!
//! A row is a control, or the tombstone of one that was deleted; the newest row of an id wins. A changed row goes three
//! ways: it is activated, written to the file, and put into the table, which replicas share in Redis. The order in
//! which they learn of changes does not matter, and what Redis has lost comes back from any replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::control::{ChangedControls, Control, MAX_COMPARED, MAX_CONTROLS};
use super::time;
use weir_limit::{Micros, SECOND};
use weir_store::{RowChange, TableRow};

/// The most tombstones: as many as there can be controls to delete.
pub(super) const MAX_TOMBSTONES: usize = MAX_CONTROLS;

/// How long a tombstone is kept, whenever the control would have ended: another replica may have an
/// older one of the same id that expires later.
const TOMBSTONE_TIME: Micros = 7 * 86_400 * SECOND;

/// How long an expired row stays in the table: until then every replica has seen it end.
const EXPIRED_ROW_TIME: Micros = 60 * SECOND;

/// All controls, and what the table does not have of them.
#[derive(Debug, Default)]
pub(super) struct ControlSet {
    rows: BTreeMap<String, ControlRecord>,
    /// The times at which rows end next, with their ids.
    ends: BTreeSet<(Micros, String)>,
    /// The times of the tombstones, with their ids.
    tombstones: BTreeSet<(Micros, String)>,
    /// The ids of rows that have changed since they were activated.
    inactive: BTreeSet<String>,
    /// The ids of rows that have changed since they were written to the file.
    unwritten: BTreeSet<String>,
    /// The ids of rows that the table may lack.
    unshared: BTreeSet<String>,
    /// The ids of changes that are being made: they win over later rows of other clocks.
    new: BTreeSet<String>,
    /// The removals of rows that the table does not need: expired ones, and tombstones beyond the most.
    obsolete: Vec<RowChange>,
}

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
        self.rows.values().filter_map(ControlRecord::control)
    }

    /// The number of controls, expired or not, but that of an id.
    pub fn count_but(&self, id: &str) -> usize {
        self.rows.len() - self.tombstones.len() - usize::from(self.get(id).is_some())
    }

    /// Returns what has changed since the last call: ids, and their controls where there still are any.
    pub fn take_inactive(&mut self) -> ChangedControls {
        let ids = std::mem::take(&mut self.inactive).into_iter();
        ids.map(|id| (self.get(&id).cloned(), id)).map(|(control, id)| (id, control)).collect()
    }

    /// Returns what has changed since the last call, for the file: ids, and the texts of their rows.
    pub fn take_unwritten(&mut self) -> Vec<(String, Option<String>)> {
        let ids = std::mem::take(&mut self.unwritten).into_iter();
        let texts = ids.map(|id| (self.rows.get(&id).map(ControlRecord::text), id));
        texts.map(|(text, id)| (id, text)).collect()
    }

    pub fn get(&self, id: &str) -> Option<&Arc<Control>> {
        self.rows.get(id)?.control()
    }

    /// Returns the time for a new row of this id: now, and after the row that is there.
    pub fn time_of(&self, id: &str, now: Micros) -> Micros {
        self.rows.get(id).map_or(now, |row| now.max(row.at() + 1))
    }

    pub fn put(&mut self, control: Arc<Control>, shares: bool) {
        let until = control.until.unwrap_or(Micros::MAX);
        let replaced = self.rows.get(&control.id).filter(|_| shares).map(ControlRecord::expires_at);
        let tombstone_until = replaced.map(|replaced| replaced.min(control.at + TOMBSTONE_TIME));
        let tombstone_until = tombstone_until.filter(|tombstone_until| *tombstone_until > until);
        self.set(control.id.clone(), ControlRecord::Control { control, tombstone_until }, shares);
    }

    /// Deletes a control at `at`. The tombstone stays only where others might have the control.
    pub fn delete(&mut self, id: &str, at: Micros, shares: bool) -> Option<Arc<Control>> {
        let control = self.get(id)?.clone();
        if shares {
            let until = at + TOMBSTONE_TIME;
            self.set(id.to_owned(), ControlRecord::Tombstone { at, until }, true);
            self.drop_oldest_tombstones();
        } else {
            self.take(id);
        }
        Some(control)
    }

    fn set(&mut self, id: String, row: ControlRecord, shares: bool) {
        if shares {
            self.unshared.insert(id.clone());
        }
        self.insert(id, row);
    }

    /// Inserts or replaces a row. Nothing else adds to `rows`.
    fn insert(&mut self, id: String, row: ControlRecord) {
        self.take(&id);
        if let Some(end) = row.next_end() {
            self.ends.insert((end, id.clone()));
        }
        if let ControlRecord::Tombstone { at, .. } = row {
            self.tombstones.insert((at, id.clone()));
        }
        self.inactive.insert(id.clone());
        self.unwritten.insert(id.clone());
        self.rows.insert(id, row);
    }

    /// Removes a row. Nothing else removes from `rows`.
    fn take(&mut self, id: &str) -> Option<ControlRecord> {
        let (id, row) = self.rows.remove_entry(id)?;
        let place = |time| (time, id.clone());
        if let Some(end) = row.next_end() {
            self.ends.remove(&place(end));
        }
        if let ControlRecord::Tombstone { at, .. } = row {
            self.tombstones.remove(&place(at));
        }
        self.inactive.insert(id.clone());
        self.unwritten.insert(id);
        Some(row)
    }

    /// Drops what has expired. Returns whether a control was among it.
    pub fn drop_expired(&mut self, now: Micros) -> bool {
        let mut ended = false;
        while let Some((end, id)) = self.ends.first().cloned()
            && end <= now
            && let Some(mut row) = self.take(&id)
        {
            ended |= row.control().is_some();
            row.end(now);
            match row.is_expired(now) {
                true => drop(self.unshared.remove(&id)),
                false => self.insert(id, row),
            }
        }
        ended
    }

    /// Merges all rows of the table. What is newer here, or missing there, is to be shared.
    pub fn merge(&mut self, rows: Vec<TableRow>, now: Micros) -> Merged {
        let mut merged = Merged::default();
        let mut missing: BTreeSet<String> = self.rows.keys().cloned().collect();
        self.obsolete.clear();
        for TableRow { name: id, at, text } in rows {
            missing.remove(&id);
            let Some(mut theirs) = ControlRecord::read(&id, at, &text) else {
                merged.unknown += 1;
                continue;
            };
            theirs.end(now);
            let mine = self.rows.get(&id);
            if mine.is_some_and(|mine| mine.at() > theirs.at() || self.new.contains(&id)) {
                self.unshared.insert(id);
                continue;
            }
            self.unshared.remove(&id);
            // Of two rows of the same time, all replicas take the one that the table got first.
            if mine == Some(&theirs) {
                continue;
            }
            merged.changed |= mine.is_some_and(|mine| mine.control().is_some());
            if !theirs.is_expired(now) {
                merged.changed |= theirs.control().is_some();
                self.insert(id, theirs);
                continue;
            }
            self.take(&id);
            if theirs.is_expired(now.saturating_sub(EXPIRED_ROW_TIME)) {
                self.obsolete.push(removal(id, theirs.at()));
            }
        }
        self.unshared.extend(missing);
        // Replicas without a connection may together have put more than there may be. All drop the same ones.
        let is_compared =
            |control: &Control| control.entries.iter().all(|entry| entry.value.contains('*'));
        merged.omitted =
            self.drop_newest(MAX_COMPARED, is_compared) + self.drop_newest(MAX_CONTROLS, |_| true);
        self.drop_oldest_tombstones();
        merged
    }

    /// Drops the newest beyond `max` of some controls. Returns how many they are.
    fn drop_newest(&mut self, max: usize, is_one: impl Fn(&Control) -> bool) -> usize {
        let those = || self.controls().filter(|control| is_one(control));
        let excess = those().count().saturating_sub(max);
        if excess > 0 {
            let mut ids: Vec<(Micros, String)> =
                those().map(|control| (control.at, control.id.clone())).collect();
            ids.sort_unstable_by(|a, b| b.cmp(a));
            for (_, id) in ids.into_iter().take(excess) {
                self.remove(&id);
            }
        }
        excess
    }

    /// Drops the oldest tombstones beyond the most that there may be, from the table too.
    fn drop_oldest_tombstones(&mut self) {
        while self.tombstones.len() > MAX_TOMBSTONES
            && let Some((at, id)) = self.tombstones.first().cloned()
        {
            self.remove(&id);
            self.obsolete.push(removal(id, at));
        }
    }

    fn remove(&mut self, id: &str) {
        self.take(id);
        self.unshared.remove(id);
    }

    /// Returns what the table lacks, and what can be removed from it.
    pub fn changes(&mut self) -> Vec<RowChange> {
        let rows = self.unshared.iter().filter_map(|id| {
            let row = self.rows.get(id)?;
            let (name, is_new) = (id.clone(), self.new.remove(id));
            Some(RowChange { name, at: row.at(), is_new, text: Some(row.text()) })
        });
        rows.chain(std::mem::take(&mut self.obsolete)).collect()
    }

    /// Notes that the table has rows, unless they have changed since.
    pub fn shared(&mut self, changes: &[RowChange]) {
        for change in changes {
            if self.rows.get(&change.name).is_none_or(|row| row.at() == change.at) {
                self.unshared.remove(&change.name);
            }
        }
    }

    /// Returns whether the table has the row of this id.
    pub fn is_shared(&self, id: &str) -> bool {
        !self.unshared.contains(id) && self.rows.contains_key(id)
    }

    /// Notes that a change of this id is being made: it wins over a later row of the table.
    pub fn begin_change(&mut self, id: &str) {
        self.new.insert(id.to_owned());
    }

    /// Notes that the change was made: from now on its time decides.
    pub fn end_change(&mut self, id: &str) {
        self.new.remove(id);
    }

    /// Sets rows back that were written after `time`, by a clock of this process that was ahead.
    pub fn set_back(&mut self, time: Micros) {
        let ahead = self.rows.iter().filter(|(_, row)| row.at() > time);
        for id in ahead.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            if let Some(mut row) = self.take(&id) {
                row.set_at(time);
                self.insert(id, row);
            }
        }
    }

    pub fn unshared(&self) -> usize {
        self.unshared.len()
    }

    pub fn forget_unwritten(&mut self) {
        self.unwritten.clear();
    }
}

fn removal(name: String, at: Micros) -> RowChange {
    RowChange { name, at, is_new: false, text: None }
}

/// A control, or what is left of one; as text the JSON of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ControlRecord {
    /// A control that was deleted, or has ended before the one that it had replaced.
    Tombstone {
        #[serde(rename = "deleted_at", with = "time")]
        at: Micros,
        #[serde(with = "time")]
        until: Micros,
    },
    Control {
        #[serde(flatten)]
        control: Arc<Control>,
        /// Until when a tombstone follows its end: it has replaced one that expires later.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "time")]
        tombstone_until: Option<Micros>,
    },
}

impl ControlRecord {
    pub fn at(&self) -> Micros {
        match self {
            ControlRecord::Control { control, .. } => control.at,
            ControlRecord::Tombstone { at, .. } => *at,
        }
    }

    fn set_at(&mut self, time: Micros) {
        match self {
            ControlRecord::Control { control, .. } => Arc::make_mut(control).at = time,
            ControlRecord::Tombstone { at, .. } => *at = time,
        }
    }

    pub fn control(&self) -> Option<&Arc<Control>> {
        match self {
            ControlRecord::Control { control, .. } => Some(control),
            ControlRecord::Tombstone { .. } => None,
        }
    }

    /// Returns when the row expires: with its control, or with the tombstone after that.
    pub fn expires_at(&self) -> Micros {
        match self {
            ControlRecord::Control { control, tombstone_until } => {
                let until = control.until.unwrap_or(Micros::MAX);
                tombstone_until.map_or(until, |tombstone_until| until.max(tombstone_until))
            }
            ControlRecord::Tombstone { until, .. } => *until,
        }
    }

    /// Returns when the row changes by itself: when its control or its tombstone expires.
    pub fn next_end(&self) -> Option<Micros> {
        match self {
            ControlRecord::Control { control, .. } => control.until,
            ControlRecord::Tombstone { until, .. } => Some(*until),
        }
    }

    pub(crate) fn is_expired(&self, now: Micros) -> bool {
        self.expires_at() <= now
    }

    /// Turns a row whose control has expired into a tombstone, if one is to remain.
    pub fn end(&mut self, now: Micros) {
        if let ControlRecord::Control { control, tombstone_until: Some(until) } = self
            && control.is_expired(now)
        {
            *self = ControlRecord::Tombstone { at: control.at, until: *until };
        }
    }

    pub fn text(&self) -> String {
        // It has only texts and numbers, which are always valid.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a row that was written at `at` or later; none if it is not one, as of a newer version.
    pub fn read(name: &str, at: Micros, text: &str) -> Option<ControlRecord> {
        let mut row: ControlRecord = serde_json::from_str(text).ok()?;
        row.set_at(row.at().max(at));
        row.control().is_none_or(|control| control.id == name).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ControlSet {
        /// The rows as the table has them.
        pub fn texts(&self) -> Vec<TableRow> {
            let rows = self.rows.iter();
            rows.map(|(id, row)| TableRow { name: id.clone(), at: row.at(), text: row.text() })
                .collect()
        }
    }
}

//! The controls that change limits, compiled for one set of rules. A change compiles only the control and
//! those that match the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Control;
use super::changes::{age, changes_of, match_of};
use super::error::PlanError;
use super::index::{Index, Row, exact_entries};
use super::plans::{Plans, RulesByKey};
use weir_common::entry::OwnedEntry;

/// The domain, whether exactly, and the entries.
type OwnedMatch = (String, bool, Vec<OwnedEntry>);

/// All controls that change limits.
#[derive(Debug, Default)]
pub(super) struct LimitControls {
    by_id: BTreeMap<String, Arc<Control>>,
    /// The rows of the controls that match the same.
    groups: HashMap<OwnedMatch, Vec<Arc<Row>>>,
    /// The ids of controls by each exact entry that they have.
    by_entry: HashMap<OwnedEntry, BTreeSet<String>>,
    index: Index,
    plans: Plans,
}

impl LimitControls {
    /// Puts a control, or removes that of an id. Returns why a rule keeps its limits, if one does.
    pub fn change(
        &mut self,
        id: &str,
        control: Option<Arc<Control>>,
        rules: &RulesByKey,
        max_log_bytes: u64,
    ) -> Option<PlanError> {
        if let Some(old) = self.by_id.remove(id) {
            for (_, entry) in exact_entries(&old) {
                let entry = OwnedEntry::from(entry);
                if let Some(ids) = self.by_entry.get_mut(&entry) {
                    ids.remove(id);
                    if ids.is_empty() {
                        self.by_entry.remove(&entry);
                    }
                }
            }
            let mut others = self.take_group(&old);
            others.retain(|other| other.id != old.id);
            self.put_group(others, rules, max_log_bytes);
        }
        control.and_then(|control| {
            self.by_id.insert(id.to_owned(), control.clone());
            for (_, entry) in exact_entries(&control) {
                self.by_entry.entry(OwnedEntry::from(entry)).or_default().insert(id.to_owned());
            }
            let mut group = self.take_group(&control);
            group.push(control);
            self.put_group(group, rules, max_log_bytes)
        })
    }

    /// Ends a batch of changes. Where there was no room for some plan, compiles all: the same controls have
    /// plans then, whichever was put first.
    pub fn settle(&mut self, rules: &RulesByKey, max_log_bytes: u64) -> Option<PlanError> {
        if self.plans.is_full() { self.compile(rules, max_log_bytes) } else { None }
    }

    /// Compiles all for a set of rules. Returns why a rule keeps its limits, if one does.
    pub fn compile(&mut self, rules: &RulesByKey, max_log_bytes: u64) -> Option<PlanError> {
        let mut groups: BTreeMap<OwnedMatch, Vec<Arc<Control>>> = BTreeMap::new();
        for control in self.by_id.values() {
            groups.entry(owned_match(control)).or_default().push(control.clone());
        }
        (self.groups, self.index, self.plans) = Default::default();
        let mut error = None;
        for controls in groups.into_values() {
            error = error.or(self.put_group(controls, rules, max_log_bytes));
        }
        error
    }

    /// Removes the rows of the controls that match the same as one, and returns these.
    fn take_group(&mut self, control: &Control) -> Vec<Arc<Control>> {
        let rows = self.groups.remove(&owned_match(control)).unwrap_or_default();
        for row in &rows {
            self.index.remove(row);
            self.plans.remove(&row.plans);
        }
        rows.iter().map(|row| row.control.clone()).collect()
    }

    /// Adds all controls that match the same.
    fn put_group(
        &mut self,
        controls: Vec<Arc<Control>>,
        rules: &RulesByKey,
        max_log_bytes: u64,
    ) -> Option<PlanError> {
        let newest = controls.iter().min_by_key(|control| age(control))?.clone();
        let (mut rows, mut error) = (Vec::new(), None);
        for (control, changes) in changes_of(controls) {
            let (plans, why) = self.plans.add(&control, changes, rules, max_log_bytes);
            rows.push(self.index.insert(Row::new(control, newest.clone(), plans)));
            error = error.or(why);
        }
        self.groups.insert(owned_match(&newest), rows);
        error
    }

    pub fn get(&self, id: &str) -> Option<&Arc<Control>> {
        self.by_id.get(id)
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The number of controls.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the controls that may match all descriptors that another one matches, or only such, and
    /// some more.
    pub fn around_or_within(&self, control: &Control) -> Vec<&Arc<Control>> {
        if !control.has_exact_value() {
            return self.by_id.values().collect();
        }
        // One around it is found by one of its exact entries, or by none; one within it has all of them.
        let around = exact_entries(control).map(|(_, entry)| Some(entry)).chain([None]);
        let around = around.flat_map(|entry| self.index.bucket(entry)).map(|row| &*row.control.id);
        let within =
            exact_entries(control).map(|(_, entry)| self.by_entry.get(&OwnedEntry::from(entry)));
        let fewest = within.min_by_key(|ids| ids.map_or(0, BTreeSet::len)).flatten();
        let within = fewest.into_iter().flatten().map(String::as_str);
        let ids: BTreeSet<&str> = around.chain(within).collect();
        ids.into_iter().filter_map(|id| self.by_id.get(id)).collect()
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    pub fn plans(&self) -> &Plans {
        &self.plans
    }
}

fn owned_match(control: &Control) -> OwnedMatch {
    let (domain, exact, entries) = match_of(control);
    (domain.to_owned(), exact, OwnedEntry::copied(entries))
}

//! The controls by which operators change limits of rules at run time, compiled for one set of rules. A new or removed
//! one compiles only those that match the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::changes::{Match, age, changes_of, match_of};
use super::control::Control;
use super::error::PlanError;
use super::index::{Index, Place, Row};
use super::plans::{Plans, RulesByKey};
use weir_common::entry::OwnedEntry;

#[derive(Debug, Default)]
pub(super) struct LimitControls {
    pub by_id: BTreeMap<String, Arc<Control>>,
    /// The rows of the controls that match the same.
    groups: HashMap<Match, Vec<Arc<Row>>>,
    /// The ids of controls by each entry that they have with one text.
    by_entry: HashMap<OwnedEntry, BTreeSet<String>>,
    pub index: Index,
    pub plans: Plans,
}

impl LimitControls {
    /// Puts a control, or removes that of an id. Returns why a rule keeps its limits, if one does.
    pub fn change(
        &mut self,
        id: &str,
        control: Option<Arc<Control>>,
        rules: &RulesByKey,
    ) -> Option<PlanError> {
        if let Some(old) = self.by_id.remove(id) {
            for entry in old.text_entries() {
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
            self.put_group(others, rules);
        }
        control.and_then(|control| {
            self.by_id.insert(id.to_owned(), control.clone());
            for entry in control.text_entries() {
                self.by_entry.entry(OwnedEntry::from(entry)).or_default().insert(id.to_owned());
            }
            let mut group = self.take_group(&control);
            group.push(control);
            self.put_group(group, rules)
        })
    }

    /// Ends a batch of changes. Where there was no room for some plan, compiles all: the same controls have
    /// plans then, whichever was put first.
    pub fn settle(&mut self, rules: &RulesByKey) -> Option<PlanError> {
        if self.plans.is_full { self.compile(rules) } else { None }
    }

    /// Compiles all for a set of rules. Returns why a rule keeps its limits, if one does.
    pub fn compile(&mut self, rules: &RulesByKey) -> Option<PlanError> {
        let mut groups: BTreeMap<Match, Vec<Arc<Control>>> = BTreeMap::new();
        for control in self.by_id.values() {
            groups.entry(match_of(control)).or_default().push(control.clone());
        }
        (self.groups, self.index, self.plans) = Default::default();
        let mut error = None;
        for controls in groups.into_values() {
            error = error.or(self.put_group(controls, rules));
        }
        error
    }

    /// Removes the rows of the controls that match the same as one, and returns these.
    fn take_group(&mut self, control: &Control) -> Vec<Arc<Control>> {
        let rows = self.groups.remove(&match_of(control)).unwrap_or_default();
        for row in &rows {
            self.index.remove(row);
            self.plans.remove(&row.plans);
        }
        rows.iter().map(|row| row.control.clone()).collect()
    }

    /// Adds all controls that match the same.
    fn put_group(&mut self, controls: Vec<Arc<Control>>, rules: &RulesByKey) -> Option<PlanError> {
        let newest = controls.iter().min_by_key(|control| age(control))?.clone();
        let (mut rows, mut error) = (Vec::new(), None);
        for (control, changes) in changes_of(controls) {
            let (plans, why) = self.plans.add(&control, changes, rules);
            rows.push(self.index.insert(Row::new(control, newest.clone(), plans)));
            error = error.or(why);
        }
        self.groups.insert(match_of(&newest), rows);
        error
    }

    /// Returns the controls that may match all descriptors that another one matches, or only such, and some more.
    pub fn around_or_within(&self, control: &Control) -> Vec<&Arc<Control>> {
        // One within it has all of its texts.
        let within =
            control.text_entries().map(|entry| self.by_entry.get(&OwnedEntry::from(entry)));
        let Some(fewest) = within.min_by_key(|ids| ids.map_or(0, BTreeSet::len)) else {
            return self.by_id.values().collect();
        };
        let within = fewest.into_iter().flatten().map(String::as_str);
        // One around it is found by one of its values, or by none.
        let networks = &self.index.networks;
        let entries = control.entries.iter();
        let by_network = entries.flat_map(|entry| networks.around(&entry.key, &entry.value));
        let texts = control.text_entries().map(Place::Text).chain([Place::Compared]);
        let around = texts.map(|place| self.index.bucket(place)).chain(by_network);
        let around = around.flatten().map(|row| &*row.control.id);
        let ids: BTreeSet<&str> = around.chain(within).collect();
        ids.into_iter().filter_map(|id| self.by_id.get(id)).collect()
    }
}

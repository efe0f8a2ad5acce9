//! Finds the controls of a descriptor.
//!
//! Each control is found by one of its exact entries, the rarest, in a hash table; a control without
//! one is compared with every descriptor. So the cost of a look-up does not grow with the number of
//! controls: for each entry, a hash of its key, and of its value only if a control has that key.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashSet, HashTable};

use super::changes::{Changes, Groups, age, end};
use super::pattern::ValuePattern;
use super::{Action, Control};
use crate::entry::Entry;
use crate::limit::Micros;

/// The controls in the order in which they apply: the first one that matches decides.
#[derive(Debug)]
pub(super) struct Index {
    rows: Box<[Row]>,
    /// The keys of the entries in `buckets`: most descriptors have none of them.
    keys: HashSet<Box<str>>,
    buckets: HashTable<Bucket>,
    /// Has a secret of its own.
    hasher: DefaultHashBuilder,
    /// The positions of the rows without an exact value.
    compared: Vec<u32>,
    /// What rows change of limits, by number.
    changes: Vec<Changes>,
}

/// A control, ready to be compared.
#[derive(Debug)]
pub(super) struct Row {
    pub control: Arc<Control>,
    /// The number of its changes of limits; equal ones have the same.
    pub changes: u32,
    entries: Box<[ValuePattern]>,
}

/// The positions of the rows that are found by one entry.
#[derive(Debug)]
struct Bucket {
    key: Box<str>,
    value: Box<str>,
    rows: Vec<u32>,
}

impl Row {
    fn new(control: Arc<Control>, changes: u32) -> Row {
        let entries = control.entries.iter().map(|entry| ValuePattern::new(&entry.value)).collect();
        Row { control, changes, entries }
    }

    /// Returns whether it matches a descriptor.
    fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        let control = &*self.control;
        if control.domain != "*" && control.domain != domain {
            return false;
        }
        let mut mine = control.entries.iter().zip(&self.entries);
        let is = |(key, value): &Entry<'_>,
                  (entry, pattern): (&super::ControlEntry, &ValuePattern)| {
            entry.key == *key && pattern.matches(value)
        };
        match control.exact {
            true => {
                self.entries.len() == entries.len()
                    && mine.zip(entries).all(|(mine, theirs)| is(theirs, mine))
            }
            false => mine.all(|mine| entries.iter().any(|theirs| is(theirs, mine))),
        }
    }
}

impl Index {
    pub fn new(controls: impl IntoIterator<Item = Arc<Control>>) -> Index {
        let controls: Vec<Arc<Control>> = controls.into_iter().collect();
        let groups = Groups::new(&controls);
        let mut positions: Vec<usize> = (0..controls.len()).collect();
        positions.sort_unstable_by_key(|&at| order(&controls[at], &controls[groups.newest[at]]));
        let row = |at: usize| Row::new(controls[at].clone(), groups.changes[at]);
        let rows: Vec<Row> = positions.into_iter().map(row).collect();
        let mut frequency: HashMap<Entry<'_>, usize> = HashMap::new();
        for entry in rows.iter().flat_map(exact_entries) {
            *frequency.entry(entry).or_default() += 1;
        }
        let (mut buckets, hasher) = (HashTable::<Bucket>::new(), DefaultHashBuilder::default());
        let (mut keys, mut compared) = (HashSet::new(), Vec::new());
        for (position, row) in (0..).zip(&rows) {
            let rarest = exact_entries(row).min_by_key(|entry| frequency.get(entry).copied());
            let Some((key, value)) = rarest else {
                compared.push(position);
                continue;
            };
            let is = |bucket: &Bucket| (&*bucket.key, &*bucket.value) == (key, value);
            let rehash = |bucket: &Bucket| hasher.hash_one((&*bucket.key, &*bucket.value));
            let bucket = buckets.entry(hasher.hash_one((key, value)), is, rehash);
            let new = || Bucket { key: key.into(), value: value.into(), rows: Vec::new() };
            bucket.or_insert_with(new).into_mut().rows.push(position);
            keys.insert(key.into());
        }
        drop(frequency);
        Index { rows: rows.into(), keys, buckets, hasher, compared, changes: groups.distinct }
    }

    /// Returns the first control that matches a descriptor, has not expired, and is accepted. `now`
    /// is called only for controls that end.
    pub fn find(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        mut now: impl FnMut() -> Micros,
        accepts: impl Fn(&Row) -> bool,
    ) -> Option<&Row> {
        let mut best: Option<u32> = None;
        let mut consider = |positions: &[u32]| {
            // In ascending order: later ones cannot be better than the first that matches.
            for &position in positions {
                if best.is_some_and(|best| best <= position) {
                    return;
                }
                let Some(row) = self.rows.get(position as usize) else { return };
                if row.matches(domain, entries)
                    && row.control.until.is_none_or(|until| now() < until)
                    && accepts(row)
                {
                    best = Some(position);
                    return;
                }
            }
        };
        for &(key, value) in entries {
            if !self.keys.contains(key) {
                continue;
            }
            let is = |bucket: &Bucket| *bucket.value == *value && *bucket.key == *key;
            if let Some(bucket) = self.buckets.find(self.hasher.hash_one((key, value)), is) {
                consider(&bucket.rows);
            }
        }
        consider(&self.compared);
        best.and_then(|best| self.rows.get(best as usize))
    }

    /// Returns the controls that change limits, each with its changes.
    pub fn limits(&self) -> impl Iterator<Item = (&Row, &Changes)> {
        let limits = self.rows.iter().filter(|row| matches!(row.control.action, Action::Limit(_)));
        limits.filter_map(|row| Some((row, self.changes.get(row.changes as usize)?)))
    }

    /// Returns what the controls change of limits, by number.
    pub fn changes(&self) -> &[Changes] {
        &self.changes
    }

    /// Returns the most controls that one descriptor entry is compared with.
    pub fn most_compared(&self) -> usize {
        let buckets = self.buckets.iter().map(|bucket| bucket.rows.len());
        buckets.chain([self.compared.len()]).max().unwrap_or(0)
    }
}

/// Returns the entries of a control whose values have no star.
fn exact_entries(row: &Row) -> impl Iterator<Item = Entry<'_>> {
    let entries = row.control.entries.iter().zip(&row.entries);
    entries.filter_map(|(entry, pattern)| match pattern {
        ValuePattern::Exact(value) => Some((&*entry.key, &**value)),
        ValuePattern::Wildcard(_) => None,
    })
}

/// The order in which controls apply: block, allow, limit. Of blocks the one that lasts longest; of
/// others the one that says most about a descriptor, then the newest. Those that change limits and
/// match the same stay together, in the order of their ends.
type Order<'c> = (u8, Reverse<Micros>, Says, (Reverse<Micros>, &'c str), (Micros, &'c str));

/// How much a control says about a descriptor: exact before others, then more entries, then a named
/// domain. The least says most.
pub(super) type Says = (Reverse<bool>, Reverse<usize>, bool);

/// Returns how much a control says about a descriptor.
pub(super) fn says(control: &Control) -> Says {
    (Reverse(control.exact), Reverse(control.entries.len()), control.domain == "*")
}

/// Returns the place of a control. `newest` is the newest of those that match the same, if it changes
/// limits.
fn order<'c>(control: &'c Control, newest: &'c Control) -> Order<'c> {
    let (action, until) = match control.action {
        Action::Block => (0, control.until.unwrap_or(Micros::MAX)),
        Action::Allow { .. } => (1, 0),
        Action::Limit(_) => (2, 0),
    };
    (action, Reverse(until), says(control), age(newest), end(control))
}

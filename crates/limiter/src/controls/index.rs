//! Finds the controls of a descriptor.
//!
//! Each control is found by one of its exact entries, the one that finds the fewest others, in persistent
//! hash tables; a control without one is compared with every descriptor. So the cost of a look-up does not
//! grow with the number of controls: for each entry, a hash of its key, and of its value only if a control
//! has that key. A clone shares everything with the original, and changing one control copies the
//! path to its bucket: that costs the logarithm of the number of controls.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use rpds::HashTrieMapSync;

use super::changes::{age, end};
use super::plans::ChangedPlans;
use super::{Action, Control};
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::glob::Glob;
use weir_limit::Micros;

type Map<V> = HashTrieMapSync<Box<str>, V, DefaultHashBuilder>;

/// Rows in the order in which they apply: the first one that matches decides.
type Bucket = Arc<[Arc<Row>]>;

/// Controls by what they match.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The keys of `buckets`, and some that were: most descriptors have none of them.
    keys: KeyFilter,
    /// By the key and the value of an entry.
    buckets: Map<Map<Bucket>>,
    /// The rows without an exact value.
    compared: Bucket,
}

/// Words of a [`KeyFilter`].
const FILTER_WORDS: usize = 4;

/// A set of keys that may also seem to have others: one bit for each hash. It is asked before the tables,
/// which take several times as long.
#[derive(Clone, Debug, Default)]
struct KeyFilter {
    words: [u64; FILTER_WORDS],
    /// Has a secret of its own.
    hasher: DefaultHashBuilder,
}

impl KeyFilter {
    /// Returns the word and the bit of a key.
    #[inline]
    fn place(&self, key: &str) -> (usize, u64) {
        let hash = self.hasher.hash_one(key);
        ((hash >> 6) as usize % FILTER_WORDS, 1 << (hash % 64))
    }

    fn insert(&mut self, key: &str) {
        let (word, bit) = self.place(key);
        self.words[word] |= bit;
    }

    #[inline]
    fn may_have(&self, key: &str) -> bool {
        let (word, bit) = self.place(key);
        self.words[word] & bit > 0
    }
}

/// A control, ready to be compared.
#[derive(Debug)]
pub(super) struct Row {
    pub control: Arc<Control>,
    /// The newest control that matches the same, if this one changes limits.
    newest: Arc<Control>,
    /// The plans of rules with its changes of limits, if it changes any.
    pub plans: ChangedPlans,
    entries: Box<[Glob]>,
    /// The position of the entry by which it is found; none if it has no exact value.
    found_by: Option<usize>,
}

impl Row {
    /// Makes the row of a control. `newest` is the newest of those that match the same, if it changes limits.
    pub fn new(control: Arc<Control>, newest: Arc<Control>, plans: ChangedPlans) -> Row {
        let entries = control.entries.iter().map(|entry| Glob::new(&entry.value)).collect();
        Row { control, newest, plans, entries, found_by: None }
    }

    fn order(&self) -> Order<'_> {
        order(&self.control, &self.newest)
    }

    /// Returns the entry by which it is found.
    fn found_by(&self) -> Option<Entry<'_>> {
        let entry = self.control.entries.get(self.found_by?)?;
        Some((&entry.key, &entry.value))
    }

    /// Returns whether it matches a descriptor.
    fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        let control = &*self.control;
        if control.domain != "*" && control.domain != domain {
            return false;
        }
        let mut mine = control.entries.iter().zip(&self.entries);
        let is = |(key, value): &Entry<'_>, (entry, pattern): (&OwnedEntry, &Glob)| {
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
    /// Inserts a row. Returns it as it is found.
    pub fn insert(&mut self, mut row: Row) -> Arc<Row> {
        let exact = exact_entries(&row.control);
        let fewest = exact.min_by_key(|&(_, entry)| self.bucket(Some(entry)).len());
        row.found_by = fewest.map(|(position, _)| position);
        let row = Arc::new(row);
        let old = self.bucket(row.found_by());
        let (before, after) = old.split_at(old.partition_point(|it| it.order() < row.order()));
        let bucket = before.iter().chain([&row]).chain(after).cloned().collect();
        self.set_bucket(&row, bucket);
        row
    }

    /// Removes the row of a control.
    pub fn remove(&mut self, row: &Row) {
        let others = self.bucket(row.found_by()).iter();
        let others = others.filter(|other| other.control.id != row.control.id).cloned().collect();
        self.set_bucket(row, others);
    }

    /// Returns the rows that are found by an entry, or by none.
    pub fn bucket(&self, found_by: Option<Entry<'_>>) -> &[Arc<Row>] {
        match found_by {
            Some((key, _)) if !self.keys.may_have(key) => &[],
            Some((key, value)) => {
                self.buckets.get(key).and_then(|values| values.get(value)).map_or(&[], |it| &**it)
            }
            None => &self.compared,
        }
    }

    fn set_bucket(&mut self, row: &Row, bucket: Bucket) {
        let Some((key, value)) = row.found_by() else {
            self.compared = bucket;
            return;
        };
        self.keys.insert(key);
        let mut values = self.buckets.get(key).cloned().unwrap_or_default();
        match bucket.is_empty() {
            true => drop(values.remove_mut(value)),
            false => values.insert_mut(value.into(), bucket),
        }
        match values.is_empty() {
            true => drop(self.buckets.remove_mut(key)),
            false => self.buckets.insert_mut(key.into(), values),
        }
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
        let mut best: Option<&Row> = None;
        for found_by in entries.iter().copied().map(Some).chain([None]) {
            // In their order: later ones cannot be better than the first that matches.
            for row in self.bucket(found_by) {
                if best.is_some_and(|best| best.order() <= row.order()) {
                    break;
                }
                if row.matches(domain, entries)
                    && row.control.until.is_none_or(|until| now() < until)
                    && accepts(row)
                {
                    best = Some(row);
                    break;
                }
            }
        }
        best
    }

    /// Returns how many other controls a control would at least be compared with.
    pub fn compared_with(&self, control: &Control) -> usize {
        let others = |found_by| {
            let rows = self.bucket(found_by).iter();
            rows.filter(|row| row.control.id != control.id).count()
        };
        let exact = exact_entries(control).map(|(_, entry)| others(Some(entry)));
        exact.min().unwrap_or_else(|| others(None))
    }

    /// Returns the most controls that one descriptor entry is compared with.
    #[cfg(test)]
    pub fn most_compared(&self) -> usize {
        let buckets = self.buckets.values().flat_map(Map::values).map(|bucket| bucket.len());
        buckets.chain([self.compared.len()]).max().unwrap_or(0)
    }
}

/// Returns the entries of a control whose values have no star, each with its position.
pub(super) fn exact_entries(control: &Control) -> impl Iterator<Item = (usize, Entry<'_>)> {
    let entries = control.entries.iter().enumerate();
    entries
        .filter(|(_, entry)| !entry.value.contains('*'))
        .map(|(position, entry)| (position, (&*entry.key, &*entry.value)))
}

/// The order in which controls apply: block, allow, limit. Of blocks the one that expires last; of
/// others the most specific one, then the newest. Those that change limits and
/// match the same stay together, in the order of their ends.
type Order<'c> = (u8, Reverse<Micros>, Specificity, (Reverse<Micros>, &'c str), (Micros, &'c str));

/// How specific a control is: exact before others, then more entries, then a named domain. The least is
/// the most specific.
pub(super) type Specificity = (Reverse<bool>, Reverse<usize>, bool);

/// Returns how specific a control is.
pub(super) fn specificity(control: &Control) -> Specificity {
    (Reverse(control.exact), Reverse(control.entries.len()), control.domain == "*")
}

/// Returns the place of a control. `newest` is the newest of those that match the same, if it changes
/// limits.
fn order<'c>(control: &'c Control, newest: &'c Control) -> Order<'c> {
    let (action, until) = match control.action {
        Action::Block => (0, control.until.unwrap_or(Micros::MAX)),
        Action::Allow { .. } => (1, 0),
        Action::Limit { .. } => (2, 0),
    };
    (action, Reverse(until), specificity(control), age(newest), end(control))
}

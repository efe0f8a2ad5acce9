//! Rows of the index: operators' controls, ready to be compared with descriptors, and the order in which they apply.

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use rpds::HashTrieMapSync;

use crate::changes::{age, end};
use crate::control::{Action, Control};
use crate::pattern::{Pattern, Vagueness};
use crate::plans::ChangedPlans;
use weir_common::entry::{Entry, OwnedEntry};
use weir_common::glob::Glob;
use weir_common::network::Network;
use weir_limit::Micros;

pub(crate) type Map<V> = HashTrieMapSync<Box<str>, V, DefaultHashBuilder>;

/// Rows in the order in which they apply: the first one that matches decides.
pub(crate) type Bucket = Arc<[Arc<Row>]>;

/// Where the index has a row: under a text, under a network, or among those that are compared one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    Text(Entry<'p>),
    Network(&'p str, Network),
    Compared,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub control: Arc<Control>,
    /// The newest control that matches the same, if this one changes limits.
    newest: Arc<Control>,
    /// The plans of rules with its changes of limits, if it changes any.
    pub plans: ChangedPlans,
    pub patterns: Box<[Pattern]>,
    excepted: Box<[Pattern]>,
    specificity: Specificity,
    /// The position of the entry by which it is found; none if all values have a `*`.
    pub found_by: Option<usize>,
}

impl Row {
    /// Makes the row of a control. `newest` is the newest of those that match the same, if it changes limits.
    pub fn new(control: Arc<Control>, newest: Arc<Control>, plans: ChangedPlans) -> Row {
        let (patterns, excepted) = (control.patterns().collect(), control.excepted().collect());
        let specificity = specificity(&control);
        Row { control, newest, plans, patterns, excepted, specificity, found_by: None }
    }

    /// Returns the place of the row's control among controls that match the same descriptor.
    pub fn order(&self) -> Order<'_> {
        let (control, newest) = (&*self.control, &*self.newest);
        let (action, until) = match control.action {
            Action::Block => (0, control.until.unwrap_or(Micros::MAX)),
            Action::Allow { .. } => (1, 0),
            Action::Limit { .. } => (2, 0),
        };
        (action, Reverse(until), self.specificity, age(newest), end(control))
    }

    pub fn place(&self) -> Place<'_> {
        let place = self.found_by.and_then(|position| {
            let entry = self.control.entries.get(position)?;
            place(entry, self.patterns.get(position)?)
        });
        place.unwrap_or(Place::Compared)
    }

    pub fn matches(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        self.control.matches_by(&self.patterns, domain, entries)
    }

    /// Returns whether the control spares a request of these descriptors.
    pub fn spares<'r>(&self, mut descriptors: impl Iterator<Item = &'r [Entry<'r>]>) -> bool {
        !self.excepted.is_empty()
            && descriptors.any(|entries| self.control.spares(&self.excepted, entries))
    }
}

/// Returns the place by which an entry finds rows; none if its value has a `*`.
fn place<'p>(entry: &'p OwnedEntry, pattern: &Pattern) -> Option<Place<'p>> {
    match pattern {
        Pattern::Glob(Glob::Text(_)) => Some(Place::Text((&entry.key, &entry.value))),
        Pattern::Glob(Glob::Parts(_)) => None,
        Pattern::Network(network) => Some(Place::Network(&entry.key, *network)),
    }
}

/// Returns the places where a control can be found, each with the position of the entry.
pub(super) fn places<'p>(
    control: &'p Control,
    patterns: &'p [Pattern],
) -> impl Iterator<Item = (usize, Place<'p>)> {
    let entries = control.entries.iter().zip(patterns).enumerate();
    entries.filter_map(|(at, (entry, pattern))| Some((at, place(entry, pattern)?)))
}

/// The order in which controls apply: block, allow, limit. Of blocks the one that expires last; of others the most
/// specific one, then the newest. Those that change limits and match the same stay together, ordered by their ends.
pub(super) type Order<'c> =
    (u8, Reverse<Micros>, Specificity, (Reverse<Micros>, &'c str), (Micros, &'c str));

/// The least is the most specific: exact before others, then more entries, then a named domain, then the values.
pub(crate) type Specificity = (Reverse<bool>, Reverse<usize>, bool, Vagueness);

pub(crate) fn specificity(control: &Control) -> Specificity {
    let vagueness = Pattern::vagueness(control.patterns());
    (Reverse(control.exact), Reverse(control.entries.len()), control.domain == "*", vagueness)
}

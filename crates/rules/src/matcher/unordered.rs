//! Finds the rule of entries without an order, such as those of a quota bucket of Envoy.
//!
//! An order of the entries is a path in the tree of rules. The look-up of each entry is the matcher's own.

use smallvec::SmallVec;

use super::{Domain, MatcherNode};
use crate::model::reserve::Reserve;
use weir_common::entry::Entry;

/// The most look-ups of entries for one map.
const MAX_LOOKUPS: usize = 4_096;

/// Indices of entries.
type EntryOrder = SmallVec<[usize; 4]>;

/// The orders, as indices of entries, in which entries match a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnorderedMatch {
    /// There is none.
    None,
    /// There is one.
    One(EntryOrder),
    /// There are several: the first two of them.
    Several([EntryOrder; 2]),
    /// The rules have too many paths to try them all.
    TooMany,
}

impl Domain {
    /// Returns the order in which [`find`](Self::find) finds a rule of `entries`, whose keys differ.
    pub fn find_unordered(&self, entries: &[Entry<'_>]) -> UnorderedMatch {
        let (lookups_left, order, found) = (MAX_LOOKUPS, SmallVec::new(), SmallVec::new());
        let mut search = Search { domain: self, entries, lookups_left, order, found };
        let is_complete = search.below(&self.root).is_some();
        let mut found = search.found.into_iter();
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => UnorderedMatch::Several([first, second]),
            _ if !is_complete => UnorderedMatch::TooMany,
            (Some(only), _) => UnorderedMatch::One(only),
            (None, _) => UnorderedMatch::None,
        }
    }
}

/// A depth-first search. Its methods return none once it has ended early: with two orders, or after too many look-ups.
struct Search<'s, 'e> {
    domain: &'s Domain,
    entries: &'e [Entry<'e>],
    lookups_left: usize,
    /// The indices of the entries on the path to the node that is searched.
    order: EntryOrder,
    found: SmallVec<[EntryOrder; 2]>,
}

impl Search<'_, '_> {
    fn below(&mut self, node: &MatcherNode) -> Option<()> {
        if node.children.is_empty() {
            return Some(());
        }
        for (i, (key, value)) in self.entries.iter().enumerate() {
            if self.order.contains(&i) {
                continue;
            }
            self.spend(1)?;
            let Some(matched) = node.child(key, value) else { continue };
            self.order.push(i);
            if let Some(reserve) = matched.child.reserve() {
                self.reservation(reserve)?;
            }
            if self.order.len() == self.entries.len() {
                self.confirm()?;
            } else {
                self.below(&matched.child.below)?;
            }
            self.order.pop();
        }
        Some(())
    }

    /// Tries the further entries as those of a reservation, which are not in the tree.
    fn reservation(&mut self, reserve: &Reserve) -> Option<()> {
        let own = self.order.len();
        for further in 0..self.entries.len() - own {
            let Some(next) = reserve.next_key(further) else { break };
            let position = self.entries.iter().position(|(key, _)| *key == next);
            let unused = position.filter(|position| !self.order.contains(position));
            self.order.extend(unused);
        }
        if self.order.len() == self.entries.len() {
            self.confirm()?;
        }
        self.order.truncate(own);
        Some(())
    }

    /// Keeps the order if the matcher finds a rule.
    fn confirm(&mut self) -> Option<()> {
        self.spend(self.entries.len())?;
        let entries: SmallVec<[Entry<'_>; 4]> =
            self.order.iter().map(|&i| self.entries[i]).collect();
        let is_known = self.found.contains(&self.order);
        if !is_known && self.domain.find(&entries).is_some() {
            self.found.push(self.order.clone());
        }
        (self.found.len() < 2).then_some(())
    }

    fn spend(&mut self, lookups: usize) -> Option<()> {
        self.lookups_left = self.lookups_left.checked_sub(lookups)?;
        Some(())
    }
}

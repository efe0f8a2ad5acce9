//! Records how the matcher finds the rule of a descriptor, entry by entry, for `weir explain` and `/v1/explain`.
//!
//! Each entry is looked up as for a request. The descriptors that would match after the first one are listed, too.

use std::fmt;

use super::value_sets::FoundInSet;
use super::{Child, Domain, MatcherNode};
use crate::model::reserve::ReserveStep;
use crate::model::rule::Rule;
use crate::model::value_set::MatchKind;
use crate::syntax::position::Origin;
use weir_common::entry::Entry;
use weir_common::network::Network;
use weir_common::value;

/// How the rule of a descriptor is found.
#[derive(Debug, Default)]
pub struct Trace<'s> {
    /// One for each entry that was looked up. The last has no match if an entry has none, or is part of a reservation.
    pub steps: Vec<TraceStep<'s>>,
    /// The match of the last entry, if all match.
    pub end: Option<Candidate<'s>>,
}

/// The look-up of one entry.
#[derive(Debug)]
pub struct TraceStep<'s> {
    /// The descriptor that the entry matches.
    pub matched: Option<Candidate<'s>>,
    /// Further descriptors of the level that match the entry, in the order in which they are tried.
    pub later: Vec<Candidate<'s>>,
    /// The list (`values_file`) whose name, such as `@blocked.txt`, the request sent as a value without matching it.
    pub list_name: Option<&'s str>,
    /// What the entry means to a rule with `reserve`, if it comes after the rule's own entries.
    pub reserve: Option<ReserveStep>,
    /// All descriptors of the level, in the order of the file.
    pub level: Level<'s>,
}

/// A descriptor of a rule file.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'s> {
    /// `key` or `key_value`.
    pub text: &'s str,
    /// How it matches.
    pub kind: MatchKind,
    /// The position of the descriptor's key.
    pub origin: &'s Origin,
    /// The rule on this level, if there is one.
    pub rule: Option<&'s Rule>,
    /// Whether all values that it matches count together.
    pub share_threshold: bool,
    /// Where the network, the `values` or the list of the descriptor has the value.
    pub within: Option<Within<'s>>,
    /// The descriptors below it.
    pub below: Level<'s>,
}

/// Where a network, `values` or a list has a value.
#[derive(Clone, Copy, Debug)]
pub struct Within<'s> {
    /// The network that the value lies in; none for a value of a list that is no network.
    pub network: Option<Network>,
    /// The list, as the rule names it, and the line.
    pub line: Option<(&'s str, u32)>,
    /// The item of `values` that has the value.
    pub item: Option<&'s str>,
}

/// `10.0.0.0/8 of lists/blocked.txt:17`, without what is absent; of an item, `values ('P*')`.
impl fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(item) = self.item {
            return write!(f, "values ('{item}')");
        }
        if let Some(network) = &self.network {
            write!(f, "{network}{}", if self.line.is_some() { " of " } else { "" })?;
        }
        self.line.map_or(Ok(()), |(list, line)| write!(f, "{list}:{line}"))
    }
}

/// The descriptors of one level.
#[derive(Clone, Copy, Debug)]
pub struct Level<'s>(&'s MatcherNode);

impl<'s> Level<'s> {
    /// Returns whether it has no descriptors.
    pub fn is_empty(self) -> bool {
        self.0.children.is_empty()
    }

    /// Returns the descriptors, each as `key` or `key_value`, and whether it has no value.
    pub fn texts(self) -> impl Iterator<Item = (&'s str, bool)> {
        self.0.children.iter().map(|child| (&*child.text, child.flags.any_value))
    }

    /// Returns the values that its descriptors name for a key. `start`: the key with a `_` after it.
    pub(crate) fn values(self, start: &str) -> impl Iterator<Item = &'s str> {
        let children = self.0.children.iter().filter(|child| !child.flags.any_value);
        let named =
            children.filter_map(move |child| Some((child, child.text.strip_prefix(start)?)));
        named.flat_map(|(child, value)| {
            let value = child.items().is_empty().then_some(value);
            value.into_iter().chain(child.items().iter().map(|item| &*item.text))
        })
    }

    /// Returns every descriptor that matches an entry, in the order in which the matcher tries them.
    pub fn matches(self, (key, value): Entry<'_>) -> Vec<Candidate<'s>> {
        let node = self.0;
        let mut found = Vec::new();
        let content = value::content(value);
        let exact = node.named(&format!("{key}_{value}")).filter(|child| child.set.is_none());
        found.extend(exact.map(|child| child.candidate(MatchKind::Value)));
        let mut in_sets = Vec::new();
        for in_set in node.sets.iter().flat_map(|sets| sets.all(&node.children, key, value)) {
            let child = &node.children[in_set.child as usize];
            in_sets.push(in_set.child);
            let within = child.within(&in_set).filter(|_| in_set.kind != MatchKind::Value);
            found.push(Candidate { within, ..child.candidate(in_set.kind) });
        }
        for wildcard in node.wildcards.iter().filter(|wildcard| wildcard.matches(key, content)) {
            let child = &node.children[wildcard.child as usize];
            let is_child = |other: &Candidate<'_>| std::ptr::eq(other.text, &*child.text);
            // Of the wildcards of one descriptor, which are beside each other, the first decides.
            let is_known =
                found.first().is_some_and(is_child) || found.last().is_some_and(is_child);
            if is_known || in_sets.contains(&wildcard.child) {
                continue;
            }
            let item = child.items().get(wildcard.item as usize).map(|item| &*item.text);
            let kind = if item.is_some() { MatchKind::List } else { MatchKind::Wildcard };
            let within = item.map(|_| Within { network: None, line: None, item });
            found.push(Candidate { within, ..child.candidate(kind) });
        }
        let by_key = node.named(key).filter(|child| child.set.is_none());
        let by_key = by_key.filter(|child| found.iter().all(|other| other.text != &*child.text));
        found.extend(by_key.map(|child| child.candidate(MatchKind::Key)));
        found
    }

    /// Returns the rules of the descriptors that match an entry, and those below, in the order of the matches.
    pub fn rules_of(self, entry: Entry<'_>) -> impl Iterator<Item = &'s Rule> + use<'s> {
        self.matches(entry).into_iter().flat_map(|found| {
            let below = found.below.0.descendants().filter_map(|child| child.rule.as_deref());
            found.rule.into_iter().chain(below)
        })
    }

    /// Returns the number of its wildcards, which an entry is compared with one by one.
    pub fn wildcards(self) -> usize {
        self.0.wildcards()
    }

    /// Returns the number of its descriptors.
    pub fn size(self) -> usize {
        self.0.children.len()
    }

    /// Returns every descriptor that some entry with this key matches.
    pub fn reachable(self, key: &str) -> Vec<Candidate<'s>> {
        let start = format!("{key}_");
        let node = self.0;
        let kind = |child: &Child| {
            if let Some(set) = &child.set {
                (child.entry().0 == key).then_some(set.match_kind())
            } else if child.text.contains('*') {
                // A star is after the first part, so all that follows can be matched.
                let first = child.text.split('*').next().unwrap_or_default();
                let fits = first.starts_with(&start) || start.starts_with(first);
                fits.then_some(MatchKind::Wildcard)
            } else if child.text.starts_with(&start) {
                Some(MatchKind::Value)
            } else {
                (*child.text == *key).then_some(MatchKind::Key)
            }
        };
        node.children.iter().filter_map(|child| Some(child.candidate(kind(child)?))).collect()
    }
}

impl Child {
    fn candidate(&self, kind: MatchKind) -> Candidate<'_> {
        Candidate {
            text: &self.text,
            kind,
            origin: &self.origin,
            rule: self.rule.as_deref(),
            share_threshold: self.flags.share_threshold && !kind.is_exact(),
            within: None,
            below: Level(&self.below),
        }
    }

    fn within(&self, found: &FoundInSet) -> Option<Within<'_>> {
        let list = self.entry().1;
        let list = list.strip_prefix('@').unwrap_or(list);
        let network = found.network.map(|(network, len)| network.truncate(len, len));
        let items = self.items();
        let item = match (found.line, network) {
            (Some(item), _) => items.get(item as usize),
            (None, Some(_)) => items.iter().find(|item| item.network == network),
            (None, None) => return None,
        };
        let line = found.line.filter(|_| items.is_empty()).map(|line| (list, line));
        Some(Within { network, line, item: item.map(|item| &*item.text) })
    }
}

impl Domain {
    /// Returns the descriptors of the first level.
    pub fn level(&self) -> Level<'_> {
        Level(&self.root)
    }

    /// Looks entries up as [`find`](Self::find) does, and lists what it saw.
    pub fn trace(&self, entries: &[Entry<'_>]) -> Trace<'_> {
        let mut trace = Trace::default();
        let mut node = &self.root;
        for (i, &(key, value)) in entries.iter().enumerate() {
            let found = node.child(key, value);
            let level = Level(node);
            let mut later = level.matches((key, value));
            // The look-up is the matcher's own; the list of all matches has the place in a set.
            let matched = found.map(|found| {
                let is_found =
                    |other: &&Candidate<'_>| std::ptr::eq(other.text, &*found.child.text);
                let listed = later.iter().find(is_found).copied();
                listed.unwrap_or_else(|| found.child.candidate(found.kind))
            });
            later.retain(|other| matched.is_some_and(|matched| matched.text != other.text));
            let named =
                node.sets.as_ref().and_then(|sets| sets.list_named(&node.children, key, value));
            let is_other = |list: &str| matched.is_none_or(|matched| *matched.text != *list);
            let list_name = named.map(|list| &*list.text).filter(|list| is_other(list));
            trace.steps.push(TraceStep { matched, later, list_name, reserve: None, level });
            let Some(found) = found else { return trace };
            let (child, further) = (found.child, &entries[i + 1..]);
            if further.is_empty() {
                trace.end = matched;
            } else if child.is_end(further) {
                trace.end = matched;
                let rule = child.rule.as_ref();
                trace.steps.extend((i + 1..entries.len()).map(|i| TraceStep {
                    matched: None,
                    later: Vec::new(),
                    list_name: None,
                    reserve: rule.and_then(|rule| rule.reserve_step(i + 1)),
                    level: Level(&child.below),
                }));
                return trace;
            }
            node = &child.below;
        }
        trace
    }
}

//! A compiled rule set, by which requests are decided until the next load: for each domain a tree of the descriptors in
//! rule files, the matcher. For each request it finds the rules of the descriptors sent.
//!
//! Each descriptor below a node is a child with one text, `key` or `key_value`, as in envoyproxy/ratelimit: so
//! `{key: a_b}` and `{key: a, value: b}` are equal. An entry is looked up as `key_value`, then in the networks and
//! lists of the node (`network`, `values`, `values_file`), then among its wildcards in file order, then as `key`. Exact
//! children are found by hash, without concatenating the text, at a cost that does not depend on their number. A
//! look-up does not allocate, except for a wildcard with a star in its key.

pub(crate) mod metric_path;
pub(crate) mod near_miss;
pub(crate) mod overlap;
pub(crate) mod trace;
mod tree;
pub(crate) mod unordered;
mod value_sets;

use std::borrow::Cow;
use std::hash::Hasher;
use std::sync::Arc;

use hashbrown::{HashMap, HashTable};
use siphasher::sip::SipHasher13;

use crate::model::prefix_table::PrefixTable;
use crate::model::rule::Rule;
use crate::model::stats::{RuleSeries, RuleSeriesLimit};
use crate::model::value_set::{MatchKind, ValueList, ValueSet};
use crate::syntax::position::Origin;
use weir_common::entry::Entry;
use weir_common::failure::OnStoreFailure;
use weir_common::glob::{has_parts, has_parts_after};
use weir_common::network::Network;
use weir_common::value;
use weir_limit::Calendar;

/// An immutable, compiled set of rules. Threads share one, and a new one replaces it as a whole.
#[derive(Debug, Default)]
pub struct RuleSet {
    pub(crate) domains: HashMap<Box<str>, Domain>,
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The maximum number of values of requests that are counted separately for metrics.
    pub(crate) series: Arc<RuleSeriesLimit>,
    /// The calendar for months of limits that requests bring along; none without `calendar_months` of the options.
    pub calendar_month: Option<Arc<Calendar>>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// Whether either all descriptors of a request are charged or none.
    pub together: bool,
    /// The failure policy; none if the settings decide.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The patches of the overlay (an operator's changes of rules) that changed the fields above.
    pub patches: Box<[Origin]>,
    /// The counters of limits that requests bring along, by [`override_path`](Self::override_path).
    pub override_series: Option<Arc<RuleSeries>>,
    pub(crate) root: MatcherNode,
    pub(crate) replace_dots: bool,
}

impl RuleSet {
    /// Returns the domain of this name, if there are rules for it.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Returns the domain if there is one alone.
    pub fn only_domain(&self) -> Option<&str> {
        let mut names = self.domains.keys();
        names.next().filter(|_| names.len() == 0).map(|name| &**name)
    }

    /// The number of domains.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// All rules, in the order of the files.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(AsRef::as_ref)
    }

    /// Returns the rule at a position in the order of the files.
    pub fn rule(&self, position: usize) -> Option<&Rule> {
        self.rules.get(position).map(AsRef::as_ref)
    }
}

/// The rule that a descriptor matches.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// Whether the key has another text for a value: a pattern with `share_threshold`, or an address's canonical form.
    pub replaces_values: bool,
}

impl Domain {
    /// Finds the rule that all of `entries` match.
    pub fn find(&self, entries: &[Entry<'_>]) -> Option<Found<'_>> {
        let mut replaces_values = false;
        let rule = self.root.walk(entries, |_, _| replaces_values = true)?;
        Some(Found { rule, replaces_values })
    }

    /// Returns the values that the key of a descriptor has in place of its own, with the indices of their entries.
    /// That is the pattern of a wildcard, a network or a list with `share_threshold`, and an address in its canonical
    /// form, or its network by `group`.
    pub fn key_values(&self, entries: &[Entry<'_>]) -> Vec<(usize, Cow<'_, str>)> {
        let mut values = Vec::new();
        self.root.walk(entries, |i, value| values.push((i, value.text(entries[i].1))));
        values
    }
}

/// The descriptors of one level.
#[derive(Debug, Default)]
pub(super) struct MatcherNode {
    children: Vec<Child>,
    /// Indices into `children`, by the hash of their text.
    exact: HashTable<u32>,
    /// The children with `network`, `values` or `values_file`, if there are any: they are not in `exact`.
    sets: Option<Box<ValueSets>>,
    /// The children with a wildcard, in file order.
    wildcards: Vec<Wildcard>,
    /// The length of the longest text.
    longest: usize,
}

#[derive(Debug)]
pub(super) struct Child {
    /// `key` or `key_value`.
    pub text: Box<str>,
    pub rule: Option<Arc<Rule>>,
    pub flags: NodeFlags,
    pub set: Option<Arc<ValueSet>>,
    pub origin: Origin,
    pub below: MatcherNode,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFlags {
    /// Whether all values that the wildcard, the network or the list matches are counted together.
    pub share_threshold: bool,
    /// Whether values that the node does not name distinguish metrics.
    pub value_to_metric: bool,
    /// Whether the node's rule reserves hits, so that more entries may lead to it.
    pub reserves: bool,
    pub any_value: bool,
    /// The length of the key in the text `key_value`.
    pub key_length: u32,
}

impl Child {
    /// Returns whether `further` entries are part of a reservation of its rule.
    #[cold]
    fn is_end(&self, further: &[Entry<'_>]) -> bool {
        self.reserve().is_some_and(|reserve| reserve.takes(further.iter().map(|(key, _)| *key)))
    }

    /// Returns whether the entry that it matches, with `further` ones after it, names a reservation.
    fn is_id(&self, further: &[Entry<'_>]) -> bool {
        self.reserve().is_some_and(|reserve| reserve.has_own_id) && self.is_end(further)
    }
}

#[derive(Debug)]
struct Wildcard {
    child: u32,
    /// Its index among the items of `values`, if the child has them.
    item: u32,
    /// The literal parts around the stars: at least two.
    parts: Box<[Box<str>]>,
}

impl Wildcard {
    /// Returns whether the pattern matches `key_value`.
    #[inline]
    fn matches(&self, key: &str, value: &str) -> bool {
        let Some((first, others)) = self.parts.split_first() else { return false };
        match first.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')) {
            Some(first) => has_parts_after(value, first, others),
            // The first star is within the key.
            None => key.starts_with(&**first) && has_parts(&format!("{key}_{value}"), &self.parts),
        }
    }
}

/// The networks and the lists of a node.
#[derive(Debug, Default)]
struct ValueSets {
    /// Indices of children, by the hash of their text.
    by_text: HashTable<u32>,
    by_key: HashMap<Box<str>, SetsOfKey>,
    /// The items of `values`, each by its child and its index, by the hash of `key_item`.
    items: HashTable<(u32, u32)>,
    values_of_key: HashMap<Box<str>, u32>,
}

#[derive(Debug, Default)]
struct SetsOfKey {
    /// The networks of descriptors, with the indices of children.
    networks: PrefixTable,
    /// The children with a list, in file order.
    lists: Vec<(u32, Arc<ValueList>)>,
    /// The addresses and networks whose canonical text is the value of a descriptor, with the indices of children.
    values: PrefixTable,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedValue<'n> {
    pub child: &'n Child,
    pub kind: MatchKind,
    pub form: ValueForm,
}

/// What a value is besides a text. It matters for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    Text,
    /// The name of a list beside it, as which the values of that list are counted.
    ListName,
    /// It was compared as an address, with the length of the network that has it.
    Ipv4(u8),
    Ipv6(u8),
}

/// What the key has in place of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyValue<'n> {
    /// The pattern, the network or the list that shares its threshold, or the value that names an address.
    Named(&'n str),
    /// The address in its canonical form, or the network by which it is counted.
    Network(Network),
    /// The value with a slash after it: it is the name of a list. No name ends with a slash.
    AfterList,
}

impl<'n> KeyValue<'n> {
    /// Returns it as text, of the value that was sent.
    pub fn text(self, sent: &str) -> Cow<'n, str> {
        match self {
            KeyValue::Named(text) => text.into(),
            KeyValue::Network(network) => network.to_string().into(),
            KeyValue::AfterList => format!("{sent}/").into(),
        }
    }
}

impl<'n> MatchedValue<'n> {
    pub fn new(child: &'n Child, kind: MatchKind) -> MatchedValue<'n> {
        MatchedValue { child, kind, form: ValueForm::Text }
    }

    /// Returns what the key has in place of the value of an entry; none if it has the value.
    #[inline]
    pub fn key_value(&self, key: &str, value: &str) -> Option<KeyValue<'n>> {
        match self.kind.is_exact() && self.form == ValueForm::Text {
            true => None,
            false => self.other_key_value(key, value),
        }
    }

    #[inline(never)]
    fn other_key_value(&self, key: &str, value: &str) -> Option<KeyValue<'n>> {
        let text = &self.child.text;
        let shares = self.child.flags.share_threshold && !self.kind.is_exact();
        if self.form == ValueForm::ListName && !shares {
            return Some(KeyValue::AfterList);
        }
        if shares || self.kind.is_exact() {
            let pattern = text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_'));
            return Some(KeyValue::Named(pattern.unwrap_or(text)));
        }
        let set = self.child.set.as_ref()?;
        let len = match self.form {
            // Most are counted as they are.
            ValueForm::Ipv4(_) if set.group.v4 == 32 => return None,
            ValueForm::Ipv4(len) | ValueForm::Ipv6(len) => len,
            ValueForm::Text | ValueForm::ListName => return None,
        };
        let counted = set.group.of(&Network::from_value(value)?, len);
        (!counted.is_text(value)).then_some(KeyValue::Network(counted))
    }
}

impl MatchKind {
    fn is_exact(self) -> bool {
        matches!(self, MatchKind::Value | MatchKind::Key)
    }
}

impl MatcherNode {
    /// Follows `entries` to their rule, and calls `replace` for each value that the key has another text for. Each entry
    /// takes the first child that it matches. Those of a reservation come before the children of its rule.
    fn walk<'s>(
        &'s self,
        entries: &[Entry<'_>],
        mut replace: impl FnMut(usize, KeyValue<'s>),
    ) -> Option<&'s Rule> {
        let (mut node, mut rest) = (self, entries);
        while let [(key, value), further @ ..] = rest {
            let matched = node.child(key, value)?;
            let child = matched.child;
            if let Some(value) = matched.key_value(key, value)
                && !child.is_id(further)
            {
                replace(entries.len() - rest.len(), value);
            }
            if further.is_empty() || child.flags.reserves && child.is_end(further) {
                return child.rule.as_deref();
            }
            (node, rest) = (&child.below, further);
        }
        None
    }

    #[inline]
    fn child(&self, key: &str, value: &str) -> Option<MatchedValue<'_>> {
        let mut matched = self.first_match(key, value)?;
        if let Some(sets) = self.sets.as_ref().filter(|_| value.starts_with('@'))
            && sets.list_named(&self.children, key, value).is_some()
        {
            matched.form = ValueForm::ListName;
        }
        Some(matched)
    }

    #[inline(always)]
    fn first_match(&self, key: &str, value: &str) -> Option<MatchedValue<'_>> {
        if self.children.is_empty() {
            return None;
        }
        let exact = |hash, has_text: &dyn Fn(&str) -> bool| {
            let found = self.exact.find(hash, |&i| has_text(&self.children[i as usize].text))?;
            self.children.get(*found as usize)
        };
        let joined = Joined { key: key.as_bytes(), value: value.as_bytes() };
        // Where rules name no values, this saves the hash.
        if joined.len() <= self.longest
            && let Some(child) = exact(hash(&[key, "_", value]), &|text| joined.equals(text))
        {
            return Some(MatchedValue::new(child, MatchKind::Value));
        }
        if let Some(sets) = &self.sets
            && let Some(found) = sets.find(&self.children, key, value)
        {
            let child = self.children.get(found.child as usize)?;
            let form = match found.network {
                Some((_, len)) if found.is_ipv4 => ValueForm::Ipv4(len),
                Some((_, len)) => ValueForm::Ipv6(len),
                None => ValueForm::Text,
            };
            return Some(MatchedValue { child, kind: found.kind, form });
        }
        for wildcard in &self.wildcards {
            if wildcard.matches(key, value::content(value)) {
                let child = self.children.get(wildcard.child as usize)?;
                return Some(MatchedValue::new(child, MatchKind::Wildcard));
            }
        }
        exact(hash(&[key]), &|text| text == key)
            .map(|child| MatchedValue::new(child, MatchKind::Key))
    }
}

/// `key_value`, without concatenating it.
#[derive(Clone, Copy)]
struct Joined<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl Joined<'_> {
    fn len(self) -> usize {
        self.key.len() + 1 + self.value.len()
    }

    fn equals(self, text: &str) -> bool {
        let text = text.as_bytes();
        text.len() == self.len()
            && text.starts_with(self.key)
            && text[self.key.len()] == b'_'
            && text.ends_with(self.value)
    }
}

/// Hashes the concatenation of texts. SipHash reads bytes as one stream, so boundaries between the texts
/// do not matter. Its key may be public, because only rules are inserted.
fn hash(texts: &[&str]) -> u64 {
    let mut hasher = SipHasher13::new();
    texts.iter().for_each(|text| hasher.write(text.as_bytes()));
    hasher.finish()
}

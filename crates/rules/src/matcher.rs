//! The matcher: a tree of rules that finds the rule of a descriptor.
//!
//! Each child of a node is identified by one text, `key` or `key_value`, as in the reference, so `{key: a_b}` and
//! `{key: a, value: b}` are equal. An entry is looked up as `key_value`, then in the networks and lists of the node,
//! then among its wildcards in file order, then as `key`. Exact children are found by hash, without concatenating the
//! text: a look-up does not allocate, but for a wildcard with a star in its key, and its cost does not depend on the number
//! of exact rules.

pub(crate) mod metric_path;
pub(crate) mod near_miss;
pub(crate) mod node;
pub(crate) mod overlap;
pub(crate) mod trace;
mod tree;
mod value_sets;

use std::borrow::Cow;

use crate::model::rule::Rule;
use crate::model::value_set::{MatchKind, hash};
use crate::rule_set::Domain;
use node::{Child, Joined, MatcherNode};
use value_sets::FoundInSet;
use weir_common::entry::Entry;
use weir_common::network::Network;
use weir_common::value;

/// The rule that a descriptor matches.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    /// The rule.
    pub rule: &'s Rule,
    /// Whether the key has another text for a value: a pattern with `share_threshold`, or an address's canonical form.
    pub replaces_values: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched<'n> {
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

impl<'n> Matched<'n> {
    pub fn new(child: &'n Child, kind: MatchKind) -> Matched<'n> {
        Matched { child, kind, form: ValueForm::Text }
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

    /// Calls `part` with each entry, its index, and the child that it matches.
    pub(super) fn each_match<'e>(
        &self,
        entries: &[Entry<'e>],
        mut part: impl FnMut(usize, Entry<'e>, &Matched<'_>),
    ) {
        let mut node = self;
        for (i, &(key, value)) in entries.iter().enumerate() {
            let Some(matched) = node.child(key, value) else { return };
            part(i, (key, value), &matched);
            node = &matched.child.below;
        }
    }

    #[inline]
    fn child(&self, key: &str, value: &str) -> Option<Matched<'_>> {
        let mut matched = self.first_match(key, value)?;
        if let Some(sets) = self.sets.as_ref().filter(|_| value.starts_with('@'))
            && sets.list_named(&self.children, key, value).is_some()
        {
            matched.form = ValueForm::ListName;
        }
        Some(matched)
    }

    #[inline(always)]
    fn first_match(&self, key: &str, value: &str) -> Option<Matched<'_>> {
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
            return Some(Matched::new(child, MatchKind::Value));
        }
        if let Some(sets) = &self.sets
            && let Some(found) = sets.find(&self.children, key, value)
        {
            let child = self.children.get(found.child as usize)?;
            let FoundInSet { kind, is_ipv4, .. } = found;
            let form = match found.network {
                Some((_, len)) if is_ipv4 => ValueForm::Ipv4(len),
                Some((_, len)) => ValueForm::Ipv6(len),
                None => ValueForm::Text,
            };
            return Some(Matched { child, kind, form });
        }
        for wildcard in &self.wildcards {
            if wildcard.matches(key, value::content(value)) {
                let child = self.children.get(wildcard.child as usize)?;
                return Some(Matched::new(child, MatchKind::Wildcard));
            }
        }
        exact(hash(&[key]), &|text| text == key).map(|child| Matched::new(child, MatchKind::Key))
    }
}

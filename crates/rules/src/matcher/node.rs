//! The nodes of the tree: what each has of the descriptors below it, and by what they are found.

use std::sync::Arc;

use hashbrown::{HashMap, HashTable};

use crate::model::prefix_table::PrefixTable;
use crate::model::reserve::Reserve;
use crate::model::rule::Rule;
use crate::model::value_set::{Item, ValueList, ValueSet, hash};
use crate::syntax::position::Origin;
use weir_common::entry::Entry;
use weir_common::glob::{has_parts, has_parts_after};

#[derive(Debug, Default)]
pub(crate) struct MatcherNode {
    pub(super) children: Vec<Child>,
    /// Indices into `children`, by the hash of their text.
    pub(super) exact: HashTable<u32>,
    /// The children with a network or a list, if there are any: they are not in `exact`.
    pub(super) sets: Option<Box<ValueSets>>,
    /// The children with a wildcard, in file order.
    pub(super) wildcards: Vec<Wildcard>,
    /// The length of the longest text.
    pub(super) longest: usize,
}

#[derive(Debug)]
pub(crate) struct Child {
    /// `key` or `key_value`.
    pub text: Box<str>,
    pub rule: Option<Arc<Rule>>,
    pub flags: NodeFlags,
    pub set: Option<Arc<ValueSet>>,
    pub origin: Origin,
    pub below: MatcherNode,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeFlags {
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
    /// Returns the key and the value, as the rule file has them; a value that it does not name is empty.
    pub fn entry(&self) -> Entry<'_> {
        let key_length = self.flags.key_length as usize;
        let value = self.text.get(key_length + 1..).unwrap_or_default();
        (self.text.get(..key_length).unwrap_or(&self.text), value)
    }

    /// The items of its `values`.
    pub fn items(&self) -> &[Item] {
        self.set.as_ref().map_or(&[], |set| set.items())
    }

    pub fn reserve(&self) -> Option<&Reserve> {
        self.rule.as_ref()?.reserve.as_deref()
    }

    pub(super) fn has_text(&self, key: &str, value: &str) -> bool {
        Joined { key: key.as_bytes(), value: value.as_bytes() }.equals(&self.text)
    }

    /// Returns whether what it matches is never counted: it allows everything, and nothing is below it.
    pub(super) fn is_unlimited(&self) -> bool {
        self.below.children.is_empty() && self.rule.as_ref().is_some_and(|rule| rule.plan.is_none())
    }

    /// Returns whether `further` entries are part of a reservation of its rule.
    #[cold]
    pub(super) fn is_end(&self, further: &[Entry<'_>]) -> bool {
        self.reserve().is_some_and(|reserve| reserve.takes(further.iter().map(|(key, _)| *key)))
    }

    /// Returns whether the entry that it matches, with `further` ones after it, names a reservation.
    pub(super) fn is_id(&self, further: &[Entry<'_>]) -> bool {
        self.reserve().is_some_and(|reserve| reserve.has_own_id) && self.is_end(further)
    }
}

#[derive(Debug)]
pub(super) struct Wildcard {
    pub child: u32,
    /// Its index among the items of `values`, if the child has them.
    pub item: u32,
    /// The literal parts around the stars: at least two.
    pub parts: Box<[Box<str>]>,
}

impl Wildcard {
    /// Returns whether the pattern matches `key_value`.
    #[inline]
    pub fn matches(&self, key: &str, value: &str) -> bool {
        let Some((first, others)) = self.parts.split_first() else { return false };
        match first.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')) {
            Some(first) => has_parts_after(value, first, others),
            // The first star is within the key.
            None => key.starts_with(&**first) && has_parts(&format!("{key}_{value}"), &self.parts),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ValueSets {
    /// Indices of children, by the hash of their text.
    pub by_text: HashTable<u32>,
    pub by_key: HashMap<Box<str>, SetsOfKey>,
    /// The items of `values`, each by its child and its index, by the hash of `key_item`.
    pub items: HashTable<(u32, u32)>,
    pub values_of_key: HashMap<Box<str>, u32>,
}

#[derive(Debug, Default)]
pub(super) struct SetsOfKey {
    /// The networks of descriptors, with the indices of children.
    pub networks: PrefixTable,
    /// The children with a list, in file order.
    pub lists: Vec<(u32, Arc<ValueList>)>,
    /// The addresses and networks whose canonical text is the value of a descriptor, with the indices of children.
    pub values: PrefixTable,
}

/// `key_value`, without concatenating it.
#[derive(Clone, Copy)]
pub(super) struct Joined<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Joined<'_> {
    pub fn len(self) -> usize {
        self.key.len() + 1 + self.value.len()
    }

    pub fn equals(self, text: &str) -> bool {
        let text = text.as_bytes();
        text.len() == self.len()
            && text.starts_with(self.key)
            && text[self.key.len()] == b'_'
            && text.ends_with(self.value)
    }
}

pub(super) fn rehash(children: &[Child], index: u32) -> u64 {
    hash(&[&children[index as usize].text])
}

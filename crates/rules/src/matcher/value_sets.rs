//! Finds the descriptor that matches a value as one of many: by `network`, by `values`, or by a list (the file that
//! `values_file` names, with a value in each line). The matcher calls it if no descriptor has the value itself.
//!
//! For the key of an entry, a value that `values` names as text comes first, then one that a list has as text, then the
//! longest network that the value lies in. The `values` of a level are in one table, and so are its networks; their
//! wildcards are among the others. Lists are searched one by one.
//!
//! Addresses are counted by their canonical text, or that of the prefix which `group` sets. A descriptor beside the
//! networks with this text as its `value` would have the same key. So it matches the address in every notation.

use std::cmp::Reverse;
use std::iter;

use hashbrown::HashMap;

use super::tree::rehash;
use super::{Child, Joined, MatcherNode, SetsOfKey, ValueSets, hash};
use crate::model::prefix_table::{Containing, PrefixTable, PrefixTableBuilder};
use crate::model::value_set::{MatchKind, SetKind};
use weir_common::entry::Entry;
use weir_common::network::{Network, ipv4};

/// Where a value is found in the networks, `values` and lists of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundInSet {
    pub child: u32,
    pub kind: MatchKind,
    /// The address or network that the value is, and the length of the prefix that it has in common.
    pub network: Option<(Network, u8)>,
    /// The line of the list, or the index of the item of `values`.
    pub line: Option<u32>,
    /// Whether the value is an IPv4 address in its canonical form: there is only one.
    pub is_ipv4: bool,
}

impl ValueSets {
    pub fn add(&mut self, children: &[Child], index: u32) {
        let hash = rehash(children, index);
        self.by_text.insert_unique(hash, index, |&i| rehash(children, i));
        let items = children.get(index as usize).map_or(0, |child| child.items().len());
        for item in (0..).take(items).map(|item| (index, item)) {
            self.items.insert_unique(rehash_item(children, &item), item, |item| {
                rehash_item(children, item)
            });
        }
    }

    /// Returns `@values`, and for further ones of the same key `@values2` and so on.
    pub fn name_of_values(&mut self, key: &str) -> String {
        let count = self.values_of_key.entry(key.into()).or_insert(0);
        *count += 1;
        if *count == 1 { "@values".to_owned() } else { format!("@values{count}") }
    }

    /// Returns the child with an item of `values` that is `text` with its key.
    pub fn with_item<'n>(&self, children: &'n [Child], text: &str) -> Option<&'n Child> {
        let has_text = |item: &(u32, u32)| {
            let (key, value) = item_entry(children, item);
            Joined { key: key.as_bytes(), value: value.as_bytes() }.equals(text)
        };
        let (child, _) = self.items.find(hash(&[text]), has_text)?;
        children.get(*child as usize)
    }

    /// Finds the item of `values` that is a value as text.
    #[inline(never)]
    fn text_item(&self, children: &[Child], key: &str, value: &str) -> Option<FoundInSet> {
        let is_item = |item: &(u32, u32)| item_entry(children, item) == (key, value);
        let &(child, item) = self.items.find(hash(&[key, "_", value]), is_item)?;
        let is_network = children[child as usize].items()[item as usize].network.is_some();
        (!is_network).then(|| in_list(child, None, item))
    }

    pub fn named<'n>(&self, children: &'n [Child], text: &str) -> Option<&'n Child> {
        let has_text = |&i: &u32| *children[i as usize].text == *text;
        children.get(*self.by_text.find(hash(&[text]), has_text)? as usize)
    }

    /// Builds the tables that look-ups use from the children.
    pub fn index(&mut self, children: &[Child]) {
        let mut networks: HashMap<&str, PrefixTableBuilder> = HashMap::new();
        self.by_key.clear();
        for (child, index) in children.iter().zip(0..) {
            let Some(set) = &child.set else { continue };
            let key = child.entry().0;
            let mut add = |network| networks.entry(key).or_default().add(network, index);
            match &set.kind {
                SetKind::Network(network) => add(*network),
                SetKind::Values(items) => {
                    items.iter().filter_map(|item| item.network).for_each(add)
                }
                SetKind::List(list) => {
                    self.by_key.entry(key.into()).or_default().lists.push((index, list.clone()));
                }
            }
        }
        for key in networks.keys() {
            self.by_key.entry((*key).into()).or_default();
        }
        let mut values: HashMap<&str, PrefixTableBuilder> = HashMap::new();
        for (child, index) in children.iter().zip(0..).filter(|(child, _)| child.set.is_none()) {
            // No network has a `_`.
            if let Some((key, value)) = child.text.rsplit_once('_')
                && self.by_key.contains_key(key)
                && let Some(network) = Network::from_value(value).filter(|own| own.is_text(value))
            {
                values.entry(key).or_default().add(network, index);
            }
        }
        for (key, of_key) in &mut self.by_key {
            of_key.networks = networks.remove(&**key).unwrap_or_default().build();
            of_key.values = values.remove(&**key).unwrap_or_default().build();
        }
        self.by_key.shrink_to_fit();
        self.items.shrink_to_fit(|item| rehash_item(children, item));
        self.by_text.shrink_to_fit(|&i| rehash(children, i));
    }

    /// Finds the child that an entry matches whose text no child has.
    #[inline(never)]
    pub fn find(&self, children: &[Child], key: &str, value: &str) -> Option<FoundInSet> {
        if !self.items.is_empty()
            && let Some(item) = self.text_item(children, key, value)
        {
            return Some(item);
        }
        let of_key = self.by_key.get(key)?;
        for (child, list) in &of_key.lists {
            if let Some(line) = list.text_line(value) {
                return Some(in_list(*child, None, line));
            }
        }
        let ipv4 = ipv4(value);
        let is_ipv4 = ipv4.is_some();
        let network = ipv4.map(Network::from).or_else(|| Network::from_other_value(value))?;
        if !is_ipv4 && let Some(named) = of_key.value(network, network.prefix_len()) {
            return Some(named);
        }
        let (mut best, mut best_list) = (of_key.networks.find(&network), None);
        for (child, list) in &of_key.lists {
            if let Some(found) = list.networks.find(&network)
                && best.is_none_or(|best| best.prefix_len < found.prefix_len)
            {
                (best, best_list) = (Some(found), Some(*child));
            }
        }
        let Containing { prefix_len, number } = best?;
        let place = Some((network, prefix_len));
        let found = match best_list {
            Some(list) => FoundInSet { is_ipv4, ..in_list(list, place, number) },
            None => FoundInSet { is_ipv4, ..FoundInSet::new(number, MatchKind::Network, place) },
        };
        Some(of_key.value_of_group(children, &found).unwrap_or(found))
    }

    /// Returns the list whose name a value is, but for slashes at its end, if that name is in keys in place of the values.
    pub fn list_named<'n>(
        &self,
        children: &'n [Child],
        key: &str,
        value: &str,
    ) -> Option<&'n Child> {
        let name = value.trim_end_matches('/');
        let has_entry = |&i: &u32| children[i as usize].entry() == (key, name);
        let child = *self.by_text.find(hash(&[key, "_", name]), has_entry)?;
        let list = children.get(child as usize)?;
        (name.starts_with('@') && list.flags.share_threshold).then_some(list)
    }

    /// Returns all places of a value, in the order of their precedence: first that of [`find`](Self::find).
    pub fn all(&self, children: &[Child], key: &str, value: &str) -> Vec<FoundInSet> {
        let mut found = Vec::from_iter(self.text_item(children, key, value));
        let Some(of_key) = self.by_key.get(key) else { return found };
        for (child, list) in &of_key.lists {
            found.extend(list.text_line(value).map(|line| in_list(*child, None, line)));
        }
        let Some(network) = Network::from_value(value) else { return found };
        let texts = found.len();
        for row in of_key.networks.containing(&network) {
            let set = children[row.number as usize].set.as_ref();
            let kind = set.map_or(MatchKind::Network, |set| set.match_kind());
            // Of several networks of `values`, the longest decides.
            if found.iter().all(|other| other.child != row.number) {
                found.push(FoundInSet::new(row.number, kind, Some((network, row.prefix_len))));
            }
        }
        for (child, list) in &of_key.lists {
            // Only the longest network of a list decides.
            let longest = list.networks.find(&network);
            found.extend(
                longest.map(|row| in_list(*child, Some((network, row.prefix_len)), row.number)),
            );
        }
        let len = |place: &FoundInSet| place.network.map(|(_, len)| Reverse(len));
        found[texts..].sort_by_key(len);
        let longest = found.get(texts);
        let of_group = longest.and_then(|longest| of_key.value_of_group(children, longest));
        let named = of_key.value(network, network.prefix_len()).or(of_group);
        // Its own text is not looked up in sets.
        let is_own = |place: &FoundInSet| children[place.child as usize].has_text(key, value);
        found.splice(texts..texts, named.filter(|place| !is_own(place)));
        found
    }
}

impl SetsOfKey {
    /// Returns the descriptor whose value is the canonical text of a network, shortened to a prefix.
    fn value(&self, network: Network, prefix_len: u8) -> Option<FoundInSet> {
        let child = self.values.get(&network.truncate(prefix_len, prefix_len))?;
        Some(FoundInSet::new(child, MatchKind::Value, Some((network, prefix_len))))
    }

    /// Returns the descriptor whose value is the group by which a value in a network would be counted.
    fn value_of_group(&self, children: &[Child], found: &FoundInSet) -> Option<FoundInSet> {
        if self.values.len() == 0 {
            return None;
        }
        let (child, (network, len)) = (children.get(found.child as usize)?, found.network?);
        if child.flags.share_threshold || child.is_unlimited() {
            return None;
        }
        let counted = child.set.as_ref()?.group.of(&network, len);
        self.value(network, counted.prefix_len())
    }
}

impl Child {
    fn has_text(&self, key: &str, value: &str) -> bool {
        Joined { key: key.as_bytes(), value: value.as_bytes() }.equals(&self.text)
    }

    /// Returns whether what it matches is never counted: it allows everything, and nothing is below it.
    fn is_unlimited(&self) -> bool {
        self.below.children.is_empty() && self.rule.as_ref().is_some_and(|rule| rule.plan.is_none())
    }
}

impl FoundInSet {
    fn new(child: u32, kind: MatchKind, network: Option<(Network, u8)>) -> FoundInSet {
        FoundInSet { child, kind, network, line: None, is_ipv4: false }
    }
}

fn item_entry<'n>(children: &'n [Child], &(child, item): &(u32, u32)) -> Entry<'n> {
    let child = &children[child as usize];
    (child.entry().0, &child.items()[item as usize].text)
}

fn rehash_item(children: &[Child], item: &(u32, u32)) -> u64 {
    let (key, value) = item_entry(children, item);
    hash(&[key, "_", value])
}

fn in_list(child: u32, network: Option<(Network, u8)>, line: u32) -> FoundInSet {
    FoundInSet { line: Some(line), ..FoundInSet::new(child, MatchKind::List, network) }
}

/// A network that two children of a level have. These are in the order of the file, each with the line of its list.
type EqualNetworks<'n> = (Network, [(&'n Child, Option<u32>); 2]);

/// The comparisons with which equal networks of lists are searched for on one level.
const MAX_COMPARISONS: usize = 1 << 24;

impl MatcherNode {
    /// Returns pairs of children with a network in common, except among the first `known`: one network of each pair of
    /// lists, and of each list and the networks of descriptors. Two equal descriptors are an error already.
    pub(crate) fn equal_networks(&self, known: usize) -> Vec<EqualNetworks<'_>> {
        let mut found: Vec<EqualNetworks<'_>> = Vec::new();
        let mut comparisons = MAX_COMPARISONS;
        for of_key in self.sets.iter().flat_map(|sets| sets.by_key.values()) {
            let lists = of_key.lists.iter().map(|(child, list)| (Some(*child), &list.networks));
            let sources: Vec<(Option<u32>, &PrefixTable)> =
                iter::once((None, &of_key.networks)).chain(lists).collect();
            for (i, one) in sources.iter().enumerate() {
                for other in &sources[i + 1..] {
                    let (few, many) =
                        if one.1.len() <= other.1.len() { (one, other) } else { (other, one) };
                    let Some(left) = comparisons.checked_sub(few.1.len()) else { continue };
                    comparisons = left;
                    let common = few.1.iter().find_map(|(network, number)| {
                        let places = [(few.0, number), (many.0, many.1.get(&network)?)];
                        let last =
                            places.map(|(list, number)| list.unwrap_or(number)).into_iter().max();
                        last.filter(|child| *child as usize >= known)?;
                        let [one, other] = places.map(|(list, number)| self.place(list, number));
                        Some((network, [one?, other?]))
                    });
                    found.extend(common);
                }
            }
        }
        for (_, children) in &mut found {
            children.sort_by_key(|(child, _)| std::ptr::from_ref(*child));
        }
        found.sort_by_key(|(network, _)| *network);
        found
    }

    /// Returns a child, and the line of its list, by the number of a row in the table of a list, or of descriptors.
    fn place(&self, list: Option<u32>, number: u32) -> Option<(&Child, Option<u32>)> {
        let (child, line) = list.map_or((number, None), |child| (child, Some(number)));
        Some((self.children.get(child as usize)?, line))
    }
}

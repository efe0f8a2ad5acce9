//! Builds the matcher's tree while rules are read, and lists its descriptors and their keys, by which a mistyped key is
//! found and a similar one suggested.

use std::iter;
use std::ptr;
use std::sync::Arc;

use super::{Child, Domain, MatcherNode, NodeFlags, Wildcard, hash};
use crate::model::reserve::Reserve;
use crate::model::rule::Rule;
use crate::model::value_set::{Item, ValueSet};
use crate::syntax::position::Origin;
use weir_common::entry::{Entry, rule_text};
use weir_common::glob;

/// The key of a descriptor of a rule file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DescriptorKey<'s> {
    Known(&'s str),
    /// Some start of this `key_value`, up to any `_`: a descriptor with a value and without a limit keeps no more.
    Within(&'s str),
}

impl<'s> DescriptorKey<'s> {
    /// Returns whether an entry with a key may match the descriptor. `start` is that key with a `_` after it.
    pub fn may_be(self, start: &str) -> bool {
        let (DescriptorKey::Known(text) | DescriptorKey::Within(text)) = self;
        match (text.split_once('*'), self) {
            // A star is any text, so that only what is before it counts.
            (Some((first, _)), _) => first.starts_with(start) || start.starts_with(first),
            (None, DescriptorKey::Known(key)) => start.strip_suffix('_') == Some(key),
            (None, DescriptorKey::Within(text)) => text.starts_with(start),
        }
    }

    /// Returns the key to suggest. Where only `key_value` is known, that is the part before the first `_`.
    pub fn suggested(self) -> &'s str {
        match self {
            DescriptorKey::Known(key) => key,
            DescriptorKey::Within(text) => text.split('_').next().unwrap_or(text),
        }
    }
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

    /// Returns the descriptor's key, and the keys that name a reservation of its rule.
    fn keys(&self) -> impl Iterator<Item = DescriptorKey<'_>> {
        let reserve = self.reserve().into_iter().flat_map(Reserve::keys);
        iter::once(self.key()).chain(reserve.map(DescriptorKey::Known))
    }

    fn key(&self) -> DescriptorKey<'_> {
        match self.rule.as_ref().and_then(|rule| rule.entries.last()) {
            Some((key, _)) => DescriptorKey::Known(key),
            None if self.flags.any_value => DescriptorKey::Known(&self.text),
            None => DescriptorKey::Within(&self.text),
        }
    }
}

impl Domain {
    /// Returns whether a descriptor that has `sent` among its entries may match a rule of the domain, and no other one.
    pub fn may_find(&self, rule: &Rule, sent: &[Entry<'_>]) -> bool {
        let mut node = &self.root;
        for (key, value) in rule.entries() {
            let Some(child) = node.of_entry((key, value)) else { return true };
            // With several entries of a key, each may be any of them.
            let is_only = rule.entries().filter(|(other, _)| *other == key).count() == 1;
            let leads = |value| node.child(key, value).is_some_and(|it| ptr::eq(it.child, child));
            if is_only && !sent.iter().all(|(other, value)| *other != key || leads(value)) {
                return false;
            }
            node = &child.below;
        }
        true
    }
}

impl MatcherNode {
    /// Adds a child; none if the node has one with that text.
    pub(crate) fn add(
        &mut self,
        text: String,
        flags: NodeFlags,
        set: Option<Arc<ValueSet>>,
        origin: Origin,
    ) -> Option<(&mut Option<Arc<Rule>>, &mut MatcherNode)> {
        if self.holder(&text).is_some() {
            return None;
        }
        let index = self.children.len() as u32;
        let is_set = set.is_some();
        let mut add_wildcard = |item, text: &str| {
            let parts = glob::parts(text);
            self.wildcards.push(Wildcard { child: index, item, parts });
        };
        if text.contains('*') && !is_set {
            add_wildcard(0, &text);
        }
        for (item, i) in set.iter().flat_map(|set| set.items()).zip(0..) {
            if item.text.contains('*') {
                let key = text.get(..flags.key_length as usize).unwrap_or_default();
                add_wildcard(i, &format!("{key}_{}", item.text));
            }
        }
        let (hash, length) = (hash(&[&text]), text.len());
        self.children.push(Child {
            text: text.into(),
            rule: None,
            flags,
            set,
            origin,
            below: MatcherNode::default(),
        });
        let children = &self.children;
        if is_set {
            self.sets.get_or_insert_default().add(children, index);
        } else {
            self.longest = self.longest.max(length);
            self.exact.insert_unique(hash, index, |&i| rehash(children, i));
        }
        let child = self.children.last_mut()?;
        Some((&mut child.rule, &mut child.below))
    }

    /// Returns the child with a text, or with an item of `values` that is this text with its key.
    pub(crate) fn holder(&self, text: &str) -> Option<&Child> {
        let with_item = || self.sets.as_ref()?.with_item(&self.children, text);
        self.named(text).or_else(with_item)
    }

    /// Returns the value that stands for the next `values` of a key in names.
    pub(crate) fn name_of_values(&mut self, key: &str) -> String {
        loop {
            let name = self.sets.get_or_insert_default().name_of_values(key);
            // A list in a file may have this name.
            if self.named(&format!("{key}_{name}")).is_none() {
                return name;
            }
        }
    }

    pub(crate) fn named(&self, text: &str) -> Option<&Child> {
        let has_text = |&i: &u32| *self.children[i as usize].text == *text;
        match self.exact.find(hash(&[text]), has_text) {
            Some(found) => self.children.get(*found as usize),
            None => self.sets.as_ref()?.named(&self.children, text),
        }
    }

    /// Returns the child of an entry of a rule.
    fn of_entry(&self, entry: Entry<'_>) -> Option<&Child> {
        self.named(&rule_text(entry))
    }

    pub(crate) fn wildcards(&self) -> usize {
        self.wildcards.len()
    }

    /// Returns the texts of the wildcards, in the order in which they are tried.
    pub(crate) fn wildcard_texts(&self) -> impl Iterator<Item = &str> {
        let children = self.wildcards.iter().map(|wildcard| wildcard.child as usize);
        children.filter_map(move |child| self.children.get(child)).map(|child| &*child.text)
    }

    pub(crate) fn children(&self) -> &[Child] {
        &self.children
    }

    /// Frees unused capacity, and builds the tables of networks and lists. Called once all children are added.
    pub(crate) fn shrink(&mut self) {
        self.children.shrink_to_fit();
        if let Some(sets) = &mut self.sets {
            sets.index(&self.children);
        }
        let children = &self.children;
        self.exact.shrink_to_fit(|&i| rehash(children, i));
        self.wildcards.shrink_to_fit();
    }

    /// Returns for each entry of a rule whether the values that it matches share the threshold.
    pub(crate) fn share_thresholds<'e>(
        &self,
        entries: impl Iterator<Item = Entry<'e>>,
    ) -> Vec<bool> {
        let mut node = Some(self);
        let shares = entries.map(|entry| {
            let child = node.and_then(|node| node.of_entry(entry));
            node = child.map(|child| &child.below);
            child.is_some_and(|child| child.flags.share_threshold)
        });
        shares.collect()
    }

    /// Returns the keys of the descriptors at all levels, each as often as it is there.
    pub(crate) fn keys(&self) -> impl Iterator<Item = DescriptorKey<'_>> {
        self.descendants().flat_map(Child::keys)
    }

    /// Returns the descriptors at all levels, in the order of the file.
    pub(crate) fn descendants(&self) -> impl Iterator<Item = &Child> {
        let mut levels = vec![self.children.iter()];
        iter::from_fn(move || {
            loop {
                match levels.last_mut()?.next() {
                    Some(child) => {
                        levels.push(child.below.children.iter());
                        return Some(child);
                    }
                    None => levels.pop(),
                };
            }
        })
    }
}

pub(crate) fn rehash(children: &[Child], index: u32) -> u64 {
    hash(&[&children[index as usize].text])
}

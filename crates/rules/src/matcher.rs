//! The matcher: a tree of rules that finds the rule of a descriptor.
//!
//! Each child of a node is identified by one text, `key` or `key_value`, as in the reference, so
//! `{key: a_b}` and `{key: a, value: b}` are equal. An entry is looked up as `key_value`, then among the
//! node's wildcards in file order, then as `key`. Exact children are found by hash, without
//! concatenating the text: a look-up does not allocate, and its cost does not depend on the number of
//! exact rules.

mod keys;
mod overlap;
mod trace;

pub(crate) use keys::DescriptorKey;
pub use trace::{Candidate, Level, Step, Trace};

use std::hash::Hasher;
use std::sync::Arc;

use hashbrown::HashTable;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::{Origin, Rule};
use weir_common::entry::Entry;
use weir_common::glob;

/// A node of the tree, with the children that the next entry may match.
#[derive(Debug, Default)]
pub(super) struct MatcherNode {
    children: Vec<Child>,
    /// Indices into `children`, by the hash of their text.
    exact: HashTable<u32>,
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
    /// The position of its key.
    origin: Origin,
    pub below: MatcherNode,
}

/// What a descriptor of a rule file says about its values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFlags {
    /// Whether all values that the wildcard matches are counted together.
    pub share_threshold: bool,
    /// Whether values that the node does not name distinguish metrics.
    pub value_to_metric: bool,
    /// Whether the descriptor has no value.
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
}

#[derive(Debug)]
struct Wildcard {
    child: u32,
    /// The literal parts around the stars: at least two.
    parts: Box<[Box<str>]>,
}

/// How an entry matches a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchKind {
    /// The entry matched by its key and its value.
    Value,
    Wildcard,
    /// The entry matched by its key alone.
    Key,
}

/// The rule that a descriptor matched.
#[derive(Clone, Copy, Debug)]
pub struct Found<'s> {
    pub rule: &'s Rule,
    /// Whether a pattern replaces a value in the key, because a wildcard has `share_threshold`.
    pub share_threshold: bool,
}

impl MatcherNode {
    /// Adds a child; none if the node has one with that text.
    pub(super) fn add(
        &mut self,
        text: String,
        flags: NodeFlags,
        origin: Origin,
    ) -> Option<(&mut Option<Arc<Rule>>, &mut MatcherNode)> {
        if self.origin(&text).is_some() {
            return None;
        }
        let index = self.children.len() as u32;
        if text.contains('*') {
            let parts = glob::parts(&text);
            self.wildcards.push(Wildcard { child: index, parts });
        }
        let hash = hash(&[&text]);
        self.longest = self.longest.max(text.len());
        self.children.push(Child {
            text: text.into(),
            rule: None,
            flags,
            origin,
            below: MatcherNode::default(),
        });
        let children = &self.children;
        self.exact.insert_unique(hash, index, |&i| rehash(children, i));
        let child = self.children.last_mut()?;
        Some((&mut child.rule, &mut child.below))
    }

    /// The position of the child with this text.
    pub(super) fn origin(&self, text: &str) -> Option<&Origin> {
        self.named(text).map(|child| &child.origin)
    }

    /// Returns the child with this text.
    pub(super) fn named(&self, text: &str) -> Option<&Child> {
        let is = |&i: &u32| *self.children[i as usize].text == *text;
        let found = self.exact.find(hash(&[text]), is)?;
        self.children.get(*found as usize)
    }

    /// The number of wildcards, which are tried one by one.
    pub(super) fn wildcards(&self) -> usize {
        self.wildcards.len()
    }

    /// Returns the texts of the wildcards, in the order in which they are tried.
    pub(super) fn wildcard_texts(&self) -> impl Iterator<Item = &str> {
        let children = self.wildcards.iter().map(|wildcard| wildcard.child as usize);
        children.filter_map(move |child| self.children.get(child)).map(|child| &*child.text)
    }

    /// The children, in the order of the file.
    pub(super) fn children(&self) -> &[Child] {
        &self.children
    }

    /// Frees unused capacity.
    pub(super) fn shrink(&mut self) {
        self.children.shrink_to_fit();
        let children = &self.children;
        self.exact.shrink_to_fit(|&i| rehash(children, i));
        self.wildcards.shrink_to_fit();
    }

    /// Finds the rule that all of `entries` lead to.
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<Found<'_>> {
        let mut share_threshold = false;
        let rule = self.walk(entries, |_, _| share_threshold = true)?;
        Some(Found { rule, share_threshold })
    }

    /// The entries of the key. Where a wildcard has `share_threshold`, its pattern replaces the value.
    pub(super) fn shared_entries<'a>(&'a self, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
        let mut shared = entries.to_vec();
        self.walk(entries, |i, pattern| shared[i].1 = pattern);
        shared
    }

    /// Returns for each entry of a rule whether the values that it matches share the threshold.
    pub(super) fn share_thresholds<'e>(
        &self,
        entries: impl Iterator<Item = Entry<'e>>,
    ) -> Vec<bool> {
        let mut node = Some(self);
        let shares = entries.map(|(key, value)| {
            let text = match value.is_empty() {
                true => key.to_owned(),
                false => format!("{key}_{value}"),
            };
            let child = node.and_then(|node| node.named(&text));
            node = child.map(|child| &child.below);
            child.is_some_and(|child| child.flags.share_threshold)
        });
        shares.collect()
    }

    /// Follows `entries` to their rule, and calls `share` for each value that a pattern replaces. There
    /// is no backtracking: an entry takes the first child that it matches.
    fn walk<'s>(
        &'s self,
        entries: &[Entry<'_>],
        mut share: impl FnMut(usize, &'s str),
    ) -> Option<&'s Rule> {
        let mut node = self;
        for (i, &(key, value)) in entries.iter().enumerate() {
            let (child, by_wildcard) = node.child(key, value)?;
            if by_wildcard && child.flags.share_threshold {
                let pattern = child.text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_'));
                share(i, pattern.unwrap_or(&child.text));
            }
            if i + 1 == entries.len() {
                return child.rule.as_deref();
            }
            node = &child.below;
        }
        None
    }

    /// Calls `part` with each entry, the text and the flags of the child that it matches, and how it
    /// matches.
    pub(super) fn each_match<'e>(
        &self,
        entries: &[Entry<'e>],
        mut part: impl FnMut(Entry<'e>, &str, NodeFlags, MatchKind),
    ) {
        let mut node = self;
        for &(key, value) in entries {
            let Some((child, by_wildcard)) = node.child(key, value) else { return };
            let kind = match by_wildcard {
                true => MatchKind::Wildcard,
                false if child.text.len() == key.len() => MatchKind::Key,
                false => MatchKind::Value,
            };
            part((key, value), &child.text, child.flags, kind);
            node = &child.below;
        }
    }

    /// Finds the child that an entry matches, and whether it is a wildcard.
    fn child(&self, key: &str, value: &str) -> Option<(&Child, bool)> {
        if self.children.is_empty() {
            return None;
        }
        let exact = |hash, is: &dyn Fn(&str) -> bool| {
            let found = self.exact.find(hash, |&i| is(&self.children[i as usize].text))?;
            self.children.get(*found as usize)
        };
        let joined = Joined { key: key.as_bytes(), value: value.as_bytes() };
        // Where rules name no values, this saves the hash.
        if joined.len() <= self.longest
            && let Some(child) = exact(hash(&[key, "_", value]), &|text| joined.is(text.as_bytes()))
        {
            return Some((child, false));
        }
        for wildcard in &self.wildcards {
            if joined.matches(&wildcard.parts) {
                return self.children.get(wildcard.child as usize).map(|child| (child, true));
            }
        }
        exact(hash(&[key]), &|text| text == key).map(|child| (child, false))
    }
}

fn rehash(children: &[Child], index: u32) -> u64 {
    hash(&[&children[index as usize].text])
}

/// Hashes the concatenation of texts. SipHash reads bytes as one stream, so boundaries between the texts
/// do not matter. Its key may be public, because only rules are inserted.
fn hash(texts: &[&str]) -> u64 {
    let mut hasher = SipHasher13::new();
    texts.iter().for_each(|text| hasher.write(text.as_bytes()));
    hasher.finish()
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

    fn at(self, i: usize) -> u8 {
        match i.checked_sub(self.key.len()) {
            None => self.key[i],
            Some(0) => b'_',
            Some(i) => self.value[i - 1],
        }
    }

    fn is(self, text: &[u8]) -> bool {
        text.len() == self.len()
            && text.starts_with(self.key)
            && text[self.key.len()] == b'_'
            && text.ends_with(self.value)
    }

    /// Whether `part` is at `from` and ends before `end`.
    fn has(self, part: &[u8], from: usize, end: usize) -> bool {
        from + part.len() <= end && part.iter().enumerate().all(|(i, &b)| self.at(from + i) == b)
    }

    /// Finds `part` between `from` and `end`. Linear in both, whatever a client sends.
    fn find(self, part: &[u8], from: usize, end: usize) -> Option<usize> {
        if part.is_empty() {
            return Some(from);
        }
        let last = end.checked_sub(part.len())?;
        let (keys, values) = (self.key.len(), self.key.len() + 1);
        if from < keys
            && let Some(at) = memmem::find(&self.key[from..keys.min(end)], part)
        {
            return Some(from + at);
        }
        // Across the boundary of key and value.
        let across = from.max(values.saturating_sub(part.len()))..=last.min(keys);
        if let Some(at) = across.into_iter().find(|&at| self.has(part, at, end)) {
            return Some(at);
        }
        let start = from.max(values);
        let value = self.value.get(start - values..end.checked_sub(values)?)?;
        memmem::find(value, part).map(|at| start + at)
    }

    /// Whether a value consists of the parts in order, with any text between them.
    fn matches(self, parts: &[Box<str>]) -> bool {
        let [first, middle @ .., last] = parts else { return false };
        let (first, last) = (first.as_bytes(), last.as_bytes());
        if first.len() + last.len() > self.len() {
            return false;
        }
        let end = self.len() - last.len();
        if !self.has(first, 0, end) || !self.has(last, end, self.len()) {
            return false;
        }
        let mut from = first.len();
        for part in middle {
            let part = part.as_bytes();
            match self.find(part, from, end) {
                Some(found) => from = found + part.len(),
                None => return false,
            }
        }
        true
    }
}

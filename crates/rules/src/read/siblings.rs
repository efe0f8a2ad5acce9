//! Merges siblings: descriptors of one level with the same key and value. Envoy Gateway sends such siblings, over xDS,
//! for two limits of one network; in files they are errors.
//!
//! Each field that siblings have in common must be equal. A sibling without a limit takes over fields that it lacks,
//! except those that also apply to the descriptors below. Siblings that do not fit are reported as duplicates.
//! docs/xds.md lists the rules.

use std::collections::HashMap;

use super::descriptor::Above;
use super::reader::{Merged, Reader};
use super::value_sets::SETS;
use crate::matcher::MatcherNode as Tree;
use crate::syntax::tree::{Content, Node};

/// The fields that also apply to the descriptors below.
const INHERITED: [&str; 2] = ["share_threshold", "value_to_metric"];

type Field<'n> = (&'n str, &'n Node<'n>);

/// A descriptor, and the siblings that are merged with it.
struct Siblings<'n> {
    first: &'n Node<'n>,
    others: Vec<&'n Node<'n>>,
    /// The fields of all, but for the descriptors below; empty while there are no others.
    fields: Vec<Field<'n>>,
}

impl<'n> Siblings<'n> {
    /// Adds a sibling, if it does not conflict with the others.
    fn add(&mut self, node: &'n Node<'n>) -> bool {
        if self.fields.is_empty() {
            self.fields = fields(self.first);
        }
        let more = fields(node);
        if !fits(&self.fields, &more) || !fits(&more, &self.fields) {
            return false;
        }
        for field in more {
            if get(&self.fields, field.0).is_none() {
                self.fields.push(field);
            }
        }
        self.others.push(node);
        true
    }
}

/// The fields of a descriptor, but for the descriptors below it.
fn fields<'n>(node: &'n Node<'n>) -> Vec<Field<'n>> {
    let Content::Map(entries) = node.content() else { return Vec::new() };
    let fields = entries.iter().filter_map(|(key, value)| Some((key.text()?, value)));
    fields.filter(|(key, _)| *key != "descriptors").collect()
}

fn get<'n>(fields: &[Field<'n>], name: &str) -> Option<&'n Node<'n>> {
    fields.iter().find(|(key, _)| *key == name).map(|(_, node)| *node)
}

/// Returns whether a descriptor with the `others` may take over each of the fields that it lacks.
fn fits(fields: &[Field<'_>], others: &[Field<'_>]) -> bool {
    let has_limit = ["rate_limit", "rate_limits"].iter().any(|key| get(others, key).is_some());
    fields.iter().all(|(key, node)| match get(others, key) {
        Some(other) => other == *node,
        None => !has_limit && !INHERITED.contains(key),
    })
}

/// Groups the descriptors of a level, each group at the place of its first one.
fn grouped<'n>(nodes: &[&'n Node<'n>]) -> Vec<Siblings<'n>> {
    let mut all: Vec<Siblings<'_>> = Vec::with_capacity(nodes.len());
    let mut places = HashMap::new();
    for &node in nodes {
        let text = |key| node.get(key).and_then(Node::text).unwrap_or_default();
        let is_set = SETS.iter().any(|key| node.get(key).is_some());
        let place = (!is_set).then(|| places.entry((text("key"), text("value"))));
        let place = place.map(|place| *place.or_insert(all.len()));
        if !place.and_then(|at| all.get_mut(at)).is_some_and(|first| first.add(node)) {
            all.push(Siblings { first: node, others: Vec::new(), fields: Vec::new() });
        }
    }
    all
}

impl Reader<'_> {
    pub(super) fn level<'n>(&mut self, nodes: &[&'n Node<'n>], above: &Above<'_>, tree: &mut Tree) {
        if !self.merges_siblings {
            return nodes.iter().for_each(|node| self.descriptor(node, &[], above, tree));
        }
        for Siblings { first, others, .. } in grouped(nodes) {
            if let Some(second) = others.first() {
                let merged = Merged { count: 0, position: second.position };
                self.merged.get_or_insert(merged).count += others.len();
            }
            self.descriptor(first, &others, above, tree);
        }
    }

    pub(super) fn report_merged(&mut self) {
        let Some(Merged { count, position }) = self.merged.take() else { return };
        let what =
            if count == 1 { "one descriptor is" } else { &format!("{count} descriptors are") };
        let message = format!("{what} merged with a sibling of the same key and value");
        let help = "send one descriptor with the limit and all that is below it";
        self.warn(position, message, "", help);
    }
}

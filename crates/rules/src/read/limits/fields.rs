//! The keys of one limit.

use std::collections::BTreeMap;

use super::super::Reader;
use crate::model::keys::Section;
use crate::syntax::position::Position;
use crate::syntax::tree::{Content, Node};
use weir_limit::Micros;

/// The keys of one limit.
pub(in super::super) struct Fields<'n> {
    pub position: Position,
    nodes: BTreeMap<&'static str, &'n Node<'n>>,
    /// Whether the limit is an item of `rate_limits`.
    pub listed: bool,
    /// Whether a key is unknown: it may be a missing one, misspelled.
    pub has_unknown: bool,
}

impl<'n> Fields<'n> {
    pub fn new(position: Position, nodes: BTreeMap<&'static str, &'n Node<'n>>) -> Fields<'n> {
        Fields { position, nodes, listed: false, has_unknown: false }
    }

    pub fn into_nodes(self) -> BTreeMap<&'static str, &'n Node<'n>> {
        self.nodes
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'n Node<'n>)> {
        self.nodes.iter().map(|(key, node)| (*key, *node))
    }

    pub fn get(&self, key: &str) -> Option<&'n Node<'n>> {
        self.nodes.get(key).copied()
    }

    /// The position of a key's value, or of the limit if the key is absent.
    pub fn position(&self, key: &str) -> Position {
        self.get(key).map_or(self.position, |node| node.position)
    }

    pub fn text(&self, key: &str) -> String {
        self.get(key).map(Node::shown).unwrap_or_default()
    }
}

impl Reader<'_> {
    /// Collects the keys of a limit; those of later nodes override those of earlier ones.
    pub(super) fn limit_fields<'n>(
        &mut self,
        nodes: &[&'n Node<'n>],
        position: Position,
        section: Section,
    ) -> Fields<'n> {
        let mut fields = BTreeMap::new();
        for node in nodes {
            fields.extend(self.fields(node, section));
        }
        let is_unknown = |(key, _): &(Node<'_>, Node<'_>)| {
            !key.is_merge_key() && key.text().is_some_and(|key| !fields.contains_key(key))
        };
        let has_unknown = nodes.iter().any(
            |node| matches!(node.content(), Content::Map(items) if items.iter().any(is_unknown)),
        );
        Fields { position, nodes: fields, listed: section == Section::ListedLimit, has_unknown }
    }

    /// Reads a number, or returns `default` if the key is absent; none if the key cannot have it.
    pub(super) fn u32_or(&mut self, fields: &Fields<'_>, key: &str, default: u32) -> Option<u32> {
        fields.get(key).map_or(Some(default), |node| self.number(node, key))
    }

    /// Reads a duration, or returns `default` if the key is absent; none after an error.
    pub(super) fn duration_or(
        &mut self,
        fields: &Fields<'_>,
        key: &str,
        default: Micros,
    ) -> Option<Micros> {
        fields.get(key).map_or(Some(default), |node| self.duration(node, key))
    }
}

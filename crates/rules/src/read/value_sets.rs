//! Reads `network`, `values` or `values_file` of a descriptor, by which it matches many values, and how these count.

use std::collections::HashMap;

use super::descriptor::{Descriptor, Field};
use super::reader::Reader;
use super::rule_memory::item_bytes;
use crate::matcher::MatcherNode as Tree;
use crate::model::key::Section;
use crate::model::value_set::{Group, Item, SetKind, network_problem};
use crate::syntax::position::{Origin, Position};
use crate::syntax::problem::Problem;
use crate::syntax::tree::{Content, Node};
use weir_common::network::Network;

/// The keys that name several values.
pub(super) const SETS: [&str; 3] = ["network", "values", "values_file"];

/// A network, `values` or a list, with what the name of its rule has as the value, such as `@blocked.txt`.
pub(super) struct NamedSet {
    pub value: String,
    pub kind: SetKind,
    pub position: Position,
}

/// Returns the node of the key that names several values, if there is one.
pub(super) fn set_node<'n>(fields: &[Field<'n>]) -> Option<Field<'n>> {
    let last = fields.iter().rev().find(|(field, _)| SETS.contains(field));
    last.copied().filter(|(_, node)| !node.is_null())
}

impl Reader<'_> {
    /// Reads the networks, `values` or list of a descriptor, to be added to `tree`; none if it has none of them.
    pub(super) fn value_sets(
        &mut self,
        fields: &[Field<'_>],
        descriptor: &Descriptor,
        tree: &mut Tree,
    ) -> Option<Vec<NamedSet>> {
        let (field, node) = set_node(fields)?;
        let (key, value) = (&descriptor.key, &descriptor.value);
        let other = fields.iter().find(|(name, _)| SETS.contains(name) && *name != field);
        let other = other.filter(|(_, node)| !node.is_null()).map(|(name, _)| *name);
        if let Some(other) = other.or((!value.is_empty()).then_some("value")) {
            let message = format!("config error, both `{other}` and `{field}`");
            let help = "write two descriptors, each with one of them";
            self.error(node.position, message, &node.shown(), help);
            return Some(Vec::new());
        }
        if key.contains('*') {
            let message = format!("config error, `{field}` beside the key '{key}'");
            let help = format!("write the key without `*`: `{field}` matches values of one key");
            self.error(node.position, message, &node.shown(), &help);
            return Some(Vec::new());
        }
        Some(match field {
            "network" => self.networks(node),
            "values" => self.values(node, key, tree).into_iter().collect(),
            _ => self.list(node).into_iter().collect(),
        })
    }

    fn networks(&mut self, node: &Node<'_>) -> Vec<NamedSet> {
        let items = self.items(node, "network", "write networks such as 10.0.0.0/8");
        items.iter().filter_map(|item| self.network(item)).collect()
    }

    /// Returns the items of a list, or the one value in its place.
    fn items<'n>(&mut self, node: &'n Node<'n>, field: &str, help: &str) -> &'n [Node<'n>] {
        let Content::List(items) = node.content() else { return std::slice::from_ref(node) };
        if items.is_empty() {
            let message = format!("config error, `{field}` is an empty list");
            self.error(node.position, message, "", help);
        }
        items
    }

    /// Reads `values`. An item that another descriptor of the level has is an error, as two equal descriptors are.
    fn values(&mut self, node: &Node<'_>, key: &str, tree: &mut Tree) -> Option<NamedSet> {
        let nodes = self.items(node, "values", "write values such as `[GET, HEAD]`");
        let mut places: HashMap<Box<str>, Position> = HashMap::new();
        let mut items = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(item) = self.item(node) else { continue };
            self.spend(node.position, item_bytes(key, &item.text));
            let origin = |position| Origin { file: self.file.clone(), position };
            let same = places.insert(item.text.clone(), node.position).map(origin);
            let other = || tree.holder(&format!("{key}_{}", item.text));
            if let Some(first) = same.or_else(|| Some(other()?.origin.clone())) {
                let message = format!("config error, '{}' is there twice on this level", item.text);
                let help = "remove one of the two: a value of a key has one rule on its level";
                let problem = self.problem(node.position, message, &item.text, help);
                self.problems.push(problem.with_first(first));
                continue;
            }
            items.push(item);
        }
        let is_whole = !items.is_empty() && items.len() == nodes.len();
        let (kind, position) = (SetKind::Values(items.into()), node.position);
        is_whole.then(|| NamedSet { value: tree.name_of_values(key), kind, position })
    }

    fn item(&mut self, node: &Node<'_>) -> Option<Item> {
        let text = self.text(node, "values")?;
        if text.is_empty() {
            let help = "write a value; a descriptor without `value` and `values` matches all";
            self.error(node.position, "config error, an item of `values` is empty", "", help);
            return None;
        }
        let item = Item::read(&text);
        if let Err((message, help)) = &item {
            self.error(node.position, message, &text, help);
        }
        item.ok()
    }

    fn network(&mut self, node: &Node<'_>) -> Option<NamedSet> {
        let text = self.text(node, "network")?;
        let network = Network::parse(&text);
        if let Err(error) = &network {
            let (message, help) = network_problem(error);
            self.error(node.position, message, &text, &help);
        }
        let network = network.ok()?;
        let (value, kind) = (network.to_string(), SetKind::Network(network));
        Some(NamedSet { value, kind, position: node.position })
    }

    /// Reads text; where it is a map or a fraction, which is reported, returns what is written: it is not empty.
    pub(super) fn written(&mut self, node: &Node<'_>, field: &str) -> String {
        self.text(node, field).unwrap_or_else(|| node.shown())
    }

    /// Reads text; none for a map or a fraction, which is reported.
    fn text(&mut self, node: &Node<'_>, field: &str) -> Option<String> {
        let text = self.string(node, field);
        let is_text = !text.is_empty() || node.is_null() || node.text() == Some("");
        is_text.then_some(text)
    }

    fn list(&mut self, node: &Node<'_>) -> Option<NamedSet> {
        let name = self.text(node, "values_file")?;
        let lists = self.lists.as_mut()?;
        let (file, problems) = (&self.file, &mut *self.problems);
        let list = lists.list(file, &name, &mut |problem| match problem.position {
            Some(_) => problems.push(problem),
            None => {
                let problem = Problem { file: file.to_string(), ..problem };
                problems.push(problem.at(node.position).about(name.as_str()));
            }
        });
        let (value, kind) = (format!("@{name}"), SetKind::List(list));
        Some(NamedSet { value, kind, position: node.position })
    }

    pub(super) fn group(&mut self, node: &Node<'_>) -> Group {
        let mut group = Group::default();
        for (field, value) in self.fields(node, Section::Group) {
            let (length, max) = match field {
                "v4" => (&mut group.v4, 32),
                _ => (&mut group.v6, 128),
            };
            if value.is_null() {
                continue;
            }
            match u8::try_from(self.u32(value, field)) {
                Ok(number) if number <= max => *length = number,
                _ => {
                    let message = format!("config error, `{field}` is {}", value.shown());
                    let help = format!("write the length of a prefix, from 0 to {max}");
                    self.error(value.position, message, &value.shown(), &help);
                }
            }
        }
        group
    }

    /// Reports networks that two descriptors of a level have. The first `known` are compared with each other already.
    pub(super) fn equal_networks(&mut self, tree: &Tree, known: usize) {
        for (network, [(first, first_line), (second, second_line)]) in tree.equal_networks(known) {
            let place = |text: &str, line: Option<u32>| match line {
                Some(line) => format!("'{text}' (line {line})"),
                None => format!("'{text}'"),
            };
            let message = format!(
                "config error, the network {network} is in both {} and {}",
                place(&first.text, first_line),
                place(&second.text, second_line),
            );
            let help = "remove it from one of the two";
            let origin = &second.origin;
            let problem = Problem::of_file(&origin.file, message, help).at(origin.position);
            self.problems.push(problem.with_first(first.origin.clone()));
        }
    }
}

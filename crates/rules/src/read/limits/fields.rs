//! Collects the YAML keys of one limit with their nodes, to read the limit or for patches of an overlay to change it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::key::Section;
use crate::overlay::patch::{KeyNodes, LimitMaps};
use crate::read::reader::Reader;
use crate::syntax::position::Position;
use crate::syntax::tree::{Content, Node, Value};
use weir_limit::{Calendar, Micros, Unit};

pub(crate) const MAX_LIMITS: usize = 16;

pub(crate) struct Fields<'n> {
    pub position: Position,
    nodes: Nodes<'n>,
    /// Whether the limit is an item of `rate_limits`.
    pub listed: bool,
    /// Whether a key is unknown: it may be a missing one, misspelled.
    pub has_unknown: bool,
    /// Whether its `rate` is invalid, so that the limit has no number and no period.
    pub has_invalid_rate: bool,
}

type Nodes<'n> = BTreeMap<&'static str, Cow<'n, Node<'n>>>;

impl<'n> Fields<'n> {
    fn new(position: Position, nodes: Nodes<'n>) -> Fields<'n> {
        Fields { position, nodes, listed: false, has_unknown: false, has_invalid_rate: false }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Node<'n>)> {
        self.nodes.iter().map(|(key, node)| (*key, &**node))
    }

    pub fn get(&self, key: &str) -> Option<&Node<'n>> {
        self.nodes.get(key).map(|node| &**node)
    }

    /// Returns the position of a key's value, or of the limit if the key is absent.
    pub fn position(&self, key: &str) -> Position {
        self.get(key).map_or(self.position, |node| node.position)
    }

    pub fn text(&self, key: &str) -> String {
        self.get(key).map(Node::shown).unwrap_or_default()
    }
}

impl Reader<'_> {
    /// Collects the keys of a limit, those of the long form for `rate`. Later nodes override earlier ones.
    pub(super) fn limit_fields<'n>(
        &mut self,
        nodes: &[&'n Node<'n>],
        position: Position,
        section: Section,
    ) -> Fields<'n> {
        let mut fields = BTreeMap::new();
        for node in nodes {
            let read = self.fields(node, section).into_iter();
            fields.extend(read.map(|(key, node)| (key, Cow::Borrowed(node))));
        }
        let is_unknown = |(key, _): &(Node<'_>, Node<'_>)| {
            !key.is_merge_key() && key.text().is_some_and(|key| !fields.contains_key(key))
        };
        let has_unknown = nodes.iter().any(
            |node| matches!(node.content(), Content::Map(items) if items.iter().any(is_unknown)),
        );
        let has_invalid_rate = self.lengthen(&mut fields).is_none();
        let listed = section == Section::ListedLimit;
        Fields { position, nodes: fields, listed, has_unknown, has_invalid_rate }
    }

    /// Replaces `rate` by the keys of the long form; none after an error. It stays where it is an error by itself:
    /// in an unlimited rule and for an algorithm without a period.
    fn lengthen<'n>(&mut self, fields: &mut Nodes<'n>) -> Option<()> {
        // A value that a template leaves empty is not a burst of 0.
        fields.retain(|key, node| *key != "burst" || !node.is_null());
        let has = |key, value| fields.get(key).is_some_and(|node| node.value() == Some(value));
        if has("unlimited", Value::Bool(true)) || has("algorithm", Value::Text("concurrency")) {
            return Some(());
        }
        let Some(rate) = fields.remove("rate") else { return Some(()) };
        let others: Vec<&str> = fields.keys().copied().collect();
        for (key, node) in self.long_form(&rate, &others)? {
            fields.insert(key, Cow::Owned(node));
        }
        Some(())
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

    /// Returns the keys of `rate_limit` or `rate_limits`; none without limits.
    pub(crate) fn limit_maps<'n>(
        &mut self,
        rate_limit: &[&'n Node<'n>],
        rate_limits: Option<&'n Node<'n>>,
    ) -> Option<LimitMaps<'n>> {
        match rate_limits {
            Some(list) => {
                // Too many are reported with the list.
                let is_good = list.items().is_none_or(|items| items.len() <= MAX_LIMITS);
                let items = if is_good { self.maps(list, "rate_limits") } else { Vec::new() };
                let items = items.into_iter();
                let items = items.map(|item| self.key_nodes(&[item], Section::ListedLimit));
                Some(LimitMaps::Several(items.collect()))
            }
            None if rate_limit.is_empty() => None,
            None => Some(LimitMaps::One(self.key_nodes(rate_limit, Section::Limit))),
        }
    }

    fn key_nodes<'n>(&mut self, nodes: &[&'n Node<'n>], section: Section) -> KeyNodes<'n> {
        let fields = self.limit_fields(nodes, Position::default(), section);
        fields.nodes.into_iter().map(|(key, node)| (key, node.into_owned())).collect()
    }

    /// Checks the keys of limits that a patch sets, as far as it is possible without a rule.
    pub(crate) fn check_limit_keys(&mut self, position: Position, keys: &KeyNodes<'_>) {
        let set = keys.iter().filter(|(_, node)| !node.is_null());
        let set = set.map(|(key, node)| (*key, Cow::Borrowed(node))).collect();
        let fields = Fields::new(position, set);
        for (key, node) in fields.iter() {
            match key {
                "algorithm" => _ = self.algorithm_name(&fields),
                "unit" => {
                    let unit = self.string(node, key);
                    if node.text().is_some() && Unit::from_name(&unit).is_none() {
                        let unit_alone = BTreeMap::from([(key, Cow::Borrowed(node))]);
                        self.unit(&Fields::new(position, unit_alone), &unit);
                    }
                }
                "period" => _ = self.unit(&fields, ""),
                "align" => _ = self.choice(node, key, &[("epoch", ()), ("calendar", ())]),
                "time_zone" => {
                    let zone = self.string(node, key);
                    if let Err(error) = Calendar::new(Unit::Day, &zone) {
                        let message = format!("config error, {error}");
                        let help = "write an IANA name such as Europe/Berlin";
                        self.error(node.position, message, &zone, help);
                    }
                }
                "starts" => {
                    let calendar = |unit| Calendar::new(unit, "UTC").ok();
                    let calendars = [Unit::Month, Unit::Week, Unit::Day].into_iter();
                    self.starts(node, calendars.filter_map(calendar));
                }
                "replaces" => {
                    for item in self.maps(node, key) {
                        self.replaced_name(item, "");
                    }
                }
                _ => self.check_value(node, key),
            }
        }
    }
}

//! Reads limits as patches change them: the keys of each, without the places where they are written.

use std::collections::BTreeMap;

use super::super::Reader;
use super::MAX_LIMITS;
use super::fields::Fields;
use crate::model::keys::Section;
use crate::overlay::patch::{KeyNodes, LimitMaps};
use crate::syntax::position::Position;
use crate::syntax::tree::Node;
use weir_limit::{Calendar, Unit};

impl Reader<'_> {
    /// Returns the keys of `rate_limit` or `rate_limits`; none without limits.
    pub(in crate::read) fn limit_maps<'n>(
        &mut self,
        rate_limit: &[&'n Node<'n>],
        rate_limits: Option<&'n Node<'n>>,
    ) -> Option<LimitMaps<'n>> {
        match rate_limits {
            Some(list) => {
                // Too many are reported with the list.
                let is_good =
                    |list: &&Node<'_>| list.items().is_none_or(|items| items.len() <= MAX_LIMITS);
                let list = Some(list).filter(is_good);
                let items = list.map(|list| self.maps(list, "rate_limits")).unwrap_or_default();
                let items = items.into_iter();
                let items = items.map(|item| self.key_nodes(&[item], Section::ListedLimit));
                Some(LimitMaps::Several(items.collect()))
            }
            None if rate_limit.is_empty() => None,
            None => Some(LimitMaps::One(self.key_nodes(rate_limit, Section::Limit))),
        }
    }

    fn key_nodes<'n>(&mut self, nodes: &[&'n Node<'n>], section: Section) -> KeyNodes<'n> {
        let fields = self.limit_fields(nodes, Position::in_text(1, 1), section);
        fields.into_nodes().into_iter().map(|(key, node)| (key, node.clone())).collect()
    }

    /// Checks the keys of limits that a patch sets, as far as it is possible without a rule.
    pub(in crate::read) fn check_limit_keys(&mut self, position: Position, keys: &KeyNodes<'_>) {
        let set = keys.iter().filter(|(_, node)| !node.is_null());
        let set: BTreeMap<&'static str, &Node<'_>> = set.map(|(key, node)| (*key, node)).collect();
        let fields = Fields::new(position, set.clone());
        for (key, node) in set {
            match key {
                "algorithm" => {
                    self.algorithm_name(&fields);
                }
                "unit" => {
                    let unit = self.string(node, key);
                    if node.text().is_some() && Unit::from_name(&unit).is_none() {
                        self.unit(&Fields::new(position, BTreeMap::from([(key, node)])), &unit);
                    }
                }
                "period" => {
                    self.unit(&fields, "");
                }
                "align" => {
                    self.choice(node, key, &[("epoch", ()), ("calendar", ())]);
                }
                "time_zone" => {
                    let zone = self.string(node, key);
                    if let Err(error) = Calendar::new(Unit::Day, &zone) {
                        let message = format!("config error, {error}");
                        let help = "write an IANA name such as Europe/Berlin";
                        self.error(node.position, message, &zone, help);
                    }
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

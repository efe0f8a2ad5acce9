//! Turns `rate` and `rates`, the short form of limits, into the long form that `limits` reads, with `rate_limit`.

use std::collections::BTreeMap;

use super::descriptor::Field;
use super::limits::fields::MAX_LIMITS;
use super::reader::Reader;
use crate::model::key::{Key, Section};
use crate::overlay::patch::{KeyNodes, map};
use crate::rate::{Per, Rate};
use crate::syntax::tree::{Node, Style};

/// The keys of the long form that `rate` replaces.
pub(super) const LONG_KEYS: [&str; 4] = ["requests_per_unit", "unit", "unit_multiplier", "period"];

impl Reader<'_> {
    /// Takes the short form out of the fields of a descriptor. Returns the limits as `rate_limit` or `rate_limits`, in
    /// which `rate` is still written; none without a short form, and after an error.
    pub(super) fn limit_of_rate<'n>(
        &mut self,
        descriptor: &'n Node<'n>,
        fields: &mut Vec<Field<'n>>,
    ) -> Option<(&'static str, Node<'n>)> {
        let is_of_limit = |field: &str| {
            Key::find(field).is_some_and(|key| key.sections.contains(&Section::Limit))
        };
        if !fields.iter().any(|(field, _)| *field == "rates" || is_of_limit(field)) {
            return None;
        }
        let last = |name: &str| fields.iter().rfind(|(field, _)| *field == name).copied();
        let (rate, rates) = (last("rate"), last("rates"));
        let long = last("rate_limit").or(last("rate_limits"));
        let beside = fields.iter().find(|(field, _)| *field != "rate" && is_of_limit(field));
        let beside = beside.copied();
        // The last of each name counts: a merged map may have the others.
        let short: BTreeMap<_, _> =
            fields.extract_if(.., |(field, _)| *field == "rates" || is_of_limit(field)).collect();
        let both = |one: &str, other: &str| format!("config error, both `{one}` and `{other}`");
        let (node, message, help) = match (rate, rates, beside) {
            (Some((_, node)), Some(_), _) => {
                (node, both("rate", "rates"), "write all of them in `rates`".to_owned())
            }
            (Some((name, node)), ..) | (None, Some((name, node)), None) if long.is_some() => {
                let long = long.map_or("rate_limit", |(name, _)| name);
                let help = "remove one of the two, or write all limits in `rate_limits`, each as \
                            `- rate: 10/s`";
                (node, both(name, long), help.to_owned())
            }
            (Some((_, node)), None, _) => {
                // The reference ignores its keys of a limit in a descriptor: here they look as if they had an effect.
                let long = ["unit", "requests_per_unit"].into_iter();
                let long = long.filter_map(|key| Some((key, descriptor.get(key)?)));
                let entries = short.into_iter().chain(long).map(|(key, node)| (key, node.clone()));
                return Some(("rate_limit", map(node.position, entries.collect())));
            }
            (None, Some((_, list)), None) => return Some(("rate_limits", self.rates(list)?)),
            (None, Some(_), Some((name, node))) => {
                let value = node.shown();
                let help = format!(
                    "write `rate_limits`, with an item for each limit: `- {{ rate: 10/s, {name}: {value} }}`"
                );
                (node, format!("config error, `{name}` beside `rates`"), help)
            }
            (None, None, beside) => {
                let (name, node) = beside?;
                let help = "write it in `rate_limit`, or beside `rate`, such as `rate: 10/s`";
                let message = format!("config error, '{name}' does not belong here");
                (node, message, help.to_owned())
            }
        };
        self.error(node.position, message, &node.shown(), &help);
        None
    }

    /// Returns the items of `rates` as those of `rate_limits`; none if it is no list of their number.
    pub(super) fn rates<'n>(&mut self, list: &Node<'n>) -> Option<Node<'n>> {
        let items = list.items().unwrap_or_default();
        if !(1..=MAX_LIMITS).contains(&items.len()) {
            let message = match list.items() {
                Some(items) => format!("config error, {} items in `rates`", items.len()),
                None if list.is_null() => "config error, `rates` is empty".to_owned(),
                None => format!("config error, `rates` is {}", list.described()),
            };
            let help = format!("write 1 to {MAX_LIMITS} rates, such as `rates: [10/s, 800/d]`");
            self.error(list.position, message, &list.shown(), &help);
            return None;
        }
        let items = items.iter().map(|item| map(item.position, vec![("rate", item.clone())]));
        Some(Node::list(list.position, items.collect()))
    }

    /// Returns the keys of a limit that a `rate` stands for. `others` are the keys beside it. None after an error.
    pub(super) fn long_form(
        &mut self,
        node: &Node<'_>,
        others: &[&str],
    ) -> Option<KeyNodes<'static>> {
        let rate = match node.text().map(str::parse::<Rate>) {
            Some(Ok(rate)) => rate,
            failed => {
                let help = match failed {
                    Some(Err(help)) => help,
                    _ if node.items().is_some() => "write several limits as `rates`".to_owned(),
                    _ => "write a text such as 10/s; a limit with other keys is a `rate_limit`, or an item of \
                          `rate_limits`"
                        .to_owned(),
                };
                let what = if node.is_null() { "empty".to_owned() } else { node.described() };
                let message = format!("config error, `rate` is {what}");
                self.error(node.position, message, &node.shown(), &help);
                return None;
            }
        };
        if let Some(other) = LONG_KEYS.iter().find(|key| others.contains(key)) {
            let message = format!("config error, both `rate` and `{other}`");
            let help =
                format!("remove one of the two: `rate: {rate}` is the number and the period");
            self.error(node.position, message, &node.shown(), &help);
            return None;
        }
        let scalar = |text: String, style| Node::scalar(node.position, text, style);
        let period = match rate.per {
            Per::Unit(unit) => ("unit", scalar(unit.name().to_owned(), Style::Text)),
            Per::Seconds(seconds) => ("period", scalar(format!("{seconds}s"), Style::Text)),
        };
        let mut keys =
            vec![("requests_per_unit", scalar(rate.n.to_string(), Style::Plain)), period];
        if others.contains(&"burst") && !others.contains(&"algorithm") {
            keys.push(("algorithm", scalar("gcra".to_owned(), Style::Text)));
        }
        Some(keys)
    }
}

//! The types of a descriptor in a rule file while it is read: its YAML nodes, and then the values of its keys.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use super::limits::LimitFields;
use super::rule_memory::{BAN_BYTES, RESERVE_BYTES};
use crate::model::reserve::Reserve;
use crate::model::rule::Metadata;
use crate::model::value_set::{Group, SetKind};
use crate::syntax::position::Position;
use crate::syntax::tree::Node;
use weir_common::entry::rule_text;
use weir_limit::Ban;

/// A key of a YAML map, and the node of its value.
pub(super) type Field<'n> = (&'static str, &'n Node<'n>);

/// The values of a descriptor's keys, without the descriptors below it.
#[derive(Default)]
pub(super) struct Descriptor {
    pub key: String,
    pub value: String,
    pub key_position: Position,
    pub set: Option<SetKind>,
    pub rate_limit: Option<LimitFields>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub detailed_metric: bool,
    pub value_to_metric: bool,
    pub share_threshold: bool,
    pub group: Group,
    pub metadata: Option<Metadata>,
    pub reserve: Option<Box<Reserve>>,
    pub ban: Option<Ban>,
    pub lease: bool,
}

impl Descriptor {
    /// `key` or `key_value`.
    pub fn text(&self) -> String {
        rule_text((&self.key, &self.value))
    }

    /// The size of its limits, of what it reserves of them and of its bans; none without limits.
    pub fn limit_bytes(&self) -> Option<usize> {
        let limits = self.rate_limit.as_ref()?.bytes();
        let reserve = self
            .reserve
            .as_ref()
            .map_or(0, |reserve| RESERVE_BYTES + reserve.keys().map(str::len).sum::<usize>());
        let ban = self.ban.as_ref().map_or(0, |ban| BAN_BYTES + limits + 8 * ban.lengths.len());
        Some(limits + reserve + ban)
    }
}

/// A descriptor as it is written.
pub(super) struct DescriptorNode<'n> {
    pub position: Position,
    pub fields: Vec<Field<'n>>,
    pub below: Rc<Below<'n>>,
    /// Whether the numbers of `reserve` are cut to the limits, which a patch may have lowered, or too large ones are errors.
    pub cuts_reserve: bool,
}

pub(super) struct Below<'n> {
    pub nodes: Vec<&'n Node<'n>>,
    /// The keys of the descriptors, once they are asked for.
    pub keys: OnceCell<HashSet<String>>,
}

/// The entries that lead to a descriptor, and the name that they form.
pub(super) struct Above<'a> {
    pub name: &'a str,
    pub domain: &'a str,
    pub entries: &'a [(Arc<str>, Arc<str>)],
    pub value_to_metric: bool,
}

/// The values of `rate_limit` and of `rate_limits` among the fields of a descriptor.
pub(super) fn limit_nodes<'n>(fields: &[Field<'n>]) -> (Vec<&'n Node<'n>>, Option<&'n Node<'n>>) {
    let (mut rate_limit, mut rate_limits) = (Vec::new(), None);
    for &(field, node) in fields {
        match field {
            // A later null removes the rate limit, as in the reference.
            "rate_limit" if node.is_null() => rate_limit.clear(),
            "rate_limit" => rate_limit.push(node),
            "rate_limits" => rate_limits = Some(node),
            _ => {}
        }
    }
    (rate_limit, rate_limits)
}

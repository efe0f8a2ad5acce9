//! Reads `reserve` of a rule (charge an estimate, correct it later). Checks it against limits and descriptors below.

use std::collections::HashSet;

use super::descriptor::DescriptorNode;
use super::limits::LimitFields;
use super::reader::Reader;
use crate::model::key::Section;
use crate::model::reserve::{Reserve, default_at_most};
use crate::syntax::position::Position;
use crate::syntax::problem::Problems;
use crate::syntax::tree::{Node, Value};
use weir_common::duration::read_duration;
use weir_limit::smallest_capacity;

/// The keys of `reserve`, each with the position of its value; none if absent or invalid.
#[derive(Default)]
pub(super) struct ReserveFields {
    id: Option<(String, Position)>,
    settle: Option<(String, Position)>,
    estimate: Option<(u32, Position)>,
    at_least: Option<(u32, Position)>,
    at_most: Option<(u32, Position)>,
    timeout: Option<u32>,
}

impl Reader<'_> {
    /// Reads the keys of `reserve`, and checks what does not depend on the rule.
    pub(super) fn reserve_fields(&mut self, node: &Node<'_>) -> ReserveFields {
        let mut read = ReserveFields::default();
        let (mut has_id, mut has_hits) = (false, false);
        for (field, value) in self.fields(node, Section::Reserve) {
            if value.is_null() {
                continue;
            }
            match field {
                "id" => (has_id, read.id) = (true, self.entry_key(value, field)),
                "settle" => (has_hits, read.settle) = (true, self.entry_key(value, field)),
                "estimate" => (has_hits, read.estimate) = (true, self.hits(value, field)),
                "at_least" => read.at_least = self.hits(value, field),
                "at_most" => read.at_most = self.hits(value, field),
                _ => read.timeout = self.settling_time(value, field),
            }
        }
        if !has_id {
            let help = "write `id: KEY`, the key of the entry that names a reservation, such as \
                        request_id";
            self.error(node.position, "config error, `reserve` without `id`", "", help);
        }
        if !has_hits {
            let message = "config error, `reserve` without `estimate` and `settle`";
            let help = "write `settle: KEY`, the key of the entry that marks a settling call, or \
                        `estimate: N`, the hits that are reserved where the caller sends none";
            self.error(node.position, message, "", help);
        }
        if let (Some((id, _)), Some((settle, position))) = (&read.id, &read.settle)
            && id == settle
        {
            let message = format!("config error, `settle` is '{settle}', as `id`");
            let help = "write the key of another entry, which only settling calls have";
            self.error(*position, message, settle, help);
        }
        self.check_order(&read);
        read
    }

    fn entry_key(&mut self, node: &Node<'_>, field: &str) -> Option<(String, Position)> {
        let is_text = node.text().is_some();
        let key = self.string(node, field);
        if key.is_empty() && is_text {
            let message = format!("config error, `{field}` is empty");
            let help = format!("write `{field}: KEY`, the key of an entry");
            self.error(node.position, message, "", &help);
        }
        (!key.is_empty()).then_some((key, node.position))
    }

    /// Reads a number of hits, at least 1.
    fn hits(&mut self, node: &Node<'_>, field: &str) -> Option<(u32, Position)> {
        if node.value() == Some(Value::Int(0)) {
            let message = format!("config error, `{field}` is 0");
            self.error(node.position, message, "0", "write 1 to 4294967295");
            return None;
        }
        Some((self.u32(node, field), node.position)).filter(|(hits, _)| *hits > 0)
    }

    /// Reads how long a reservation can be settled, in seconds.
    fn settling_time(&mut self, node: &Node<'_>, field: &str) -> Option<u32> {
        let text = self.string(node, field);
        let whole = read_duration(&text).filter(|time| time.subsec_nanos() == 0);
        let seconds = whole.and_then(|time| u32::try_from(time.as_secs()).ok());
        let seconds = seconds.filter(|seconds| (1..=Reserve::MAX_TIMEOUT).contains(seconds));
        if seconds.is_none() && node.text().is_some() {
            let message = format!("config error, `{field}` is '{text}'");
            let help = "write whole seconds from 1s to 24h, such as 90s, 15m or 1h";
            self.error(node.position, message, &text, help);
        }
        seconds
    }

    /// Reports `at_least`, `estimate` and `at_most` that are not in this order.
    fn check_order(&mut self, read: &ReserveFields) {
        let (least, estimate) = (("at_least", read.at_least), ("estimate", read.estimate));
        let above = [(estimate, vec![least]), (("at_most", read.at_most), vec![least, estimate])];
        for ((field, number), below) in above {
            let Some((number, position)) = number else { continue };
            let below = below.into_iter().filter_map(|(key, other)| Some((key, other?.0)));
            let Some((key, other)) = below.max_by_key(|(_, other)| *other) else { continue };
            if number < other {
                let message = format!("config error, `{field}` is {number}, `{key}` is {other}");
                let help = format!("write `{field}: {other}` or more, or lower `{key}`");
                self.error(position, message, &number.to_string(), &help);
            }
        }
    }

    /// Reads the `reserve` of a descriptor with that key and these limits; none after an error.
    pub(super) fn reserve(
        &mut self,
        node: &Node<'_>,
        descriptor: &DescriptorNode<'_>,
        key: &str,
        limits: Option<&LimitFields>,
    ) -> Option<Box<Reserve>> {
        let read = self.reserve_fields(node);
        self.check_keys_below(&read, descriptor);
        let Some(limits) = limits else {
            let help = "write `rate_limit` or `rate_limits` beside it, or remove it";
            self.error(node.position, "config error, `reserve` without a limit", "", help);
            return None;
        };
        // Invalid limits are reported, and tell no capacity.
        if limits.limits.is_empty() || limits.limits.len() < limits.places.len() {
            return None;
        }
        let capacity = smallest_capacity(&limits.limits);
        if !descriptor.cuts_reserve {
            self.check_capacity(&read, capacity);
        }
        let id = read.id?.0;
        let number = |field: Option<(u32, Position)>| field.map(|(number, _)| number);
        let (at_least, estimate) = (number(read.at_least).unwrap_or(1), number(read.estimate));
        let default = || default_at_most(&limits.limits, at_least, estimate);
        let mut reserve = Reserve {
            has_own_id: id == key,
            id: id.into(),
            settle: read.settle.map(|(settle, _)| settle.into()),
            estimate,
            at_least,
            at_most: number(read.at_most).unwrap_or_else(default),
            timeout: read.timeout.unwrap_or(Reserve::DEFAULT_TIMEOUT),
        };
        reserve.cut_to(capacity);
        Some(Box::new(reserve))
    }

    /// Reports numbers that the smallest of the limits never allows. Limits that deny all allow none.
    fn check_capacity(&mut self, read: &ReserveFields, capacity: u64) {
        let numbers =
            [("at_least", read.at_least), ("estimate", read.estimate), ("at_most", read.at_most)];
        for (field, number) in numbers {
            let Some((number, position)) = number else { continue };
            if capacity > 0 && u64::from(number) > capacity {
                let message =
                    format!("config error, `{field}` is {number}, but a limit allows {capacity}");
                let help = format!("write `{field}: {capacity}` or less, or raise the limit");
                self.error(position, message, &number.to_string(), &help);
            }
        }
    }

    /// Reports `id` and `settle` that are keys of descriptors below: such an entry belongs to the rule that reserves.
    fn check_keys_below(&mut self, read: &ReserveFields, descriptor: &DescriptorNode<'_>) {
        let below = &descriptor.below;
        let keys = below.keys.get_or_init(|| self.keys_of(&below.nodes));
        for (field, key) in [("id", &read.id), ("settle", &read.settle)] {
            let Some((key, position)) = key else { continue };
            if keys.contains(key) {
                let message =
                    format!("config error, `{field}` is '{key}', the key of a descriptor below");
                let help = "write the key of another entry, or move the descriptor below elsewhere";
                self.error(*position, message, key, help);
            }
        }
    }

    /// Returns the keys of descriptors. Their problems are reported when they are read.
    fn keys_of(&self, descriptors: &[&Node<'_>]) -> HashSet<String> {
        let mut problems = Problems::new(1);
        let mut reader = self.quiet(&mut problems);
        let mut key = |descriptor: &&Node<'_>| {
            let fields = reader.fields(descriptor, Section::Descriptor);
            let (_, node) = fields.into_iter().rev().find(|(field, _)| *field == "key")?;
            node.text().map(str::to_owned)
        };
        descriptors.iter().filter_map(&mut key).collect()
    }
}

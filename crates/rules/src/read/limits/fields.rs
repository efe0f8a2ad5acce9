//! The keys of one limit, and which algorithms take them.

use std::collections::BTreeMap;

use super::super::super::keys::Section;
use super::super::super::position::Position;
use super::super::super::tree::Node;
use super::super::Reader;
use super::super::values::text_of;
use weir_common::suggest::nearest;

/// An algorithm as rule files name it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum AlgorithmName {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    BucketedWindow,
    TokenBucket,
    LeakyBucket,
    Gcra,
    Concurrency,
}

use AlgorithmName::{
    BucketedWindow, Concurrency, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow,
    TokenBucket,
};

const NAMES: [(&str, AlgorithmName); 8] = [
    ("fixed_window", FixedWindow),
    ("sliding_window", SlidingWindow),
    ("sliding_log", SlidingLog),
    ("bucketed_window", BucketedWindow),
    ("token_bucket", TokenBucket),
    ("leaky_bucket", LeakyBucket),
    ("gcra", Gcra),
    ("concurrency", Concurrency),
];

const WITH_PERIOD: &[AlgorithmName] =
    &[FixedWindow, SlidingWindow, SlidingLog, BucketedWindow, TokenBucket, LeakyBucket, Gcra];

/// Keys that only some algorithms take, with those algorithms.
pub(super) const RESTRICTED: &[(&str, &[AlgorithmName])] = &[
    ("unit", WITH_PERIOD),
    ("unit_multiplier", WITH_PERIOD),
    ("period", WITH_PERIOD),
    ("burst", &[TokenBucket, LeakyBucket, Gcra]),
    ("refill_amount", &[TokenBucket]),
    ("refill_interval", &[TokenBucket]),
    ("strict", &[TokenBucket]),
    ("buckets", &[BucketedWindow]),
    (
        "charge_denied",
        &[FixedWindow, SlidingWindow, BucketedWindow, TokenBucket, LeakyBucket, Gcra, Concurrency],
    ),
    ("max_debt", &[TokenBucket, LeakyBucket, Gcra]),
    ("hold_id", &[Concurrency]),
    ("hold_timeout", &[Concurrency]),
    ("align", &[FixedWindow]),
    ("time_zone", &[FixedWindow]),
];

/// The keys of one limit.
pub(in super::super) struct Fields<'n> {
    pub position: Position,
    nodes: BTreeMap<&'static str, &'n Node<'n>>,
    /// Whether the limit is an item of `rate_limits`.
    pub listed: bool,
}

impl<'n> Fields<'n> {
    pub fn new(position: Position, nodes: BTreeMap<&'static str, &'n Node<'n>>) -> Fields<'n> {
        Fields { position, nodes, listed: false }
    }

    pub fn into_nodes(self) -> BTreeMap<&'static str, &'n Node<'n>> {
        self.nodes
    }

    pub fn get(&self, key: &str) -> Option<&'n Node<'n>> {
        self.nodes.get(key).copied()
    }

    /// The position of a key's value, or of the limit if the key is absent.
    pub fn position(&self, key: &str) -> Position {
        self.get(key).map_or(self.position, |node| node.position)
    }

    pub fn text(&self, key: &str) -> String {
        self.get(key).map(text_of).unwrap_or_default()
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
        Fields { position, nodes: fields, listed: section == Section::ListedLimit }
    }

    /// A number, or `default` if the key is absent.
    pub(super) fn u32_or(&mut self, fields: &Fields<'_>, key: &str, default: u32) -> u32 {
        fields.get(key).map_or(default, |node| self.u32(node, key))
    }

    /// Reads `algorithm`. Keys that it does not take are errors.
    pub(super) fn algorithm_name(&mut self, fields: &Fields<'_>) -> Option<AlgorithmName> {
        let text = match fields.get("algorithm") {
            Some(node) => self.string(node, "algorithm"),
            None => "fixed_window".to_owned(),
        };
        let Some(&(name, algorithm)) = NAMES.iter().find(|(name, _)| *name == text) else {
            let names = NAMES.map(|(name, _)| name);
            let help = match nearest(&text, names.into_iter()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", names.join(", ")),
            };
            let message = format!("config error, there is no algorithm '{text}'");
            self.error(fields.position("algorithm"), message, &text, &help);
            return None;
        };
        let refused = RESTRICTED.iter().filter(|(_, takers)| !takers.contains(&algorithm));
        for (key, takers) in refused {
            if let Some(node) = fields.get(key) {
                let takers = NAMES.iter().filter(|(_, name)| takers.contains(name));
                let takers: Vec<&str> = takers.map(|(name, _)| *name).collect();
                let message = format!("config error, {name} takes no `{key}`");
                let help = format!("remove it; it is for {}", takers.join(", "));
                self.error(node.position, message, &text_of(node), &help);
            }
        }
        Some(algorithm)
    }
}

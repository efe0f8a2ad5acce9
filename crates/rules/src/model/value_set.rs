//! The values that a descriptor matches, and how an entry matched.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::value_list::ValueList;
use weir_common::network::Network;

/// The values that a descriptor matches, if it has `network` or `values_file`.
#[derive(Clone, Debug)]
pub(crate) struct ValueSet {
    pub kind: SetKind,
    pub group: Group,
}

#[derive(Clone, Debug)]
pub(crate) enum SetKind {
    Network(Network),
    List(Arc<ValueList>),
}

/// The lengths of the prefixes by which addresses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub v4: u8,
    pub v6: u8,
}

impl Default for Group {
    fn default() -> Self {
        Group { v4: 32, v6: 128 }
    }
}

impl Group {
    /// Returns the network by which another one is counted that matched by a prefix of this length. It is never
    /// larger than that: it may be the network of another descriptor.
    pub(crate) fn of(self, network: &Network, matched_len: u8) -> Network {
        network.truncate(self.v4.max(matched_len), self.v6.max(matched_len))
    }
}

impl ValueSet {
    /// The list, and not a network.
    pub fn list(&self) -> Option<&ValueList> {
        match &self.kind {
            SetKind::List(list) => Some(list),
            SetKind::Network(_) => None,
        }
    }

    /// Returns how entries match the set.
    pub fn match_kind(&self) -> MatchKind {
        match self.kind {
            SetKind::Network(_) => MatchKind::Network,
            SetKind::List(_) => MatchKind::List,
        }
    }
}

/// How an entry matches a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchKind {
    /// The entry matched by its key and its value.
    Value,
    /// The value lies in the network of the descriptor.
    Network,
    /// The value is in the list of the descriptor.
    List,
    Wildcard,
    /// The entry matched by its key alone.
    Key,
}

impl MatchKind {
    /// Whether only one value, or any, is meant: neither a pattern nor a set of values.
    pub(crate) fn is_exact(self) -> bool {
        matches!(self, MatchKind::Value | MatchKind::Key)
    }
}

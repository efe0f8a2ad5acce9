//! Rows by the networks of their entries: for each key a hash table, which is asked once for each length of
//! prefix that it has. So the cost of a look-up does not grow with the number of networks.

use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use rpds::HashTrieMapSync;

use super::{Bucket, Map, Row};
use weir_common::network::Network;

/// Rows by a key and a network. A clone shares everything with the original.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks(Map<NetworksOfKey>);

#[derive(Clone, Debug, Default)]
struct NetworksOfKey {
    buckets: HashTrieMapSync<Network, Bucket, DefaultHashBuilder>,
    /// The lengths of the prefixes of IPv4 and of IPv6 in `buckets`, and some that were.
    lengths: [Vec<u8>; 2],
}

impl NetworksOfKey {
    /// Returns the lengths of the prefixes of the kind of a network.
    fn lengths(&self, network: &Network) -> &[u8] {
        let [v4, v6] = &self.lengths;
        if network.address().is_ipv4() { v4 } else { v6 }
    }
}

impl Networks {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the rows of a network.
    pub fn bucket(&self, key: &str, network: &Network) -> &[Arc<Row>] {
        self.0.get(key).and_then(|of_key| of_key.buckets.get(network)).map_or(&[], |rows| &**rows)
    }

    pub fn set_bucket(&mut self, key: &str, network: Network, bucket: Bucket) {
        let mut of_key = self.0.get(key).cloned().unwrap_or_default();
        if bucket.is_empty() {
            of_key.buckets.remove_mut(&network);
        } else {
            let prefix_len = network.prefix_len();
            if !of_key.lengths(&network).contains(&prefix_len) {
                let [v4, v6] = &mut of_key.lengths;
                if network.address().is_ipv4() { v4 } else { v6 }.push(prefix_len);
            }
            of_key.buckets.insert_mut(network, bucket);
        }
        match of_key.buckets.is_empty() {
            true => drop(self.0.remove_mut(key)),
            false => self.0.insert_mut(key.into(), of_key),
        }
    }

    /// Returns the rows of each network that contains a value: an address, or a network. Does not allocate.
    pub fn around(&self, key: &str, value: &str) -> impl Iterator<Item = &[Arc<Row>]> {
        let of_key = self.0.get(key);
        let found = of_key.and_then(|of_key| Some((of_key, Network::from_value(value)?)));
        found.into_iter().flat_map(|(of_key, network)| {
            let lengths = of_key.lengths(&network).iter();
            let lengths = lengths.filter(move |length| **length <= network.prefix_len());
            lengths.filter_map(move |&length| {
                of_key.buckets.get(&network.truncate(length, length)).map(|bucket| &**bucket)
            })
        })
    }

    /// Returns all buckets.
    #[cfg(test)]
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.0.values().flat_map(|of_key| of_key.buckets.values())
    }
}

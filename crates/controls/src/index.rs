//! Finds the controls (blocks, allows and limits of operators) that match a descriptor: each decision asks it.
//!
//! Each control is found by one of its entries with a text or a network, the one that finds the fewest others,
//! in persistent hash tables; a control without one is compared with every descriptor. So the cost of a look-up
//! does not grow with the number of controls: for each entry, a hash of its key, and of its value only if a
//! control has that key. Values are read as addresses only if a control has a network for their key. A clone
//! shares everything with the original, and changing one control copies the path to its bucket: that costs the
//! logarithm of the number of controls.

mod row;

pub(super) use self::row::{Bucket, Map, Place, Row, specificity};

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use rpds::HashTrieMapSync;

use self::row::places;
use super::control::Control;
use super::pattern::Pattern;
use weir_common::entry::Entry;
use weir_common::network::Network;
use weir_limit::Micros;

/// Controls by what they match.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// The keys of `buckets`, and some that were: most descriptors have none of them.
    keys: KeyFilter,
    /// By the key and the value of an entry.
    buckets: Map<Map<Bucket>>,
    /// By the key and the network of an entry.
    pub networks: Networks,
    /// The rows of which all values have a `*`.
    compared: Bucket,
}

const FILTER_WORDS: usize = 4;

/// A set of keys that may seem to have others: a bit for each hash. Asked first: tables take several times as long.
#[derive(Clone, Debug, Default)]
struct KeyFilter {
    words: [u64; FILTER_WORDS],
    /// Hashes keys with a secret of its own.
    hasher: DefaultHashBuilder,
}

impl KeyFilter {
    #[inline]
    fn place(&self, key: &str) -> (usize, u64) {
        let hash = self.hasher.hash_one(key);
        ((hash >> 6) as usize % FILTER_WORDS, 1 << (hash % 64))
    }

    fn insert(&mut self, key: &str) {
        let (word, bit) = self.place(key);
        self.words[word] |= bit;
    }

    #[inline]
    fn may_have(&self, key: &str) -> bool {
        let (word, bit) = self.place(key);
        self.words[word] & bit > 0
    }
}

impl Index {
    /// Inserts a row. Returns it as it is found.
    pub fn insert(&mut self, mut row: Row) -> Arc<Row> {
        let places = places(&row.control, &row.patterns);
        let fewest = places.min_by_key(|(_, place)| self.bucket(*place).len());
        row.found_by = fewest.map(|(position, _)| position);
        let row = Arc::new(row);
        let old = self.bucket(row.place());
        let (before, after) =
            old.split_at(old.partition_point(|other| other.order() < row.order()));
        let bucket = before.iter().chain([&row]).chain(after).cloned().collect();
        self.set_bucket(&row, bucket);
        row
    }

    pub fn remove(&mut self, row: &Row) {
        let others = self.bucket(row.place()).iter();
        let others = others.filter(|other| other.control.id != row.control.id).cloned().collect();
        self.set_bucket(row, others);
    }

    pub fn bucket(&self, place: Place<'_>) -> &[Arc<Row>] {
        match place {
            Place::Text(entry) => self.text_bucket(entry),
            Place::Network(key, network) => self.networks.bucket(key, &network),
            Place::Compared => &self.compared,
        }
    }

    #[inline]
    fn text_bucket(&self, (key, value): Entry<'_>) -> &[Arc<Row>] {
        if !self.keys.may_have(key) {
            return &[];
        }
        self.buckets.get(key).and_then(|values| values.get(value)).map_or(&[], |rows| &**rows)
    }

    fn set_bucket(&mut self, row: &Row, bucket: Bucket) {
        let (key, value) = match row.place() {
            Place::Text(entry) => entry,
            Place::Network(key, network) => return self.networks.set_bucket(key, network, bucket),
            Place::Compared => return self.compared = bucket,
        };
        self.keys.insert(key);
        let mut values = self.buckets.get(key).cloned().unwrap_or_default();
        match bucket.is_empty() {
            true => drop(values.remove_mut(value)),
            false => values.insert_mut(value.into(), bucket),
        }
        match values.is_empty() {
            true => drop(self.buckets.remove_mut(key)),
            false => self.buckets.insert_mut(key.into(), values),
        }
    }

    /// Returns the first control that matches, has not expired, and is accepted. Calls `now` only for those that end.
    pub fn find(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        mut now: impl FnMut() -> Micros,
        mut accepts: impl FnMut(&Row) -> bool,
    ) -> Option<&Row> {
        let mut best: Option<&Row> = None;
        let mut applies = |row: &Row| {
            row.matches(domain, entries)
                && row.control.until.is_none_or(|until| now() < until)
                && accepts(row)
        };
        for entry in entries {
            best = better(best, self.text_bucket(*entry), &mut applies);
        }
        best = better(best, &self.compared, &mut applies);
        if !self.networks.0.is_empty() {
            best = self.find_by_network(entries, best, &mut applies);
        }
        best
    }

    #[inline(never)]
    fn find_by_network<'i>(
        &'i self,
        entries: &[Entry<'_>],
        mut best: Option<&'i Row>,
        mut applies: impl FnMut(&Row) -> bool,
    ) -> Option<&'i Row> {
        for (key, value) in entries {
            for bucket in self.networks.around(key, value) {
                best = better(best, bucket, &mut applies);
            }
        }
        best
    }

    /// Returns how many other controls a control would at least be compared with.
    pub fn compared_with(&self, control: &Control) -> usize {
        let others = |place| {
            let rows = self.bucket(place).iter();
            rows.filter(|row| row.control.id != control.id).count()
        };
        let patterns: Vec<Pattern> = control.patterns().collect();
        let fewest = places(control, &patterns).map(|(_, place)| others(place)).min();
        fewest.unwrap_or_else(|| others(Place::Compared))
    }
}

/// Returns the first row of a bucket that applies, if it goes before `best`; else `best`.
#[inline]
fn better<'i>(
    best: Option<&'i Row>,
    bucket: &'i [Arc<Row>],
    mut applies: impl FnMut(&Row) -> bool,
) -> Option<&'i Row> {
    // In their order: later ones cannot be better than the first that matches.
    for row in bucket {
        if best.is_some_and(|best| best.order() <= row.order()) {
            break;
        }
        if applies(row) {
            return Some(row);
        }
    }
    best
}

/// Rows by a key and a network. A clone shares everything with the original.
#[derive(Clone, Debug, Default)]
pub(super) struct Networks(Map<NetworksOfKey>);

#[derive(Clone, Debug, Default)]
struct NetworksOfKey {
    buckets: HashTrieMapSync<Network, Bucket, DefaultHashBuilder>,
    /// The lengths of the prefixes of IPv4 and of IPv6 in `buckets`, and some that were.
    lengths: [Vec<u8>; 2],
}

/// The index of the lengths of a network's kind.
fn family(network: &Network) -> usize {
    usize::from(network.address().is_ipv6())
}

impl Networks {
    pub fn bucket(&self, key: &str, network: &Network) -> &[Arc<Row>] {
        self.0.get(key).and_then(|of_key| of_key.buckets.get(network)).map_or(&[], |rows| &**rows)
    }

    pub fn set_bucket(&mut self, key: &str, network: Network, bucket: Bucket) {
        let mut of_key = self.0.get(key).cloned().unwrap_or_default();
        if bucket.is_empty() {
            of_key.buckets.remove_mut(&network);
        } else {
            let (lengths, len) = (&mut of_key.lengths[family(&network)], network.prefix_len());
            if !lengths.contains(&len) {
                lengths.push(len);
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
            let lengths = of_key.lengths[family(&network)].iter();
            let lengths = lengths.filter(move |length| **length <= network.prefix_len());
            lengths.filter_map(move |&length| {
                of_key.buckets.get(&network.truncate(length, length)).map(|bucket| &**bucket)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Index {
        /// The most rows that are found by one place.
        pub fn most_compared(&self) -> usize {
            let texts = self.buckets.values().flat_map(Map::values);
            let networks = self.networks.0.values().flat_map(|of_key| of_key.buckets.values());
            let buckets = texts.chain(networks).chain([&self.compared]);
            buckets.map(|bucket| bucket.len()).max().unwrap_or(0)
        }
    }
}

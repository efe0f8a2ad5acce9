//! A table of IP networks, each with a number (a descriptor's index or a list's line). Finds the longest that contains
//! an address or a network. Descriptors with `network`, `values` or `values_file` match values by it.
//!
//! Two networks either lie beside each other, or one contains the other. Rows are sorted by the first address, and of
//! equal ones the shorter prefix is first. The last row that starts at or before an address lies within every network
//! that contains the address, or is the longest of them. Each row has the position of the one that encloses it, so one
//! search and a walk outwards find the longest, however many lengths there are.
//!
//! The range from the first row to the last is divided into at most as many equal slots as there are rows, and
//! the search is a binary one among the rows of a slot: few where addresses are spread, as they mostly are, and
//! never more than all. A row takes 16 bytes, one of IPv6 32, and its slot at most 4.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_common::network::Network;

/// The position of no row.
const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct PrefixTable {
    v4: Rows<u32>,
    v6: Rows<u128>,
}

/// The networks of one family.
#[derive(Debug, Default)]
struct Rows<B> {
    sorted: Box<[Row<B>]>,
    /// The number of rows before each slot, and then of all rows. Empty without rows.
    before: Box<[u32]>,
    /// The number of bits of a distance from the first row that do not select the slot.
    shift: u32,
}

/// The network that was found: its length and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Containing {
    pub prefix_len: u8,
    pub number: u32,
}

#[derive(Clone, Copy, Debug)]
struct Row<B> {
    start: B,
    /// What the network stands for: a line, or a descriptor.
    number: u32,
    /// The position of the longest network that contains this one.
    enclosing: u32,
    prefix_len: u8,
}

/// The bits of an address.
trait Bits: Copy + Ord {
    /// Returns the bits with all after the prefix zero.
    fn masked(self, prefix_len: u8) -> Self;
    /// Returns the distance from `first`, without the last bits; none if it is before.
    fn distance(self, first: Self, shift: u32) -> Option<usize>;
    fn distance_bits(self, first: Self) -> u32;
}

macro_rules! bits {
    ($($type:ty),*) => {$(
        impl Bits for $type {
            fn masked(self, prefix_len: u8) -> $type {
                self & !<$type>::MAX.checked_shr(prefix_len.into()).unwrap_or(0)
            }

            fn distance(self, first: $type, shift: u32) -> Option<usize> {
                Some(usize::try_from(self.checked_sub(first)? >> shift).unwrap_or(usize::MAX))
            }

            fn distance_bits(self, first: $type) -> u32 {
                <$type>::BITS - self.saturating_sub(first).leading_zeros()
            }
        }
    )*};
}
bits!(u32, u128);

#[derive(Debug, Default)]
pub(crate) struct PrefixTableBuilder {
    v4: Vec<Row<u32>>,
    v6: Vec<Row<u128>>,
}

impl PrefixTableBuilder {
    /// Adds a network. Of equal ones the one with the lowest number counts.
    pub fn add(&mut self, network: Network, number: u32) {
        let (prefix_len, enclosing) = (network.prefix_len(), NONE);
        match network.address() {
            IpAddr::V4(address) => {
                self.v4.push(Row { start: address.to_bits(), number, enclosing, prefix_len });
            }
            IpAddr::V6(address) => {
                self.v6.push(Row { start: address.to_bits(), number, enclosing, prefix_len });
            }
        }
    }

    pub fn build(self) -> PrefixTable {
        PrefixTable { v4: Rows::new(self.v4), v6: Rows::new(self.v6) }
    }
}

impl PrefixTable {
    pub fn len(&self) -> usize {
        self.v4.sorted.len() + self.v6.sorted.len()
    }

    /// Returns whether two tables have the same networks, whatever their numbers.
    pub fn is_same(&self, other: &PrefixTable) -> bool {
        self.v4.is_same(&other.v4) && self.v6.is_same(&other.v6)
    }

    /// Finds the longest network that contains another one.
    pub fn find(&self, network: &Network) -> Option<Containing> {
        let len = network.prefix_len();
        match network.address() {
            IpAddr::V4(address) => self.v4.longest(address.to_bits(), len),
            IpAddr::V6(address) => self.v6.longest(address.to_bits(), len),
        }
    }

    pub fn get(&self, network: &Network) -> Option<u32> {
        let found = self.find(network)?;
        (found.prefix_len == network.prefix_len()).then_some(found.number)
    }

    /// Returns all networks that contain another one, the longest first.
    pub fn containing(&self, network: &Network) -> impl Iterator<Item = Containing> {
        let len = network.prefix_len();
        let (v4, v6) = match network.address() {
            IpAddr::V4(address) => (Some(self.v4.containing(address.to_bits(), len)), None),
            IpAddr::V6(address) => (None, Some(self.v6.containing(address.to_bits(), len))),
        };
        v4.into_iter().flatten().chain(v6.into_iter().flatten())
    }

    pub fn iter(&self) -> impl Iterator<Item = (Network, u32)> {
        let v4 = self.v4.sorted.iter();
        let v4 = v4.map(|row| (Ipv4Addr::from_bits(row.start).into(), row.found()));
        let v6 = self.v6.sorted.iter();
        let v6 = v6.map(|row| (Ipv6Addr::from_bits(row.start).into(), row.found()));
        let rows = v4.chain(v6);
        rows.filter_map(|(start, row)| Some((Network::new(start, row.prefix_len)?, row.number)))
    }
}

impl<B: Bits> Row<B> {
    fn contains(&self, start: B, prefix_len: u8) -> bool {
        self.prefix_len <= prefix_len && start.masked(self.prefix_len) == self.start
    }

    fn found(&self) -> Containing {
        Containing { prefix_len: self.prefix_len, number: self.number }
    }
}

impl<B: Bits> Rows<B> {
    /// Sorts networks, finds for each the one that encloses it, and assigns them to slots.
    fn new(mut rows: Vec<Row<B>>) -> Rows<B> {
        rows.sort_unstable_by_key(|row| (row.start, row.prefix_len, row.number));
        rows.dedup_by_key(|row| (row.start, row.prefix_len));
        // The networks that contain the last row, from the longest on the right.
        let mut open: Vec<u32> = Vec::new();
        for at in 0..rows.len() {
            let Row { start, prefix_len, .. } = rows[at];
            while let Some(&last) = open.last()
                && !rows[last as usize].contains(start, prefix_len)
            {
                open.pop();
            }
            rows[at].enclosing = open.last().copied().unwrap_or(NONE);
            open.push(at as u32);
        }
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Rows { sorted: Box::default(), before: Box::default(), shift: 0 };
        };
        let shift = last.start.distance_bits(first.start).saturating_sub(rows.len().ilog2());
        let slot = |row: &Row<B>| row.start.distance(first.start, shift).unwrap_or_default();
        let mut before = vec![0; slot(last) + 2];
        rows.iter().for_each(|row| before[slot(row) + 1] += 1);
        let mut sum = 0;
        for count in &mut before {
            sum += *count;
            *count = sum;
        }
        Rows { sorted: rows.into(), before: before.into(), shift }
    }

    fn is_same(&self, other: &Rows<B>) -> bool {
        let networks = |row: &Row<B>| (row.start, row.prefix_len);
        self.sorted.iter().map(networks).eq(other.sorted.iter().map(networks))
    }

    /// Returns the last row that starts at or before an address.
    #[inline]
    fn last(&self, start: B) -> Option<&Row<B>> {
        let slot = start.distance(self.sorted.first()?.start, self.shift)?;
        let slot = slot.min(self.before.len().saturating_sub(2));
        let (from, to) = (*self.before.get(slot)?, *self.before.get(slot + 1)?);
        let of_slot = self.sorted.get(from as usize..to as usize)?;
        let in_slot = of_slot.partition_point(|row| row.start <= start);
        self.sorted.get((from as usize + in_slot).checked_sub(1)?)
    }

    #[inline]
    fn longest(&self, start: B, prefix_len: u8) -> Option<Containing> {
        self.outwards(self.last(start), start, prefix_len).map(Row::found)
    }

    fn containing(&self, start: B, prefix_len: u8) -> impl Iterator<Item = Containing> {
        let mut next = self.last(start);
        std::iter::from_fn(move || {
            let row = self.outwards(next, start, prefix_len)?;
            next = self.enclosing(row);
            Some(row.found())
        })
    }

    /// Returns the first row that contains a network, from one of them outwards.
    #[inline]
    fn outwards<'r>(
        &'r self,
        mut next: Option<&'r Row<B>>,
        start: B,
        prefix_len: u8,
    ) -> Option<&'r Row<B>> {
        loop {
            let row = next?;
            if row.contains(start, prefix_len) {
                return Some(row);
            }
            next = self.enclosing(row);
        }
    }

    fn enclosing(&self, row: &Row<B>) -> Option<&Row<B>> {
        self.sorted.get(row.enclosing as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_small() {
        assert_eq!((size_of::<Row<u32>>(), size_of::<Row<u128>>()), (16, 32));
    }

    /// Networks near each other, so that they often contain one another.
    fn network() -> impl Strategy<Value = Network> {
        let v4 = (0..16_u32, 0..=32_u8)
            .prop_map(|(bits, len)| (IpAddr::from(Ipv4Addr::from_bits(bits << 26 | bits)), len));
        let v6 = (0..16_u128, 0..=128_u8)
            .prop_map(|(bits, len)| (IpAddr::from(Ipv6Addr::from_bits(bits << 122 | bits)), len));
        prop_oneof![v4, v6].prop_map(|(address, len)| Network::new(address, len).unwrap())
    }

    proptest! {
        #[test]
        fn the_longest_network_is_found(
            networks in prop::collection::vec(network(), 0..30),
            asked in prop::collection::vec(network(), 1..20),
        ) {
            let numbered = || networks.iter().copied().zip(0_u32..);
            let mut table = PrefixTableBuilder::default();
            numbered().for_each(|(network, number)| table.add(network, number));
            let table = table.build();
            for asked in &asked {
                let mut model: Vec<(Network, u32)> =
                    numbered().filter(|(network, _)| network.contains(asked)).collect();
                model.sort_by_key(|(network, number)| (std::cmp::Reverse(network.prefix_len()), *number));
                model.dedup_by_key(|(network, _)| *network);
                let wanted: Vec<Containing> = model
                    .iter()
                    .map(|(network, number)| Containing { prefix_len: network.prefix_len(), number: *number })
                    .collect();
                prop_assert_eq!(table.containing(asked).collect::<Vec<_>>(), wanted.clone());
                prop_assert_eq!(table.find(asked), wanted.first().copied());
                let first = numbered().find(|(network, _)| network == asked);
                prop_assert_eq!(table.get(asked), first.map(|(_, number)| number));
            }
            let mut all: Vec<Network> = table.iter().map(|(network, _)| network).collect();
            prop_assert_eq!(all.len(), table.len());
            let mut wanted = networks;
            wanted.sort_unstable();
            wanted.dedup();
            all.sort_unstable();
            prop_assert_eq!(all, wanted);
        }
    }
}

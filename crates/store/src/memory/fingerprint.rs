//! Fingerprints of keys, which tables keep instead of the keys, and how they are spread over shards.
//!
//! The spread is uneven: the last shard gets twice the share of the first. Tables double when they are full. With equal
//! shares all tables would double at the same time, and be half empty afterwards. With shares between one and two, each
//! doubles at another time, and memory follows the number of keys smoothly.

use std::hash::Hasher;
use std::ops::Range;

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};
use smallvec::SmallVec;

use crate::charge::Charge;
use weir_common::random::random_bytes;
use weir_limit::put_varint;

/// The part of a key's hash that its slot keeps. The first eight bytes place it in its table.
pub(crate) type Print = [u8; 11];

/// Keys a shard holds on average when the cap is reached, at least; at most twice as many. Moving that many to a larger
/// table takes about a tenth of a millisecond, most of it the first touch of fresh memory.
const KEYS_PER_SHARD: usize = 1024;

/// Bounds what an enormous cap costs before the first key.
const MAX_SHARDS: usize = 1 << 16;

/// Stands for a key's reset in place of the id of a reservation. Ids are UTF-8, which has no such byte.
const RESET: [u8; 1] = [u8::MAX];

/// A key's hash: 32 bits choose the shard, 88 others identify the key within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint {
    pub(crate) shard: u32,
    pub(crate) print: Print,
}

/// Makes fingerprints with a random secret: clients can neither find two keys with the same fingerprint nor target a
/// shard.
pub(crate) struct Fingerprints(SipHasher13);

/// The part of the hash that places a slot in its table.
pub(super) fn place(print: &Print) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *print;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

pub(crate) fn random_secret() -> [u64; 2] {
    [u64::from_le_bytes(random_bytes()), u64::from_le_bytes(random_bytes())]
}

/// Returns the number of shards for at most `max_keys` keys: a power of two.
pub(super) fn shards(max_keys: usize) -> usize {
    match (max_keys / KEYS_PER_SHARD).min(MAX_SHARDS) {
        0 => 1,
        wanted => 1 << wanted.ilog2(),
    }
}

/// Returns the shard of a key: floor(shards × f(u)), where u is `hash` / 2^32 and f(u) = u + u(1 − u)/3, whose slope
/// falls from 4/3 to 2/3.
pub(super) fn shard(hash: u32, shards: usize) -> usize {
    let u = u64::from(hash);
    let bent = u + ((u * ((1 << 32) - u)) >> 32) / 3;
    ((bent * shards as u64) >> 32) as usize
}

/// Returns each shard's part of the cap. They add up to `max_keys`.
pub(super) fn caps(max_keys: usize, shards: usize) -> impl Iterator<Item = usize> {
    // The inverse of f above: the fraction of the keys that the first `i` shards get.
    let before = move |i: usize| {
        let fraction = 2.0 - (4.0 - 3.0 * i as f64 / shards as f64).sqrt();
        ((max_keys as f64 * fraction) as usize).min(max_keys)
    };
    (0..shards).map(move |i| {
        let end = if i + 1 == shards { max_keys } else { before(i + 1) };
        end.saturating_sub(before(i))
    })
}

impl Fingerprints {
    pub(crate) fn new() -> Fingerprints {
        Fingerprints::of_secret(random_secret())
    }

    pub(crate) fn of_secret([a, b]: [u64; 2]) -> Fingerprints {
        Fingerprints(SipHasher13::new_with_keys(a, b))
    }

    pub(crate) fn of(&self, charge: &Charge<'_>) -> Fingerprint {
        let mut bytes = KeyBytes::new();
        encode(charge, &mut bytes);
        Fingerprint::of_hash(self.0.hash(&bytes))
    }

    /// Returns the fingerprints of a charge's key and id, with [that of the key](key_of) in it, and of the reset of its
    /// key; none without an id.
    pub(crate) fn of_reservation(&self, charge: &Charge<'_>) -> [Print; 2] {
        let (id, key) = (charge.hold.unwrap_or_default(), self.of(charge));
        let mut print = self.of_more(&key, id.as_bytes());
        print[KEY_BYTES].copy_from_slice(&key_of(&key.print));
        [print, self.of_reset(&key)]
    }

    pub(super) fn of_reset(&self, key: &Fingerprint) -> Print {
        self.of_more(key, &RESET)
    }

    fn of_more(&self, key: &Fingerprint, bytes: &[u8]) -> Print {
        let mut hasher = self.0;
        hasher.write(&key.print);
        hasher.write(&key.shard.to_le_bytes());
        hasher.write(bytes);
        Fingerprint::of_hash(hasher.finish128()).print
    }
}

/// The bytes of a reservation's fingerprint that are its key's; a table of less than 2^32 slots places none by them.
const KEY_BYTES: Range<usize> = 4..7;

/// Returns what the fingerprints of all reservations of a key have in common.
pub(super) fn key_of(print: &Print) -> [u8; 3] {
    let [_, _, _, _, a, b, c, ..] = *print;
    [a, b, c]
}

impl Fingerprint {
    #[inline]
    fn of_hash(hash: Hash128) -> Fingerprint {
        let (low, high) = hash.as_u64();
        let [a, b, c, d, e, f, g, h] = low.to_le_bytes();
        let [i, j, k, ..] = high.to_le_bytes();
        let print = [a, b, c, d, e, f, g, h, i, j, k];
        Fingerprint { shard: (high >> 32) as u32, print }
    }
}

/// The bytes of a key; long ones are on the heap.
type KeyBytes = SmallVec<[u8; 256]>;

/// Writes the key and the shape of its plan as unique bytes: the length precedes each part but the last.
fn encode(charge: &Charge<'_>, bytes: &mut KeyBytes) {
    put(charge.key.domain, bytes);
    put_length(charge.key.entries.len(), bytes);
    for (key, value) in charge.key.entries {
        put(key, bytes);
        put(value, bytes);
    }
    bytes.extend_from_slice(charge.plan.shape().as_bytes());
}

#[inline]
fn put(part: &str, bytes: &mut KeyBytes) {
    put_length(part.len(), bytes);
    bytes.extend_from_slice(part.as_bytes());
}

#[inline]
fn put_length(length: usize, bytes: &mut KeyBytes) {
    put_varint(length as u64, |byte| bytes.push(byte));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Entry, Key, Role};
    use weir_limit::{Limit, Op, Plan, Unit};

    fn encoded(domain: &str, entries: &[Entry<'_>], unit: Unit) -> Vec<u8> {
        let plan = Arc::new(Plan::new(Limit::fixed_window(1, unit, 1).into_iter().collect()));
        let key = Key { domain, entries };
        let charge = Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced };
        let mut bytes = KeyBytes::new();
        encode(&charge, &mut bytes);
        bytes.to_vec()
    }

    #[test]
    fn different_keys_encode_differently() {
        let long = "x".repeat(300);
        let keys: [(&str, &[Entry<'_>], Unit); 14] = [
            ("d", &[("a_b", "c")], Unit::Hour),
            ("d", &[("a", "b_c")], Unit::Hour),
            ("d", &[("a", "b_c")], Unit::Day),
            ("d", &[("a", "")], Unit::Hour),
            ("d", &[("", "a")], Unit::Hour),
            ("d", &[("", "")], Unit::Hour),
            ("d", &[], Unit::Hour),
            ("da", &[("", "")], Unit::Hour),
            ("d", &[("a", ""), ("", "")], Unit::Hour),
            ("d", &[("a", "\u{0}")], Unit::Hour),
            ("d", &[("a", "1"), ("b", "2")], Unit::Hour),
            ("d", &[("b", "2"), ("a", "1")], Unit::Hour),
            ("d", &[("a", &long)], Unit::Hour),
            ("d", &[("a", &long[1..])], Unit::Hour),
        ];
        let all: std::collections::HashSet<_> =
            keys.iter().map(|(domain, entries, unit)| encoded(domain, entries, *unit)).collect();
        assert_eq!(all.len(), keys.len());
    }

    #[test]
    fn the_caps_add_up() {
        for max_keys in [1, 2, 4095, 4096, 10_000, 1_000_000, 10_000_000, 123_456_789, 1 << 40] {
            let shards = shards(max_keys);
            let caps: Vec<_> = caps(max_keys, shards).collect();
            assert_eq!(caps.len(), shards);
            assert_eq!(caps.iter().sum::<usize>(), max_keys);
            assert!(caps.iter().all(|&cap| cap >= 1));
        }
        assert_eq!(shards(10_000_000), 8192);
        assert_eq!(shards(usize::MAX), MAX_SHARDS);
    }

    #[test]
    fn hashes_fall_on_shards_in_proportion_to_their_caps() {
        let shards = 64;
        let mut hits = vec![0_usize; shards];
        let step = 1 << 12;
        for hash in (0..=u32::MAX).step_by(step) {
            hits[shard(hash, shards)] += 1;
        }
        assert_eq!(shard(0, shards), 0);
        assert_eq!(shard(u32::MAX, shards), shards - 1);
        for (hits, cap) in hits.iter().zip(caps((1 << 32) / step, shards)) {
            assert!(hits.abs_diff(cap) * 200 <= cap, "{hits} hashes for a share of {cap}");
        }
    }
}

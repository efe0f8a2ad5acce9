//! How keys are spread over the shards.
//!
//! The spread is uneven: the last shard gets twice the share of the first. Tables double when they are
//! full. With equal shares all tables would double at the same time, and be half empty afterwards.
//! With shares between one and two, each doubles at another time, and memory follows the number of
//! keys smoothly.

/// Keys a shard holds on average when the cap is reached, at least; at most twice as many.
/// Moving that many to a larger table takes about a tenth of a millisecond, most of it the first
/// touch of fresh memory.
const KEYS_PER_SHARD: usize = 1024;

/// Bounds what an enormous cap costs before the first key.
const MAX_SHARDS: usize = 1 << 16;

/// Returns the number of shards for at most `max_keys` keys: a power of two.
pub(super) fn shards(max_keys: usize) -> usize {
    match (max_keys / KEYS_PER_SHARD).min(MAX_SHARDS) {
        0 => 1,
        wanted => 1 << wanted.ilog2(),
    }
}

/// Returns the shard of a key: floor(shards × f(u)), where u is `hash` / 2^32 and
/// f(u) = u + u(1 − u)/3, whose slope falls from 4/3 to 2/3.
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

#[cfg(test)]
mod tests {
    use super::*;

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

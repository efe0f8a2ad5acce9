//! Randomness, where it need not be good.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// Returns a number from 0 to below 1.
///
/// The next one of a generator per thread, `SplitMix64` (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014): a request that may be recorded takes one. A hasher's keys
/// are the randomness that the standard library has, for its start.
pub fn random() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    // The 53 bits that a float holds.
    (mixed(state) >> 11) as f64 / (1_u64 << 53) as f64
}

fn mixed(state: u64) -> u64 {
    let bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Sixteen random bytes.
pub fn random_bytes() -> [u8; 16] {
    let state = RandomState::new();
    let halves = [state.hash_one(0).to_be_bytes(), state.hash_one(1).to_be_bytes()];
    let mut bytes = [0; 16];
    bytes.copy_from_slice(halves.as_flattened());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_split_mix_64() {
        // The first two numbers of the published generator from 0.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!(mixed(step), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(step.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn random_numbers_are_spread_from_0_to_1() {
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            tenths[(random() * 10.0) as usize] += 1;
        }
        // Ten standard deviations.
        assert!(tenths.iter().all(|count| count.abs_diff(1_000) < 300), "{tenths:?}");
    }
}

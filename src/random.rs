//! Randomness, where it need not be good.

use std::hash::{BuildHasher, RandomState};

/// A number from 0 to 1. A hasher's keys are the randomness that the standard library has.
pub fn random() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// Sixteen random bytes.
#[cfg(feature = "otlp")]
pub fn random_bytes() -> [u8; 16] {
    let state = RandomState::new();
    let halves = [state.hash_one(0).to_be_bytes(), state.hash_one(1).to_be_bytes()];
    let mut bytes = [0; 16];
    bytes.copy_from_slice(halves.as_flattened());
    bytes
}

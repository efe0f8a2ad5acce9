//! Randomness, where it need not be good.

use std::hash::{BuildHasher, RandomState};

/// A number from 0 to 1. A hasher's keys are the randomness that the standard library has.
pub fn random() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

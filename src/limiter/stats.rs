//! Counts the hits of a rule, split as the reference splits them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::{Decision, Limit, Source};
use crate::rules::Rule;

/// Adds a decided charge of `hits` to the counts of its rule, by the limit that decided.
pub(super) fn count(rule: &Rule, hits: u64, limit: &Limit, decision: &Decision, near_ratio: f32) {
    let stats = &rule.stats;
    let split = split(hits, decision.used_before, limit.requests_per_unit, near_ratio);
    add(&stats.total_hits, hits);
    if decision.source == Source::DeniedLocally {
        // The store was not called, so the hits used before are not known: all are over.
        add(&stats.over_limit, hits);
        add(&stats.over_limit_with_local_cache, hits);
        if rule.shadow_mode {
            add(&stats.shadow_mode, hits);
        }
    } else if decision.allowed {
        add(&stats.within_limit, hits);
        add(&stats.near_limit, split.near);
    } else {
        add(&stats.over_limit, split.over);
        add(&stats.near_limit, split.near);
        if rule.shadow_mode {
            add(&stats.shadow_mode, split.over);
        }
    }
}

/// How many hits of a charge are over the limit, and how many near it.
#[derive(Debug, PartialEq, Eq)]
struct HitSplit {
    over: u64,
    near: u64,
}

/// The near part starts at `floor(limit x ratio)`, computed with 32-bit floats like in the reference:
/// the counts of both for the same traffic agree.
fn split(hits: u64, before: u64, limit: u32, near_ratio: f32) -> HitSplit {
    let near_from = f64::from(limit as f32 * near_ratio).floor() as u64;
    let limit = u64::from(limit);
    let after = before.saturating_add(hits);
    if after > limit {
        if before >= limit {
            HitSplit { over: hits, near: 0 }
        } else {
            HitSplit { over: after - limit, near: limit.saturating_sub(near_from.max(before)) }
        }
    } else if after > near_from {
        HitSplit { over: 0, near: if before >= near_from { hits } else { after - near_from } }
    } else {
        HitSplit { over: 0, near: 0 }
    }
}

fn add(counter: &AtomicU64, hits: u64) {
    if hits > 0 {
        counter.fetch_add(hits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_split_at_the_limit_and_at_four_fifths_of_it() {
        assert_eq!(split(7, 15, 20, 0.8), HitSplit { over: 2, near: 4 });
        assert_eq!(split(1, 15, 20, 0.8), HitSplit { over: 0, near: 0 });
        assert_eq!(split(3, 15, 20, 0.8), HitSplit { over: 0, near: 2 });
        assert_eq!(split(2, 17, 20, 0.8), HitSplit { over: 0, near: 2 });
        assert_eq!(split(5, 20, 20, 0.8), HitSplit { over: 5, near: 0 });
        assert_eq!(split(1, 0, 0, 0.8), HitSplit { over: 1, near: 0 });
    }

    #[test]
    fn large_limits_are_rounded_as_32_bit_floats() {
        // 4 294 967 295 is 2^32 as a 32-bit float; four fifths of it is 3 435 973 836.8, which
        // the next 32-bit float holds as 3 435 973 888.
        let split = split(u64::from(u32::MAX), 0, u32::MAX, 0.8);
        assert_eq!(split.near, u64::from(u32::MAX) - 3_435_973_888);
    }
}

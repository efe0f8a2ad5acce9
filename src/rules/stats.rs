//! Counters of a rule's hits.

use std::sync::atomic::AtomicU64;

/// Counters of one rule. When rules are reloaded, the rule of the same name takes them over.
#[derive(Debug, Default)]
pub struct RuleStats {
    pub total_hits: AtomicU64,
    pub over_limit: AtomicU64,
    pub near_limit: AtomicU64,
    pub within_limit: AtomicU64,
    pub shadow_mode: AtomicU64,
    pub over_limit_with_local_cache: AtomicU64,
}

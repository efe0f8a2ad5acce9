//! Counters of a rule's hits.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weir_common::metrics::{SeriesBudget, SeriesMap};
use weir_limit::Limit;

/// Counters of one rule, or of one series of it. When rules are reloaded, the rule of the same name
/// takes them over.
#[derive(Debug, Default)]
pub struct RuleStats {
    pub total_hits: AtomicU64,
    pub over_limit: AtomicU64,
    pub near_limit: AtomicU64,
    pub within_limit: AtomicU64,
    pub shadow_mode: AtomicU64,
    pub over_limit_with_local_cache: AtomicU64,
    /// Hits of requests that got an error because the store failed to charge them.
    pub store_errors: AtomicU64,
}

/// Counters of series that values of requests distinguish, by the path in their metrics.
pub type RuleSeries = SeriesMap<RuleStats>;

/// The number of those series in all rules.
pub(super) type RuleSeriesBudget = SeriesBudget<RuleStats>;

/// Hits that one limit of a rule denied.
#[derive(Debug)]
pub(super) struct LimitStats {
    /// The name of the limit, or its number from 0 if it has none of its own.
    pub label: Box<str>,
    pub over_limit: Arc<AtomicU64>,
}

impl LimitStats {
    /// Returns the counters of a rule's limits, those of the same label carried over; none if one limit
    /// decides all.
    pub fn for_limits(limits: &[Limit], previous: &[LimitStats]) -> Box<[LimitStats]> {
        if limits.len() < 2 {
            return Box::default();
        }
        let is_own = |name: &str| {
            !name.is_empty() && limits.iter().filter(|limit| *limit.name == *name).count() == 1
        };
        let stats = limits.iter().enumerate().map(|(index, limit)| {
            let label: Box<str> =
                if is_own(&limit.name) { (*limit.name).into() } else { index.to_string().into() };
            let known = previous.iter().find(|known| known.label == label);
            let over_limit = known.map(|known| known.over_limit.clone()).unwrap_or_default();
            LimitStats { label, over_limit }
        });
        stats.collect()
    }
}

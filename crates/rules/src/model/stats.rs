//! Counters of a rule's hits and reservations. Decisions increment them, and metrics and status pages show them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_common::metrics::{Histogram, HistogramSnapshot, SeriesLimit, SeriesMap};
use weir_limit::Limit;

/// Counters of one rule, or of one of its series in metrics. After a reload, the rule of the same name has them.
#[derive(Debug, Default)]
pub struct RuleStats {
    /// All hits.
    pub total_hits: AtomicU64,
    /// Hits over the limit.
    pub over_limit: AtomicU64,
    /// Hits within the limit, but near it.
    pub near_limit: AtomicU64,
    /// Hits of charges that were allowed, and not only by shadow mode.
    pub within_limit: AtomicU64,
    /// Hits over the limit that shadow mode let pass.
    pub shadow_mode: AtomicU64,
    /// Hits over the limit that this replica denied without the store.
    pub over_limit_with_local_cache: AtomicU64,
    /// Hits of requests that got an error because the store failed to charge them.
    pub store_errors: AtomicU64,
}

/// Counters that `detailed_metric` or `value_to_metric` keeps for each value of requests, by the name in metrics.
pub type RuleSeries = SeriesMap<RuleStats>;

pub(crate) type RuleSeriesLimit = SeriesLimit<RuleStats>;

/// Upper bounds of histogram buckets: the hits that a request used, in percent of those that it had reserved.
const RATIO_BOUNDS: [u64; 13] = [1, 3, 10, 25, 50, 75, 100, 150, 200, 300, 1_000, 3_000, 10_000];

/// Counters of the reservations of a rule, carried over as [`RuleStats`] are.
#[derive(Debug, Default)]
pub struct ReserveStats {
    allowed: AtomicU64,
    denied: AtomicU64,
    settled: AtomicU64,
    cancelled: AtomicU64,
    unknown: AtomicU64,
    lost: AtomicU64,
    reserved_hits: AtomicU64,
    settled_hits: AtomicU64,
    overdraft_hits: AtomicU64,
    ratio: Ratio,
}

/// What was used of reservations, in hundredths of what was reserved.
#[derive(Debug)]
struct Ratio(Histogram);

impl Default for Ratio {
    fn default() -> Self {
        Ratio(Histogram::new(&RATIO_BOUNDS, 100.0))
    }
}

impl ReserveStats {
    /// Counts a reservation.
    pub fn allowed(&self, hits: u32) {
        add(&self.allowed, 1);
        add(&self.reserved_hits, hits.into());
    }

    /// Counts a request to reserve that was over a limit.
    pub fn denied(&self) {
        add(&self.denied, 1);
    }

    /// Counts that a reservation was settled with `used` hits, `overdraft` of them beyond a limit.
    pub fn settled(&self, reserved: u32, used: u32, overdraft: u64) {
        add(&self.settled, 1);
        add(&self.settled_hits, used.into());
        add(&self.overdraft_hits, overdraft);
        let percent = u64::from(used) * 100;
        self.ratio.0.record(percent.div_ceil(u64::from(reserved.max(1))));
    }

    /// Counts a reservation that was returned as a whole, because its request was denied or went away.
    pub fn cancelled(&self) {
        add(&self.cancelled, 1);
    }

    /// Counts hits that were charged without a reservation.
    pub fn unknown(&self, overdraft: u64) {
        add(&self.unknown, 1);
        add(&self.overdraft_hits, overdraft);
    }

    /// Counts what the store may not have taken: it stays charged.
    pub fn lost(&self) {
        add(&self.lost, 1);
    }

    /// Returns a copy of the counters.
    pub fn counts(&self) -> ReserveCounts {
        let hits = [&self.reserved_hits, &self.settled_hits, &self.overdraft_hits];
        ReserveCounts {
            reservations: [("allowed", get(&self.allowed)), ("denied", get(&self.denied))],
            settlements: [
                ("settled", get(&self.settled)),
                ("cancelled", get(&self.cancelled)),
                ("unknown", get(&self.unknown)),
                ("lost", get(&self.lost)),
            ],
            hits: hits.map(get),
            ratio: self.ratio.0.snapshot(),
        }
    }
}

/// A copy of [`ReserveStats`].
#[derive(Clone, Debug)]
pub struct ReserveCounts {
    /// The number of requests to reserve, by result.
    pub reservations: [(&'static str, u64); 2],
    /// The number of settlements, by result.
    pub settlements: [(&'static str, u64); 4],
    /// The hits that were reserved, that reservations were settled with, and that were charged beyond a limit.
    pub hits: [u64; 3],
    /// What was used of reservations, divided by what was reserved.
    pub ratio: HistogramSnapshot,
}

impl ReserveCounts {
    pub(crate) fn add(&mut self, other: &ReserveCounts) {
        let results = self.reservations.iter_mut().chain(&mut self.settlements);
        let others = other.reservations.iter().chain(&other.settlements);
        results.zip(others).for_each(|((_, count), (_, more))| *count += more);
        self.hits.iter_mut().zip(other.hits).for_each(|(hits, more)| *hits += more);
        self.ratio.add(&other.ratio);
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Hits that one limit of a rule denied.
#[derive(Debug)]
pub(crate) struct LimitStats {
    /// The name of the limit, or its number from 0 if it has none of its own.
    pub label: Box<str>,
    pub over_limit: Arc<AtomicU64>,
}

impl LimitStats {
    /// Returns the counters of a rule's limits, carried over by label; none if one limit decides all.
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

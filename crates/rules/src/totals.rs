//! What each rule has counted, with all its series.

use std::hash::Hash;
use std::ops::AddAssign;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use crate::RuleSet;
use crate::model::rule::Rule;
use crate::model::stats::{RuleSeries, RuleStats};

/// Hits since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HitTotals {
    pub hits: u64,
    pub over_limit: u64,
    pub near_limit: u64,
    /// Hits over the limit that shadow mode let pass, of the rule or of one of its limits.
    pub shadow_mode: u64,
    /// Hits of charges that were allowed, and not only by shadow mode.
    #[serde(skip)]
    pub within_limit: u64,
    /// Hits that the store failed to charge, which are not among `hits`.
    #[serde(skip)]
    pub store_errors: u64,
}

/// What one rule has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTotals<'a> {
    pub domain: &'a str,
    /// The path of the rule; none for the limits that were sent with requests of the domain.
    pub rule: Option<&'a str>,
    #[serde(flatten)]
    pub totals: HitTotals,
}

impl From<&RuleStats> for HitTotals {
    fn from(stats: &RuleStats) -> HitTotals {
        HitTotals {
            hits: stats.total_hits.load(Ordering::Relaxed),
            over_limit: stats.over_limit.load(Ordering::Relaxed),
            near_limit: stats.near_limit.load(Ordering::Relaxed),
            shadow_mode: stats.shadow_mode.load(Ordering::Relaxed),
            within_limit: stats.within_limit.load(Ordering::Relaxed),
            store_errors: stats.store_errors.load(Ordering::Relaxed),
        }
    }
}

impl AddAssign for HitTotals {
    fn add_assign(&mut self, more: HitTotals) {
        self.hits += more.hits;
        self.over_limit += more.over_limit;
        self.near_limit += more.near_limit;
        self.shadow_mode += more.shadow_mode;
        self.within_limit += more.within_limit;
        self.store_errors += more.store_errors;
    }
}

impl HitTotals {
    /// Returns what the rules of one name have counted. After a reload they share their counters.
    pub fn of_name<'r>(rules: impl Iterator<Item = &'r Rule>) -> HitTotals {
        let mut totals = HitTotals::default();
        // They share all of them, or none.
        let (mut stats, mut series) = (ptr::null(), ptr::null());
        for rule in rules {
            if stats != Arc::as_ptr(&rule.stats) {
                stats = Arc::as_ptr(&rule.stats);
                totals += HitTotals::from(&*rule.stats);
            }
            if let Some(own) = rule.series.as_ref().filter(|own| series != Arc::as_ptr(own)) {
                series = Arc::as_ptr(own);
                totals += HitTotals::of_series(own);
            }
        }
        totals
    }

    fn of_series(series: &RuleSeries) -> HitTotals {
        let mut totals = HitTotals::default();
        series.for_each(|stats| totals += HitTotals::from(stats));
        totals
    }
}

/// Returns the counts of all rules, in their order, and then those of the limits that were sent with
/// requests of each domain. The second value has the hits of series beyond the cap, of all rules.
pub fn totals(set: &RuleSet) -> (Vec<RuleTotals<'_>>, HitTotals) {
    let mut all = ByLabels::new();
    for rule in set.rules() {
        let mut totals = HitTotals::default();
        if all.is_new(&rule.stats) {
            totals += HitTotals::from(&*rule.stats);
        }
        if let Some(series) = rule.series.as_ref().filter(|series| all.is_new(series)) {
            totals += HitTotals::of_series(series);
        }
        all.add((rule.domain(), Some(rule.path())), totals, |sum, more| *sum += more);
    }
    for (domain, rules) in &set.domains {
        if let Some(series) = &rules.override_series {
            all.list.push(((domain, None), HitTotals::of_series(series)));
        }
    }
    let rows = all.list.into_iter();
    let rows = rows.map(|((domain, rule), totals)| RuleTotals { domain, rule, totals });
    (rows.collect(), HitTotals::from(&set.series.other))
}

/// Counts by their labels, each once. Dots in keys and values may give several rules the same path.
pub(crate) struct ByLabels<K, C> {
    pub list: Vec<(K, C)>,
    /// The index of each.
    index: HashMap<K, usize>,
    /// The counters that are in it: rules of one name share theirs after a reload.
    seen: HashSet<*const ()>,
}

impl<K: Clone + Eq + Hash, C> ByLabels<K, C> {
    pub fn new() -> ByLabels<K, C> {
        ByLabels { list: Vec::new(), index: HashMap::new(), seen: HashSet::new() }
    }

    /// Returns whether it is asked about these counters for the first time.
    pub fn is_new<S>(&mut self, counters: &Arc<S>) -> bool {
        self.seen.insert(Arc::as_ptr(counters).cast())
    }

    /// Adds counts to those of the same labels.
    pub fn add(&mut self, labels: K, more: C, sum: impl FnOnce(&mut C, C)) {
        match self.index.get(&labels).and_then(|at| self.list.get_mut(*at)) {
            Some((_, counts)) => sum(counts, more),
            None => {
                self.index.insert(labels.clone(), self.list.len());
                self.list.push((labels, more));
            }
        }
    }
}

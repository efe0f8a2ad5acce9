//! What each rule has counted, with all its series.

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
    let mut list: Vec<RuleTotals<'_>> = Vec::with_capacity(set.rules.len());
    // Dots in keys and values may give several rules the same path.
    let mut index: HashMap<(&str, &str), usize> = HashMap::with_capacity(set.rules.len());
    // Rules of one name share their counts after a reload.
    let mut seen: HashSet<*const RuleStats> = HashSet::with_capacity(set.rules.len());
    let mut seen_series: HashSet<*const RuleSeries> = HashSet::new();
    for rule in set.rules() {
        let mut totals = HitTotals::default();
        if seen.insert(Arc::as_ptr(&rule.stats)) {
            totals += HitTotals::from(&*rule.stats);
        }
        if let Some(series) = &rule.series
            && seen_series.insert(Arc::as_ptr(series))
        {
            totals += HitTotals::of_series(series);
        }
        let (domain, path) = (rule.domain(), rule.path());
        match index.get(&(domain, path)).and_then(|at| list.get_mut(*at)) {
            Some(row) => row.totals += totals,
            None => {
                index.insert((domain, path), list.len());
                list.push(RuleTotals { domain, rule: Some(path), totals });
            }
        }
    }
    for (domain, rules) in &set.domains {
        if let Some(series) = &rules.override_series {
            let totals = HitTotals::of_series(series);
            list.push(RuleTotals { domain, rule: None, totals });
        }
    }
    (list, HitTotals::from(&set.series.other))
}

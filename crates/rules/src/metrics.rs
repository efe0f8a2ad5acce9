//! Reports the hits that rules have counted: as metrics for Prometheus and StatsD, and as totals for the status page.
//! A rule has several series if `detailed_metric` or `value_to_metric` counts values of requests separately.

use std::borrow::Cow;
use std::hash::Hash;
use std::ops::AddAssign;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use crate::matcher::RuleSet;
use crate::model::rule::Rule;
use crate::model::stats::{ReserveCounts, RuleSeries, RuleStats};
use weir_common::metric_families;
use weir_common::metrics::{MetricFamily, MetricSink, OTHER, SampleValue};

type Pick = fn(&RuleStats) -> &AtomicU64;
type PickResults = fn(&ReserveCounts) -> &[(&'static str, u64)];

const LABELS: &[&str] = &["domain", "rule"];

const FAMILIES: [(MetricFamily, Pick); 6] = [
    (of_rule("rule_hits", "Hits requested"), |stats| &stats.total_hits),
    (of_rule("rule_over_limit", "Hits over the limit"), |stats| &stats.over_limit),
    (of_rule("rule_near_limit", "Hits near the limit"), |stats| &stats.near_limit),
    (of_rule("rule_within_limit", "Hits within the limit"), |stats| &stats.within_limit),
    (of_rule("rule_over_limit_with_local_cache", DENIED_LOCALLY), |stats| {
        &stats.over_limit_with_local_cache
    }),
    (of_rule("rule_shadow_mode", "Hits over the limit passed by shadow mode"), |stats| {
        &stats.shadow_mode
    }),
];
const DENIED_LOCALLY: &str = "Hits over the limit that were denied without the store";

const fn of_rule(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::counter(name, help, LABELS)
}

metric_families! {
    LIMIT_OVER_LIMIT: counter("limit_over_limit", &["domain", "rule", "limit"])
        = "Hits over the limit by the limit that denied them, or would have but for shadow mode (its name or \
           number), for rules with several limits";
    BANS: counter("rule_bans", LABELS) = "Bans that began, of rules with `ban`";
    RESERVATIONS: counter("reservations", &["domain", "rule", "result"]) = "Requests to reserve hits, by result";
    SETTLEMENTS: counter("settlements", &["domain", "rule", "result"])
        = "Reservations that were settled or cancelled, hits that were charged without a reservation \
           (`unknown`), and what the store may not have taken (`lost`)";
    RESERVED_HITS: counter("reserved_hits", LABELS) = "Hits that were reserved";
    SETTLED_HITS: counter("settled_hits", LABELS) = "Hits that reservations were settled with";
    OVERDRAFT_HITS: counter("overdraft_hits", LABELS) = "Hits charged beyond a limit because they had been used";
    SETTLE_RATIO: histogram("settle_ratio", LABELS)
        = "Hits that a reservation was settled with, divided by those that were reserved";
    FOLDED_UPDATES: counter("metrics_folded_updates", &[])
        = "Decisions counted in the series with the labels `other`, because values of requests make more \
           series than metrics.max_series";
}

/// Passes the metrics of all rules to a sink.
pub fn collect_metrics(rules: &RuleSet, sink: &mut dyn MetricSink) {
    let all = series(rules);
    for (i, (family, _)) in FAMILIES.iter().enumerate() {
        sink.family(*family);
        for ((domain, path), counts) in &all {
            let labels = [("domain", *domain), ("rule", path)];
            sink.sample(&labels, SampleValue::Counter(counts[i]));
        }
        if rules.series.folded.get() > 0 {
            let labels = [("domain", OTHER), ("rule", OTHER)];
            sink.sample(&labels, SampleValue::Counter(counts(&rules.series.other)[i]));
        }
    }
    collect_limits(rules, sink);
    collect_bans(rules, sink);
    collect_reservations(rules, sink);
    sink.counter(FOLDED_UPDATES, rules.series.folded.get());
}

/// Passes the counts of each limit of the rules with several.
fn collect_limits(rules: &RuleSet, sink: &mut dyn MetricSink) {
    let mut all = ByLabels::new();
    for rule in rules.rules() {
        for limit in &rule.limit_stats {
            if all.is_new(&limit.over_limit) {
                let count = limit.over_limit.load(Ordering::Relaxed);
                let labels = (rule.domain(), path(rules, rule), &*limit.label);
                all.add(labels, count, |sum, more| *sum += more);
            }
        }
    }
    sink.family(LIMIT_OVER_LIMIT);
    for ((domain, path, label), count) in all.list {
        let labels = [("domain", domain), ("rule", &path), ("limit", label)];
        sink.sample(&labels, SampleValue::Counter(count));
    }
}

fn collect_bans(set: &RuleSet, sink: &mut dyn MetricSink) {
    let mut all = ByLabels::new();
    for rule in set.rules() {
        if let Some(bans) = &rule.bans
            && all.is_new(bans)
        {
            let count = bans.load(Ordering::Relaxed);
            all.add((rule.domain(), path(set, rule)), count, |sum, more| *sum += more);
        }
    }
    sink.family(BANS);
    for ((domain, path), count) in all.list {
        sink.sample(&[("domain", domain), ("rule", &path)], SampleValue::Counter(count));
    }
}

fn collect_reservations(set: &RuleSet, sink: &mut dyn MetricSink) {
    let mut all = ByLabels::new();
    for rule in set.rules() {
        if let Some(stats) = &rule.reserve_stats
            && all.is_new(stats)
        {
            all.add((rule.domain(), path(set, rule)), stats.counts(), |sum, more| sum.add(&more));
        }
    }
    let rules = &all.list;
    let families: [(MetricFamily, PickResults); 2] = [
        (RESERVATIONS, |counts| &counts.reservations),
        (SETTLEMENTS, |counts| &counts.settlements),
    ];
    for (family, pick) in families {
        sink.family(family);
        for ((domain, path), counts) in rules {
            for (result, count) in pick(counts) {
                let labels = [("domain", *domain), ("rule", path), ("result", *result)];
                sink.sample(&labels, SampleValue::Counter(*count));
            }
        }
    }
    for (i, family) in [RESERVED_HITS, SETTLED_HITS, OVERDRAFT_HITS].into_iter().enumerate() {
        sink.family(family);
        for ((domain, path), counts) in rules {
            let labels = [("domain", *domain), ("rule", path)];
            sink.sample(&labels, SampleValue::Counter(counts.hits[i]));
        }
    }
    sink.family(SETTLE_RATIO);
    for ((domain, path), counts) in rules {
        let labels = [("domain", *domain), ("rule", path)];
        sink.sample(&labels, SampleValue::Histogram(&counts.ratio));
    }
}

/// The counts of a series, one for each of [`FAMILIES`].
type Counts = [u64; FAMILIES.len()];

fn counts(stats: &RuleStats) -> Counts {
    FAMILIES.map(|(_, pick)| pick(stats).load(Ordering::Relaxed))
}

/// Returns the domain, the path and the counts of all rules in order, and then of the series of requests' values.
fn series(set: &RuleSet) -> Vec<((&str, Cow<'_, str>), Counts)> {
    let mut all = ByLabels::new();
    let sum = |counts: &mut Counts, more: Counts| {
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    };
    for rule in set.rules() {
        if all.is_new(&rule.stats) {
            all.add((rule.domain(), path(set, rule)), counts(&rule.stats), sum);
        }
    }
    let of_rules = set.rules().filter_map(|rule| Some((rule.domain(), rule.series.as_ref()?)));
    let of_overrides = set.domains.iter();
    let of_overrides =
        of_overrides.filter_map(|(name, domain)| Some((&**name, domain.override_series.as_ref()?)));
    for (domain, series) in of_rules.chain(of_overrides) {
        if all.is_new(series) {
            for (path, counts) in series.snapshot(counts) {
                all.add((domain, Cow::Owned(path.to_string())), counts, sum);
            }
        }
    }
    all.list
}

/// Returns the label of a rule.
fn path<'r>(set: &RuleSet, rule: &'r Rule) -> Cow<'r, str> {
    set.domain(rule.domain()).map_or_else(|| rule.path().into(), |domain| domain.rule_path(rule))
}

/// Hits since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HitTotals {
    /// All hits.
    pub hits: u64,
    /// Hits over the limit.
    pub over_limit: u64,
    /// Hits within the limit, but near it.
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

/// The hits of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTotals<'a> {
    /// The domain of the rule.
    pub domain: &'a str,
    /// The path of the rule; none for the limits that were sent with requests of the domain.
    pub rule: Option<&'a str>,
    /// The hits.
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

/// Returns the counts of all rules, in their order, and then those of the limits that were sent with requests of
/// each domain. The second value has the hits of all series beyond the cap.
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

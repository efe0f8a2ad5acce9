//! The metrics of the active rules.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{ReserveStats, Rule, RuleSeries, RuleSet, RuleStats};
use weir_common::metrics::{MetricFamily, MetricSink, OTHER, SampleValue};

type Pick = fn(&RuleStats) -> &AtomicU64;

const LABELS: &[&str] = &["domain", "rule"];

const FAMILIES: [(MetricFamily, Pick); 6] = [
    (MetricFamily::counter("rule_hits", "Hits requested", LABELS), |s| &s.total_hits),
    (MetricFamily::counter("rule_over_limit", "Hits over the limit", LABELS), |s| &s.over_limit),
    (MetricFamily::counter("rule_near_limit", "Hits near the limit", LABELS), |s| &s.near_limit),
    (MetricFamily::counter("rule_within_limit", "Hits within the limit", LABELS), |s| {
        &s.within_limit
    }),
    (
        MetricFamily::counter(
            "rule_over_limit_with_local_cache",
            "Hits over the limit that were denied without the store",
            LABELS,
        ),
        |s| &s.over_limit_with_local_cache,
    ),
    (
        MetricFamily::counter(
            "rule_shadow_mode",
            "Hits over the limit passed by shadow mode",
            LABELS,
        ),
        |s| &s.shadow_mode,
    ),
];

const LIMIT_OVER_LIMIT: MetricFamily = MetricFamily::counter(
    "limit_over_limit",
    "Hits over the limit by the limit that denied them, or would have but for shadow mode (its name or \
     number), for rules with several limits",
    &["domain", "rule", "limit"],
);
const RESERVATIONS: MetricFamily = MetricFamily::counter(
    "reservations",
    "Requests to reserve hits, by result",
    &["domain", "rule", "result"],
);
const SETTLEMENTS: MetricFamily = MetricFamily::counter(
    "settlements",
    "Reservations that were settled or cancelled, hits that were charged without a reservation \
     (`unknown`), and what the store may not have taken (`lost`)",
    &["domain", "rule", "result"],
);
const RESERVED_HITS: MetricFamily =
    MetricFamily::counter("reserved_hits", "Hits that were reserved", LABELS);
const SETTLED_HITS: MetricFamily =
    MetricFamily::counter("settled_hits", "Hits that reservations were settled with", LABELS);
const OVERDRAFT_HITS: MetricFamily = MetricFamily::counter(
    "overdraft_hits",
    "Hits charged beyond a limit because they had been used",
    LABELS,
);
const SETTLE_RATIO: MetricFamily = MetricFamily::histogram(
    "settle_ratio",
    "Hits that a reservation was settled with, divided by those that were reserved",
    LABELS,
);
const FOLDED_UPDATES: MetricFamily = MetricFamily::counter(
    "metrics_folded_updates",
    "Decisions counted in the series with the labels `other`, because values of requests make more \
     series than metrics.max_series",
    &[],
);

/// Lists the metrics of the active rules, if there are any.
pub fn collect_metrics(rules: Option<&RuleSet>, sink: &mut dyn MetricSink) {
    let all = rules.map(series).unwrap_or_default();
    for (i, (family, _)) in FAMILIES.iter().enumerate() {
        sink.family(*family);
        for ((domain, path), counts) in &all {
            let labels = [("domain", *domain), ("rule", path)];
            sink.sample(&labels, SampleValue::Counter(counts[i]));
        }
        let budget = rules.map(|rules| &rules.series);
        if let Some(budget) = budget.filter(|budget| budget.folded.get() > 0) {
            let labels = [("domain", OTHER), ("rule", OTHER)];
            sink.sample(&labels, SampleValue::Counter(counts(&budget.other)[i]));
        }
    }
    sink.family(LIMIT_OVER_LIMIT);
    for rule in rules.iter().flat_map(|rules| rules.rules()) {
        for limit in &rule.limit_stats {
            let labels =
                [("domain", rule.domain()), ("rule", rule.path()), ("limit", &*limit.label)];
            let count = limit.over_limit.load(Ordering::Relaxed);
            sink.sample(&labels, SampleValue::Counter(count));
        }
    }
    collect_reservations(rules, sink);
    sink.counter(FOLDED_UPDATES, rules.map_or(0, |rules| rules.series.folded.get()));
}

/// Lists the metrics of rules with `reserve`.
fn collect_reservations(rules: Option<&RuleSet>, sink: &mut dyn MetricSink) {
    let mut all: Vec<(&Rule, &ReserveStats)> = Vec::new();
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for rule in rules.iter().flat_map(|rules| rules.rules()) {
        if let Some(stats) = &rule.reserve_stats
            && seen.insert((rule.domain(), rule.path()))
        {
            all.push((rule, stats));
        }
    }
    for (family, pick) in [
        (RESERVATIONS, ReserveStats::reservations as fn(&ReserveStats) -> Vec<(&'static str, u64)>),
        (SETTLEMENTS, ReserveStats::settlements),
    ] {
        sink.family(family);
        for (rule, stats) in &all {
            for (result, count) in pick(stats) {
                let labels = [("domain", rule.domain()), ("rule", rule.path()), ("result", result)];
                sink.sample(&labels, SampleValue::Counter(count));
            }
        }
    }
    for (i, family) in [RESERVED_HITS, SETTLED_HITS, OVERDRAFT_HITS].into_iter().enumerate() {
        sink.family(family);
        for (rule, stats) in &all {
            let labels = [("domain", rule.domain()), ("rule", rule.path())];
            sink.sample(&labels, SampleValue::Counter(stats.hits()[i]));
        }
    }
    sink.family(SETTLE_RATIO);
    for (rule, stats) in &all {
        let labels = [("domain", rule.domain()), ("rule", rule.path())];
        sink.sample(&labels, SampleValue::Histogram(&stats.ratio()));
    }
}

/// The counts of a series, one for each of [`FAMILIES`].
type Counts = [u64; FAMILIES.len()];

fn counts(stats: &RuleStats) -> Counts {
    FAMILIES.map(|(_, pick)| pick(stats).load(Ordering::Relaxed))
}

/// The series of a set, each once.
#[derive(Default)]
struct AllSeries<'a> {
    list: Vec<((&'a str, Cow<'a, str>), Counts)>,
    /// The index of each.
    index: HashMap<(&'a str, Cow<'a, str>), usize>,
}

impl<'a> AllSeries<'a> {
    /// Adds to the counts of a series. Dots in keys and values may give several rules the same path.
    fn add(&mut self, domain: &'a str, path: Cow<'a, str>, more: Counts) {
        let key = (domain, path);
        if let Some((_, counts)) = self.index.get(&key).and_then(|at| self.list.get_mut(*at)) {
            counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
            return;
        }
        self.index.insert(key.clone(), self.list.len());
        self.list.push((key, more));
    }
}

/// Returns the domain, the path and the counts of all rules in their order, and then of the series
/// that values distinguish.
fn series(set: &RuleSet) -> Vec<((&str, Cow<'_, str>), Counts)> {
    let mut all = AllSeries::default();
    // Rules of one name share their counts after a reload.
    let mut seen: HashSet<*const RuleStats> = HashSet::new();
    for rule in set.rules() {
        if seen.insert(Arc::as_ptr(&rule.stats)) {
            all.add(rule.domain(), rule.path().into(), counts(&rule.stats));
        }
    }
    let of_rules = set.rules().filter_map(|rule| Some((rule.domain(), rule.series.as_ref()?)));
    let of_overrides = set.domains.iter();
    let of_overrides =
        of_overrides.filter_map(|(name, domain)| Some((&**name, domain.override_series.as_ref()?)));
    let mut seen: HashSet<*const RuleSeries> = HashSet::new();
    for (domain, series) in of_rules.chain(of_overrides) {
        if seen.insert(Arc::as_ptr(series)) {
            for (path, counts) in series.snapshot(counts) {
                all.add(domain, Cow::Owned(path.to_string()), counts);
            }
        }
    }
    all.list
}

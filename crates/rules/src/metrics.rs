//! The metrics of the active rules.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::RuleSet;
use crate::model::stats::{ReserveCounts, RuleStats};
use crate::totals::ByLabels;
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
    for ((domain, path, label), count) in rules.map(limits).unwrap_or_default() {
        let labels = [("domain", domain), ("rule", path), ("limit", label)];
        sink.sample(&labels, SampleValue::Counter(count));
    }
    let reserving = rules.map(reserving).unwrap_or_default();
    collect_reservations(&reserving, sink);
    sink.counter(FOLDED_UPDATES, rules.map_or(0, |rules| rules.series.folded.get()));
}

/// Lists the metrics of rules with `reserve`, which have a domain and a path.
fn collect_reservations(rules: &[((&str, &str), ReserveCounts)], sink: &mut dyn MetricSink) {
    for (family, pick) in [
        (
            RESERVATIONS,
            (|counts| &counts.reservations) as fn(&ReserveCounts) -> &[(&'static str, u64)],
        ),
        (SETTLEMENTS, |counts| &counts.settlements),
    ] {
        sink.family(family);
        for ((domain, path), counts) in rules {
            for (result, count) in pick(counts) {
                let labels = [("domain", *domain), ("rule", *path), ("result", *result)];
                sink.sample(&labels, SampleValue::Counter(*count));
            }
        }
    }
    for (i, family) in [RESERVED_HITS, SETTLED_HITS, OVERDRAFT_HITS].into_iter().enumerate() {
        sink.family(family);
        for ((domain, path), counts) in rules {
            let labels = [("domain", *domain), ("rule", *path)];
            sink.sample(&labels, SampleValue::Counter(counts.hits[i]));
        }
    }
    sink.family(SETTLE_RATIO);
    for ((domain, path), counts) in rules {
        let labels = [("domain", *domain), ("rule", *path)];
        sink.sample(&labels, SampleValue::Histogram(&counts.ratio));
    }
}

/// The counts of a series, one for each of [`FAMILIES`].
type Counts = [u64; FAMILIES.len()];

fn counts(stats: &RuleStats) -> Counts {
    FAMILIES.map(|(_, pick)| pick(stats).load(Ordering::Relaxed))
}

/// Returns the domain, the path and the counts of all rules in their order, and then of the series
/// that values distinguish.
fn series(set: &RuleSet) -> Vec<((&str, Cow<'_, str>), Counts)> {
    let mut all = ByLabels::new();
    let sum = |counts: &mut Counts, more: Counts| {
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    };
    for rule in set.rules() {
        if all.is_new(&rule.stats) {
            all.add((rule.domain(), rule.path().into()), counts(&rule.stats), sum);
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

/// Returns the domain and the path of rules with several limits, the label of each limit, and its count.
fn limits(set: &RuleSet) -> Vec<((&str, &str, &str), u64)> {
    let mut all = ByLabels::new();
    for rule in set.rules() {
        for limit in &rule.limit_stats {
            if all.is_new(&limit.over_limit) {
                let count = limit.over_limit.load(Ordering::Relaxed);
                let labels = (rule.domain(), rule.path(), &*limit.label);
                all.add(labels, count, |sum, more| *sum += more);
            }
        }
    }
    all.list
}

/// Returns the domain, the path and the counts of rules with `reserve`.
fn reserving(set: &RuleSet) -> Vec<((&str, &str), ReserveCounts)> {
    let mut all = ByLabels::new();
    for rule in set.rules() {
        if let Some(stats) = &rule.reserve_stats
            && all.is_new(stats)
        {
            all.add((rule.domain(), rule.path()), stats.counts(), |sum, more| sum.add(&more));
        }
    }
    all.list
}

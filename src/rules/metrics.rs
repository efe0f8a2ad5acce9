//! The metrics of the active rules.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::{Rule, RuleSet, RuleStats};
use crate::metrics::{MetricFamily, MetricSink, MetricSource, SampleValue};

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

impl MetricSource for ArcSwapOption<RuleSet> {
    fn collect(&self, sink: &mut dyn MetricSink) {
        let rules = self.load();
        let rules = rules.as_deref().map(series).unwrap_or_default();
        for (family, pick) in FAMILIES {
            sink.family(family);
            for series in &rules {
                let labels = [("domain", series.domain), ("rule", series.path)];
                let count = series.stats.iter();
                let count = count.map(|stats| pick(stats).load(Ordering::Relaxed)).sum();
                sink.sample(&labels, SampleValue::Counter(count));
            }
        }
    }
}

/// The counts of all rules with one name.
struct Series<'a> {
    domain: &'a str,
    path: &'a str,
    stats: Vec<&'a Arc<RuleStats>>,
}

/// Returns the series of all rules, in their order. Rules have the same name if their keys contain
/// dots: they are one series.
fn series(set: &RuleSet) -> Vec<Series<'_>> {
    let mut index: HashMap<&str, usize> = HashMap::with_capacity(set.rules.len());
    let mut all: Vec<Series<'_>> = Vec::with_capacity(set.rules.len());
    for rule in set.rules.iter().map(AsRef::<Rule>::as_ref) {
        let at = *index.entry(&rule.name).or_insert(all.len());
        match all.get_mut(at) {
            Some(series) if !series.stats.iter().any(|stats| Arc::ptr_eq(stats, &rule.stats)) => {
                series.stats.push(&rule.stats);
            }
            Some(_) => {}
            None => all.push(Series {
                domain: rule.domain(),
                path: rule.path(),
                stats: vec![&rule.stats],
            }),
        }
    }
    all
}

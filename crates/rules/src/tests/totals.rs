//! The totals of rules.

use std::sync::atomic::Ordering::Relaxed;

use super::{file, good};
use crate::{HitTotals, RuleOptions, RuleSet, RuleStats, collect_metrics, totals};
use weir_common::metrics::{MetricFamily, MetricSink, SampleValue};

const RULES: &str = "domain: d
descriptors:
  - {key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: a.b, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: a
    descriptors:
      - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
";

fn count(stats: &RuleStats, hits: u64) {
    stats.total_hits.fetch_add(hits, Relaxed);
    stats.over_limit.fetch_add(hits / 2, Relaxed);
    stats.shadow_mode.fetch_add(1, Relaxed);
}

/// Each row as `domain rule hits over shadow`.
fn rows(set: &RuleSet) -> Vec<String> {
    let (rows, _) = totals(set);
    let row = rows.iter().map(|row| {
        let HitTotals { hits, over_limit, shadow_mode, .. } = row.totals;
        let rule = row.rule.unwrap_or("-");
        format!("{} {rule} {hits} {over_limit} {shadow_mode}", row.domain)
    });
    row.collect()
}

#[test]
fn a_rule_has_the_hits_of_its_series_and_those_of_the_same_path_are_one() {
    let set = good(RULES);
    let rules: Vec<_> = set.rules().collect();
    count(&rules[0].stats, 10);
    let series = rules[0].series.as_ref().unwrap();
    series.update("user_ann", |stats| count(stats, 4));
    series.update("user_bob", |stats| count(stats, 2));
    count(&rules[1].stats, 6);
    count(&rules[2].stats, 8);
    let sent = set.domain("d").unwrap().override_series.as_ref().unwrap();
    sent.update("sent", |stats| count(stats, 20));
    let wanted = ["d user 16 8 3", "d a.b 14 7 2", "d free 0 0 0", "d - 20 10 1"];
    assert_eq!(rows(&set), wanted);

    // After a reload, rules of one path share the counts of one of them, which are counted once.
    let files = [file("rules.yaml", RULES)];
    let (reloaded, problems) = RuleSet::compile(&files, &RuleOptions::default(), Some(&set));
    assert_eq!(problems, []);
    let wanted = ["d user 16 8 3", "d a.b 8 4 1", "d free 0 0 0", "d - 20 10 1"];
    assert_eq!(rows(&reloaded), wanted);
}

#[test]
fn series_beyond_the_cap_belong_to_no_rule() {
    let options = RuleOptions { max_series: 5, ..RuleOptions::default() };
    let (set, _) = RuleSet::compile(&[file("rules.yaml", RULES)], &options, None);
    let rule = set.rules().next().unwrap();
    for user in ["user_ann", "user_bob"] {
        rule.series.as_ref().unwrap().update(user, |stats| count(stats, 1));
    }
    let (rows, other) = totals(&set);
    assert_eq!((rows[0].totals.hits, other.hits), (1, 1));
    let json = serde_json::to_value(rows[0]).unwrap();
    let wanted = serde_json::json!({
        "domain": "d", "rule": "user", "hits": 1, "over_limit": 0, "near_limit": 0,
        "shadow_mode": 1,
    });
    assert_eq!(json, wanted);
}

/// The labels of rules in metrics.
#[derive(Default)]
struct Labels(Vec<String>);

impl MetricSink for Labels {
    fn family(&mut self, _: MetricFamily) {}

    fn sample(&mut self, labels: &[(&str, &str)], _: SampleValue<'_>) {
        self.0
            .extend(labels.iter().find(|(name, _)| *name == "rule").map(|(_, v)| (*v).to_owned()));
    }
}

#[test]
fn dots_of_keys_and_values_are_underscores_where_options_say_so() {
    let rules = "domain: a.b\ndescriptors:\n\
                 - { key: h.x, value: www.a.b, rates: [1/s, 5/d], descriptors: [{ key: k, rate: 1/d }] }\n\
                 - { key: ip, network: 10.0.0.0/8, detailed_metric: true, rate: 1/d }\n";
    for (replace_dots, paths, detailed, sent) in [
        (false, ["h.x_www.a.b", "h.x_www.a.b.k", "ip_10.0.0.0/8"], "ip_10.0.0.1", "x.y.z"),
        (true, ["h_x_www_a_b", "h_x_www_a_b.k", "ip_10_0_0_0/8"], "ip_10_0_0_1", "x_y.z"),
    ] {
        let options = RuleOptions { replace_dots, ..RuleOptions::default() };
        let (set, problems) = RuleSet::compile(&[file("r.yaml", rules)], &options, None);
        assert!(problems.is_empty(), "{problems:?}");
        let mut labels = Labels::default();
        collect_metrics(&set, &mut labels);
        labels.0.dedup();
        let (first, limits) = labels.0.split_at(paths.len());
        assert_eq!(first, paths);
        assert_eq!(limits.last().map(String::as_str), Some(paths[0]), "of its limits");
        let domain = set.domain("a.b").unwrap();
        let entries = [("ip", "10.0.0.1")];
        let found = domain.find(&entries).unwrap();
        assert_eq!(domain.metric_path(found.rule, &entries), detailed);
        assert_eq!(domain.override_path(&[("x.y", "v.w"), ("z", "")]), sent);
    }
}

//! The series of metrics that values of requests distinguish.

use super::*;
use weir_common::metrics::{CappedSink, MergedFamilies, MetricSource};
use weir_controls::ActiveRules;

const RULES: &str = "domain: d
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: user
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
    descriptors:
      - key: path
        rate_limit: {unit: minute, requests_per_unit: 9}
  - key: file
    value: a/*
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: shared
    value: s/*
    share_threshold: true
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: detail
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 9}
  - key: two
    rate_limits:
      - {name: burst, unit: second, requests_per_unit: 1}
      - {unit: hour, requests_per_unit: 2}
      - {name: trial, unit: day, requests_per_unit: 1, shadow_mode: true}
";

/// Returns the samples of a family, without its name and those that are 0.
fn samples(rules: RuleSet, max: usize, family: &str) -> (Vec<String>, RuleSet) {
    let active = ActiveRules::of(rules);
    let mut families = MergedFamilies::default();
    let mut capped = CappedSink::new(&mut families, max);
    active.collect(&mut capped);
    capped.finish();
    let prefix = format!("{family} ");
    let lines = families.lines().into_iter();
    let lines = lines.filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned()));
    let mut lines: Vec<_> = lines.filter(|line| !line.ends_with(" 0")).collect();
    lines.sort();
    let rules = active.load_full().unwrap();
    drop(active);
    (lines, Arc::into_inner(rules).unwrap())
}

fn line(path: &str, count: u64) -> String {
    format!(r#"[("domain", "d"), ("rule", "{path}")] {count}"#)
}

fn ask_path(bench: &Bench, entries: &[Entry<'_>]) {
    let descriptor = Descriptor { entries, ..Default::default() };
    bench.send(&[descriptor], 0);
}

#[test]
fn values_distinguish_the_metrics_of_rules_that_ask_for_it() {
    let bench = Bench::new(RULES);
    bench.ask(&[("plain", "x"), ("plain", "y"), ("user", "ann"), ("user", "bob"), ("user", "")]);
    bench.ask(&[("file", "a/1"), ("shared", "s/1"), ("shared", "s/2"), ("detail", "x")]);
    bench.ask(&[("detail", "")]);
    ask_path(&bench, &[("user", "ann"), ("path", "/")]);
    let limit = Some(Override { requests_per_unit: 5, unit: 2, unit_multiplier: None });
    let entries = [("sent", "x"), ("empty", "")];
    bench.send(&[Descriptor { entries: &entries, limit, ..Default::default() }], 3);
    let (hits, _) = samples(bench.rules, 100, "rule_hits");
    let mut wanted = [
        line("plain", 2),
        line("user", 1),
        line("user_ann", 1),
        line("user_bob", 1),
        line("user_ann.path", 1),
        line("file_a/1", 1),
        line("shared_s/*", 2),
        line("detail_x", 1),
        line("detail_", 1),
        line("sent.empty", 3),
    ];
    wanted.sort();
    assert_eq!(hits, wanted);
}

#[test]
fn values_beyond_the_cap_are_one_series_and_reloads_keep_the_others() {
    let options = RuleOptions { max_series: 9, ..RuleOptions::default() };
    let compile = |previous: Option<&RuleSet>, rules: &str| {
        let file = RuleFile { name: "test.yaml".into(), text: rules.into() };
        let (rules, problems) = RuleSet::compile(&[file], &options, previous);
        assert_eq!(problems, []);
        rules
    };
    let mut bench = Bench::new(RULES);
    // Seven rules leave room for two values.
    bench.rules = compile(None, RULES);
    bench.ask(&[("user", "a"), ("user", "b"), ("user", "c"), ("user", "d"), ("user", "a")]);
    let other = r#"[("domain", "other"), ("rule", "other")] 2"#.to_owned();
    let wanted = vec![line("user_a", 2), line("user_b", 1), other];
    let (hits, rules) = samples(bench.rules, 9, "rule_hits");
    assert_eq!(hits, wanted);

    let reloaded = compile(Some(&rules), RULES);
    drop(rules);
    let (hits, reloaded) = samples(reloaded, 9, "rule_hits");
    assert_eq!(hits, wanted);

    // Without the rule its series are gone, and their room is free.
    let changed = RULES.replace("key: user", "key: client");
    bench.rules = compile(Some(&reloaded), &changed);
    drop(reloaded);
    bench.ask(&[("client", "a"), ("client", "b"), ("client", "c")]);
    let (hits, _) = samples(bench.rules, 9, "rule_hits");
    let other = r#"[("domain", "other"), ("rule", "other")] 3"#.to_owned();
    assert_eq!(hits, [line("client_a", 1), line("client_b", 1), other]);
}

#[test]
fn the_limit_that_denies_or_would_deny_is_counted() {
    let bench = Bench::new(RULES);
    bench.ask(&[("two", "x")]);
    bench.ask(&[("two", "x")]);
    bench.clock.advance(SECOND);
    bench.ask(&[("two", "x")]);
    bench.clock.advance(SECOND);
    bench.ask(&[("two", "x")]);
    let (denied, rules) = samples(bench.rules, 100, "limit_over_limit");
    let line = |limit: &str, count: u64| {
        format!(r#"[("domain", "d"), ("rule", "two"), ("limit", "{limit}")] {count}"#)
    };
    let wanted = vec![line("1", 1), line("burst", 1), line("trial", 1)];
    assert_eq!(denied, wanted);
    let file = RuleFile { name: "test.yaml".into(), text: RULES.into() };
    let (reloaded, _) = RuleSet::compile(&[file], &RuleOptions::default(), Some(&rules));
    assert_eq!(samples(reloaded, 100, "limit_over_limit").0, wanted);
}

/// Dots in keys give both rules the path `a.b`.
const SAME_PATH: &str = "domain: d
descriptors:
  - key: a
    descriptors:
      - key: b
        rate_limits:
          - {name: hour, unit: hour, requests_per_unit: 9}
          - {name: day, unit: day, requests_per_unit: 5}
        reserve: {id: id, settle: settle, estimate: 3, at_most: 3}
  - key: a.b
    rate_limits:
      - {name: hour, unit: hour, requests_per_unit: 9}
      - {name: day, unit: day, requests_per_unit: 5}
    reserve: {id: id, settle: settle, estimate: 3, at_most: 3}
";

#[test]
fn rules_of_one_path_share_their_samples() {
    let bench = Bench::new(SAME_PATH);
    let start = |id| [vec![("a", "x"), ("b", "y"), ("id", id)], vec![("a.b", "x"), ("id", id)]];
    for entries in start("1").iter().chain(&start("2")).chain(&start("3")) {
        ask_path(&bench, entries);
    }
    for mut entries in start("1") {
        entries.push(("settle", ""));
        let descriptor =
            Descriptor { entries: &entries, hits_addend: Some(3), ..Default::default() };
        bench.send(&[descriptor], 0);
    }
    let with =
        |label: &str, count: u64| format!(r#"[("domain", "d"), ("rule", "a.b"){label}] {count}"#);
    let mut rules = bench.rules;
    for (family, wanted) in [
        (
            "reservations",
            vec![with(r#", ("result", "allowed")"#, 4), with(r#", ("result", "denied")"#, 2)],
        ),
        ("settlements", vec![with(r#", ("result", "settled")"#, 2)]),
        ("reserved_hits", vec![with("", 10)]),
        ("settled_hits", vec![with("", 6)]),
        ("limit_over_limit", vec![with(r#", ("limit", "day")"#, 2)]),
    ] {
        let shown;
        (shown, rules) = samples(rules, 100, family);
        assert_eq!(shown, wanted, "{family}");
    }
}

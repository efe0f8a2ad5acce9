//! Tests of which patches fit a rule, against a model that writes the patched rule and reads its text.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::{limits, patched};
use crate::{Loaded, Problems, Rule, RuleOptions};

/// Keys of a limit, `null` to remove one.
type Keys = BTreeMap<&'static str, &'static str>;

/// What patches set: keys that go together or do not.
const SETS: [&[(&str, &str)]; 19] = [
    &[("algorithm", "fixed_window")],
    &[("algorithm", "gcra")],
    &[("algorithm", "gcra"), ("requests_per_unit", "4")],
    &[("algorithm", "concurrency")],
    &[("algorithm", "concurrency"), ("unit", "null")],
    &[("algorithm", "bucketed_window")],
    &[("algorithm", "null")],
    &[("burst", "3"), ("requests_per_unit", "6")],
    &[("burst", "null")],
    &[("buckets", "5")],
    &[("buckets", "null"), ("requests_per_unit", "7")],
    &[("unit", "minute")],
    &[("unit", "null")],
    &[("period", "2h")],
    &[("period", "null")],
    &[("charge_denied", "true"), ("requests_per_unit", "8")],
    &[("charge_denied", "null")],
    &[("max_debt", "2")],
    &[("max_debt", "null")],
];

/// Valid rules under `charge: each`, the first four also under `together`.
const DELIVERED: [&[(&str, &str)]; 7] = [
    &[("period", "15m")],
    &[("unit", "hour")],
    &[("unit", "hour"), ("algorithm", "gcra"), ("burst", "9")],
    &[("unit", "hour"), ("algorithm", "bucketed_window"), ("buckets", "4")],
    &[("unit", "hour"), ("charge_denied", "true")],
    &[("unit", "hour"), ("algorithm", "gcra"), ("charge_denied", "true"), ("max_debt", "1")],
    &[("algorithm", "concurrency")],
];

fn one_of(keys: &'static [&'static [(&'static str, &'static str)]]) -> impl Strategy<Value = Keys> {
    select(keys).prop_map(|keys| keys.iter().copied().collect())
}

fn yaml(keys: &Keys) -> String {
    let keys = keys.iter().map(|(key, value)| format!("{key}: {value}"));
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}

/// The delivered keys with patches, in their order.
fn merged(delivered: &Keys, patches: &[Keys], fitting: &[usize]) -> Keys {
    let mut merged = delivered.clone();
    for patch in fitting.iter().map(|index| &patches[*index]) {
        // One of these two replaces the other.
        for (key, other) in [("unit", "period"), ("period", "unit")] {
            if patch.get(key).is_some_and(|value| *value != "null") {
                merged.remove(other);
            }
        }
        merged.extend(patch.clone());
    }
    merged.retain(|_, value| *value != "null");
    merged
}

fn text(charge: &str, keys: &Keys) -> String {
    let rate_limit = yaml(keys);
    format!("domain: d\ncharge: {charge}\ndescriptors: [{{ key: a, rate_limit: {rate_limit} }}]\n")
}

/// The limit of a rule; none if it is invalid.
fn read(charge: &str, keys: &Keys) -> Option<Vec<String>> {
    let files = vec![super::file("rules.yaml", &text(charge, keys))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    loaded.is_good().then(|| limits(&loaded.rules))
}

/// The patches that fit, one by one.
fn model(charge: &str, delivered: &Keys, patches: &[Keys]) -> Vec<usize> {
    let fits = |fitting: &[usize]| read(charge, &merged(delivered, patches, fitting)).is_some();
    let mut fitting = Vec::new();
    for index in 0..patches.len() {
        let mut more = fitting.clone();
        more.push(index);
        if fits(&more) {
            fitting = more;
        }
    }
    fitting
}

fn list(patches: &[Keys]) -> String {
    let patches = patches.iter().map(|keys| format!("- {{ match: {{}}, set: {} }}\n", yaml(keys)));
    patches.collect()
}

fn lines(rule: &Rule) -> Vec<u32> {
    rule.patches.iter().filter_map(|origin| origin.position.line()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_patches_fit_that_the_model_finds(
        (charge, rule) in prop_oneof![
            one_of(&DELIVERED).prop_map(|rule| ("each", rule)),
            one_of(&DELIVERED[..4]).prop_map(|rule| ("together", rule)),
        ],
        patches in prop::collection::vec(one_of(&SETS), 1..7),
    ) {
        let (set, report) = patched(&text(charge, &rule), &format!("patches:\n{}", list(&patches)));
        let wanted = model(charge, &rule, &patches);
        let wanted_lines: Vec<u32> = wanted.iter().map(|index| *index as u32 + 2).collect();
        prop_assert_eq!(lines(set.rules().next().unwrap()), wanted_lines);
        prop_assert_eq!(report.failed_patches, patches.len() - wanted.len(), "{:#?}", report);
        prop_assert_eq!(Some(limits(&set)), read(charge, &merged(&rule, &patches, &wanted)));
    }

    #[test]
    fn a_charge_counts_as_if_the_rule_file_had_it(
        rules in prop::collection::vec(one_of(&DELIVERED), 1..4),
        patches in prop::collection::vec(one_of(&SETS), 0..4),
    ) {
        let rule = |(rule, index)| format!("- {{ key: a{index}, rate_limit: {} }}\n", yaml(rule));
        let rules: String = rules.iter().zip(0..).map(rule).collect();
        let load = |charge: &str, patch: &str| {
            let rules = format!("domain: d\n{charge}descriptors:\n{rules}");
            let patches = format!("patches:\n{patch}{}", list(&patches));
            let patches = if patches == "patches:\n" { "patches: []" } else { &*patches };
            let loaded = super::load(vec![super::file("rules.yaml", &rules)], &[patches], false);
            let errors = loaded.problems.iter().map(|problem| problem.message.clone());
            (limits(&loaded.rules), errors.collect::<Vec<_>>(), loaded.overlay.failed_patches)
        };
        let patch = "- { match: {}, set_domain: { charge: together } }\n";
        prop_assert_eq!(load("", patch), load("charge: together\n", ""));
    }
}

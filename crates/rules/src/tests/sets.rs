//! Several files, and one set of rules after another.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{describe, file, find, good};
use crate::{RuleOptions, RuleSet};

fn merging() -> RuleOptions {
    RuleOptions { merge_domains: true, ..RuleOptions::default() }
}

const A: &str = "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day } }]\n";
const B: &str = "domain: d\ndescriptors: [{ key: b, rate_limit: { unit: day } }]\n";

#[test]
fn a_domain_in_two_files_is_an_error_unless_domains_are_merged() {
    let files = [file("a.yaml", A), file("b.yaml", B)];
    let (_, problems) = RuleSet::compile(&files, &RuleOptions::default(), None);
    let reported: Vec<_> = problems.iter().map(describe).collect();
    assert_eq!(reported, ["b.yaml:1:9: error: duplicate domain 'd' in config file «d»"]);

    let (set, problems) = RuleSet::compile(&files, &merging(), None);
    assert!(problems.is_empty());
    assert_eq!(find(&set, &[("a", "")]), Some("a"));
    assert_eq!(find(&set, &[("b", "")]), Some("b"));
    assert_eq!(set.domains(), 1);
    let origins: Vec<_> = set.rules().map(|rule| rule.origin.file.to_string()).collect();
    assert_eq!(origins, ["a.yaml", "b.yaml"]);
}

#[test]
fn merged_domains_may_not_have_a_descriptor_twice() {
    let (_, problems) = RuleSet::compile(&[file("a.yaml", A), file("b.yaml", A)], &merging(), None);
    let reported: Vec<_> = problems.iter().map(describe).collect();
    assert_eq!(reported, ["b.yaml:2:22: error: duplicate descriptor composite key 'd.a' «a»"]);
}

#[test]
fn every_problem_of_every_file_is_reported() {
    let files = [
        file("a.yaml", "domain: d\ndescriptors: [{ value: x }, { kye: k }]\n"),
        file("b.yaml", "domain: e\ndescriptors: [\n"),
        file("c.yaml", ""),
        file("d.yaml", "domain: d\ndescriptors: [{ key: k }, { key: k }]\n"),
        file("e.yaml", "domain: f\n"),
    ];
    let (_, problems) = RuleSet::compile(&files, &RuleOptions::default(), None);
    let reported: Vec<_> = problems.iter().map(|problem| problem.to_string()).collect();
    assert_eq!(
        reported,
        [
            "a.yaml:2:15: error: descriptor has empty key",
            "a.yaml:2:29: error: descriptor has empty key",
            "a.yaml:2:31: error: config error, unknown key 'kye'",
            "b.yaml:2:14: error: error loading config file: yaml: line 2: unclosed bracket '['",
            "c.yaml:1:1: error: config file cannot have empty domain",
            "d.yaml:1:9: error: duplicate domain 'd' in config file",
            "d.yaml:2:34: error: duplicate descriptor composite key 'd.k'",
        ]
    );
}

#[test]
fn counters_are_carried_over_to_the_rule_of_the_same_name() {
    let before = good(A);
    before.rules().next().unwrap().stats.total_hits.store(7, Relaxed);
    let files = [file("x.yaml", &A.replace("day", "hour")), file("y.yaml", B)];
    let (after, _) = RuleSet::compile(&files, &merging(), Some(&before));
    let counts: Vec<_> = after
        .rules()
        .map(|rule| (rule.path().to_owned(), rule.stats.total_hits.load(Relaxed)))
        .collect();
    assert_eq!(counts, [("a".to_owned(), 7), ("b".to_owned(), 0)]);
    let stats = |set: &RuleSet| set.rules().next().unwrap().stats.clone();
    assert!(Arc::ptr_eq(&stats(&before), &stats(&after)));
}

#[test]
fn the_dump_has_a_line_for_each_limit() {
    let set = good(
        "domain: d\ndescriptors:\n- key: a\n  value: b\n  shadow_mode: true\n  \
         rate_limit: { unit: minute, requests_per_unit: 5 }\n  descriptors:\n  - key: c\n    \
         quota_mode: true\n    rate_limit: { unit: Week, requests_per_unit: 9 }\n\
         - { key: u, rate_limit: { unlimited: true } }\n- key: none\n",
    );
    assert_eq!(
        set.dump(),
        "d.a_b: unit=MINUTE requests_per_unit=5, shadow_mode: true, quota_mode: false\n\
         d.a_b.c: unit=WEEK requests_per_unit=9, shadow_mode: false, quota_mode: true\n\
         d.u: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
    );
}

//! Other numbers for the limits of rules.

use super::super::index::Index;
use super::super::plans::{Plans, RulesByKey};
use super::*;
use crate::limit::Numbers;

const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - key: path
        value: /a*
        rate_limit: {unit: hour, requests_per_unit: 5}
  - key: tenant
    value: big_one
    rate_limits:
      - {name: fast, unit: second, requests_per_unit: 5}
      - {name: slow, unit: day, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
  - key: bytes
    rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_log}
";

fn limit(n: u32, burst: Option<u32>, name: &str) -> Action {
    Action::Limit(LimitChange { numbers: Numbers { n, burst }, name: name.into() })
}

/// Returns the names of the rules that a control may match.
fn matched(rules: &RuleSet, control: &Control) -> Vec<String> {
    RulesByKey::new(rules).matched_by(control).map(|rule| rule.name.to_string()).collect()
}

#[test]
fn the_rules_that_may_match_too_are_found() {
    let rules = rule_set(RULES);
    let of = |entries: &[(&str, &str)]| matched(&rules, &control(Action::Block, entries));
    assert_eq!(of(&[("user", "ann")]), ["d.user", "d.user.path_/a*"]);
    assert_eq!(of(&[("path", "/abc"), ("user", "ann")]), ["d.user.path_/a*"]);
    assert_eq!(of(&[("tenant", "big_one")]), ["d.tenant_big_one"]);
    assert_eq!(of(&[("tenant", "*")]), ["d.tenant_big_one"]);
    assert_eq!(of(&[("tenant", "small")]), [""; 0]);
    // The matcher reads key and value as one text.
    assert_eq!(of(&[("tenant_big", "one")]), ["d.tenant_big_one"]);
    assert_eq!(of(&[("unknown", "x")]), [""; 0]);
    assert_eq!(of(&[]).len(), 5);
    let elsewhere = Control { domain: "e".into(), ..control(Action::Block, &[("user", "ann")]) };
    assert_eq!(matched(&rules, &elsewhere), [""; 0]);
    let exact = Control { exact: true, ..control(Action::Block, &[("user", "ann")]) };
    assert_eq!(matched(&rules, &exact), ["d.user"]);
}

#[test]
fn plans_are_built_for_the_rules_that_match() {
    let rules = rule_set(RULES);
    let row = Arc::new(control(limit(9, None, "slow"), &[("tenant", "big_one")]));
    let index = Index::new([row]);
    let (plans, error) = Plans::new(index.rows(), &rules, u64::MAX);
    assert_eq!(error, None);
    let plan = |name: &str| rules.rules().find(|rule| &*rule.name == name).unwrap().plan.clone();
    let tenant = plan("d.tenant_big_one").unwrap();
    let changed = plans.get(&tenant, 0).unwrap();
    let n: Vec<_> = changed.limits().iter().map(|limit| limit.requests_per_unit).collect();
    assert_eq!(n, [5, 9]);
    assert_eq!(changed.shape(), tenant.shape(), "counts continue");
    assert!(plans.get(&plan("d.user").unwrap(), 0).is_none());
}

#[test]
fn a_rule_keeps_limits_that_a_change_does_not_fit() {
    let rules = rule_set(RULES);
    let error = |action, entries: &[(&str, &str)]| {
        let index = Index::new([Arc::new(control(action, entries))]);
        Plans::new(index.rows(), &rules, 1_000).1.unwrap().to_string()
    };
    for (action, entries, text) in [
        (limit(9, None, ""), ("tenant", "*"), "write `limit.name`, one of fast, slow"),
        (limit(9, None, "fats"), ("tenant", "*"), "no limit of that name, only fast, slow"),
        (limit(9, Some(9), ""), ("user", "*"), "takes no burst"),
        (limit(1_000, None, ""), ("bytes", "*"), "may take 8000 bytes per key"),
    ] {
        let error = error(action, &[entries]);
        assert!(error.contains(text), "{error}");
    }
}

//! Rules as Envoy Gateway generates them, which has only the reference's fields.

use prost::Message;

use super::{limits, overlay};
use crate::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit};
use crate::xds::Resource;
use crate::{Loaded, OverlayReport, Problems, RuleOptions, RuleSet};

/// The overlay of the documentation.
const PATCHES: &str = "
patches:
- match: { domain: '*', entries: [{ key: '*' }, { key: 'rule-*-match-*', value: '*' }] }
  set: { algorithm: gcra, burst: 20 }
";

/// A chain of descriptors, the last with a limit.
fn rule(path: &[(&str, &str)]) -> RateLimitDescriptor {
    let Some(((key, value), below)) = path.split_first() else { panic!("no entries") };
    RateLimitDescriptor {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        rate_limit: below.is_empty().then(|| RateLimitPolicy {
            requests_per_unit: 5,
            unit: RateLimitUnit::Second.into(),
            ..Default::default()
        }),
        descriptors: if below.is_empty() { Vec::new() } else { vec![rule(below)] },
        ..Default::default()
    }
}

/// Compiles resources, each of a domain with one rule.
fn load(rules: &[(&str, &[(&str, &str)])], patches: &str) -> (RuleSet, OverlayReport) {
    let resource = |(domain, path): &(&str, &[(&str, &str)])| {
        let config = RateLimitConfig {
            name: (*domain).to_owned(),
            domain: (*domain).to_owned(),
            descriptors: vec![rule(path)],
            ..Default::default()
        };
        Resource::decode(config.encode_to_vec().into(), "").unwrap()
    };
    let resources = rules.iter().map(resource).collect();
    let options = RuleOptions { overlay: Some(overlay(&[patches])), ..RuleOptions::default() };
    let loaded = Loaded::compile(resources, Problems::new(100), &options, None);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    (loaded.rules, loaded.overlay)
}

#[test]
fn rules_of_routes_and_of_shared_policies_are_matched() {
    let shared = "test-namespace/test-policy-1/rule/0";
    let (rules, report) = load(
        &[
            (
                "first-listener",
                &[("first-route", "first-route"), ("rule-0-match-0", "rule-0-match-0")],
            ),
            // A distinct match: each value of the header has its own count.
            ("second-listener", &[("first-route", "first-route"), ("rule-0-match-0", "")]),
            // A rule without a match is number -1.
            (
                "third-listener",
                &[("first-route", "first-route"), ("rule-0-match--1", "rule-0-match--1")],
            ),
            ("test-namespace/test-policy-1", &[(shared, shared), ("rule-0-match-0", "")]),
            ("test-namespace/test-policy-2", &[(shared, ""), ("rule-0-match-0", "")]),
        ],
        PATCHES,
    );
    assert!(report.problems.is_empty(), "{report:?}");
    let wanted = format!("{shared}_{shared}.rule-0-match-0: 5 per second, gcra with a burst of 20");
    assert_eq!(limits(&rules)[3], wanted);
    assert!(
        limits(&rules)
            .iter()
            .all(|limit| limit.ends_with(": 5 per second, gcra with a burst of 20"))
    );
}

#[test]
fn rules_with_more_matches_are_matched_by_any() {
    let long: &[(&str, &str)] = &[
        ("first-route", "first-route"),
        ("rule-0-match-0", "rule-0-match-0"),
        ("rule-0-match-1", "rule-0-match-1"),
        ("rule-0-method", "rule-0-method"),
        ("masked_remote_address", "0.0.0.0/0"),
        ("remote_address", ""),
    ];
    let (rules, report) = load(&[("first-listener", long)], PATCHES);
    assert_eq!(limits(&rules)[0].rsplit(": ").next(), Some("5 per second"));
    assert_eq!(report.problems.len(), 1, "two entries match no path of six: {report:?}");
    let any = "patches: [{ match: { domain: '*-listener', entries: [{ key: '*-route' }, \
               { any: true }, { key: masked_remote_address, value: '0.*' }, { any: true }] }, \
               set: { algorithm: gcra, burst: 20 } }]";
    let (rules, report) = load(&[("first-listener", long)], any);
    assert!(report.problems.is_empty(), "{report:?}");
    assert!(limits(&rules)[0].ends_with("5 per second, gcra with a burst of 20"));
}

#[test]
fn rules_of_the_first_versions_are_matched() {
    let path: &[(&str, &str)] =
        &[("first-route-key-rule-0-match-0", "first-route-value-rule-0-match-0")];
    let distinct: &[(&str, &str)] = &[("first-route-key-rule-0-match-0", "")];
    let patches = "patches: [{ match: { entries: [{ key: '*-key-rule-*-match-*' }] }, \
                   set: { algorithm: gcra, burst: 20 } }]";
    let (rules, report) = load(&[("one", path), ("two", distinct)], patches);
    assert!(report.problems.is_empty(), "{report:?}");
    assert!(
        limits(&rules)
            .iter()
            .all(|limit| limit.ends_with(": 5 per second, gcra with a burst of 20"))
    );
}

#[test]
fn a_patch_that_does_not_fit_names_the_resource() {
    let (_, report) = load(
        &[("first-listener", &[("first-route", "first-route"), ("rule-0-match-0", "")])],
        "patches: [{ match: {}, set: { burst: 20 } }]",
    );
    assert_eq!(
        report.problems[0].to_string(),
        "1.overlay.yaml:1:38: error: rule 'first-listener.first-route_first-route.rule-0-match-0' \
         (first-listener) loads without this patch: fixed_window takes no `burst`"
    );
}

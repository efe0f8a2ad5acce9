//! What `weir explain` shows is what the matcher does.

use proptest::prelude::*;

use super::good;
use super::model::{tree, yaml};
use crate::{MatchKind, NearMiss, Rule, RuleSet};

const L: &str = "rate_limit: { unit: minute, requests_per_unit: 1 }";

fn rules(descriptors: &str) -> RuleSet {
    good(&format!("domain: d\ndescriptors:\n{}", descriptors.replace('L', L)))
}

fn is_same(a: Option<&Rule>, b: Option<&Rule>) -> bool {
    a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_trace_ends_where_the_matcher_does(
        rules in tree(),
        requests in prop::collection::vec(
            prop::collection::vec(("[ab_*]{0,3}", "[ab_*]{0,5}"), 0..4), 1..20),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        yaml(&rules, 0, &mut text);
        let set = good(&text);
        let domain = set.domain("d").unwrap();
        for request in requests {
            let entries: Vec<_> = request.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let found = domain.find(&entries);
            let trace = domain.trace(&entries);
            let rule = trace.end.and_then(|end| end.rule);
            prop_assert!(is_same(rule, found.map(|found| found.rule)), "{:?}", entries);
            for (step, &(key, value)) in trace.steps.iter().zip(&entries) {
                // The list of all matches starts with the matcher's own.
                let matches = step.level.matches((key, value));
                let first = matches.first().map(|first| (first.text, first.kind));
                prop_assert_eq!(first, step.matched.map(|first| (first.text, first.kind)));
                let reachable = step.level.reachable(key);
                for candidate in matches {
                    prop_assert!(reachable.iter().any(|other| other.text == candidate.text));
                }
            }
            if let Some(found) = found {
                let shares = trace.steps.iter().any(|step| step.matched.is_some_and(|it| it.share_threshold));
                prop_assert_eq!(shares, found.replaces_values);
            }
            // Near misses name rules that the matcher finds.
            for near in set.near_misses("d", &entries) {
                if let NearMiss::Order(order, rule) | NearMiss::Subset(order, rule) = near {
                    let entries: Vec<_> = order.iter().map(|&i| entries[i]).collect();
                    prop_assert!(is_same(domain.find(&entries).map(|it| it.rule), Some(rule)));
                }
            }
        }
    }

    #[test]
    fn nothing_reaches_what_is_reported_as_unreachable(
        texts in prop::collection::vec(("[ab]{1,2}", "[ab_*]{0,4}"), 1..7),
        requests in prop::collection::vec(("[ab]{1,3}", "[ab_]{0,5}"), 1..40),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        let mut seen = std::collections::HashSet::new();
        for (key, value) in texts {
            if seen.insert(if value.is_empty() { key.clone() } else { format!("{key}_{value}") }) {
                text += &format!("- {{ key: '{key}', value: '{value}', {L} }}\n");
            }
        }
        let set = good(&text);
        let domain = set.domain("d").unwrap();
        let shadowed = domain.root.shadowed(&mut 1_000_000);
        for (key, value) in requests {
            let trace = domain.trace(&[(&key, &value)]);
            let Some(end) = trace.end else { continue };
            let hit = shadowed.iter().any(|shadowed| shadowed.text == end.text);
            prop_assert!(!hit || end.kind == MatchKind::Value, "{}={}: {}", key, value, end.text);
        }
    }
}

#[test]
fn wildcards_are_compared_a_bounded_number_of_times() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for i in 100..200 {
        text += &format!("- {{ key: k, value: 'v{i}*', {L} }}\n");
    }
    text += &format!("- {{ key: k, value: 'v100-*', {L} }}\n");
    let set = good(&text);
    let root = &set.domain("d").unwrap().root;
    let mut left = 1_000_000;
    assert_eq!(root.shadowed(&mut left).len(), 1, "v100* matches all of v100-*");
    // Each with those before it.
    assert_eq!(1_000_000 - left, 101 * 100 / 2);
    let mut left = 99;
    assert_eq!(root.shadowed(&mut left).len(), 0);
    assert_eq!(left, 0);
}

fn near(set: &RuleSet, entries: &[(&str, &str)]) -> Vec<String> {
    let near = set.near_misses("d", entries);
    near.iter()
        .map(|near| match near {
            NearMiss::Domain(near) => format!("domain {near:?}"),
            NearMiss::Exempt(end) => format!("exempt {}", end.text),
            NearMiss::MoreEntries(end) => format!("more below {}", end.text),
            NearMiss::FewerEntries(at, end) => format!("fewer {at} {}", end.text),
            NearMiss::Reserve(at, rule, key) => format!("reserve {at} {} {key}", rule.path()),
            NearMiss::Key(at, near) => format!("key {at} {near:?}"),
            NearMiss::Value(at, near) => format!("value {at} {near:?}"),
            NearMiss::Order(order, rule) => format!("order {order:?} {}", rule.path()),
            NearMiss::Subset(order, rule) => format!("subset {order:?} {}", rule.path()),
            NearMiss::NotTried(at, end, rule) => format!("{at} {} {}", end.text, rule.path()),
            NearMiss::OtherDomain(rule) => format!("other {}", rule.name),
        })
        .collect()
}

#[test]
fn near_misses() {
    let set = rules(
        "- key: user\n  descriptors:\n  - { key: path, L }\n- { key: plan, value: gold, L }\n\
         - { key: free }\n- key: path\n  value: /a\n- { key: path, value: '/*', L }\n",
    );
    assert_eq!(near(&set, &[("user", "1")]), ["more below user"]);
    assert_eq!(
        near(&set, &[("plan", "gold"), ("x", "1")]),
        ["fewer 0 plan_gold", "subset [0] plan_gold"]
    );
    assert_eq!(near(&set, &[("usr", "1")]), ["key 0 Some(\"user\")"]);
    assert_eq!(near(&set, &[("plan", "golb")]), ["value 0 Some(\"gold\")"]);
    assert_eq!(near(&set, &[("free", "1")]), ["exempt free"]);
    assert_eq!(near(&set, &[("path", "/a")]), ["exempt path_/a", "0 path_/* path_/*"]);
    assert_eq!(
        near(&set, &[("path", "/b"), ("user", "1")]),
        ["fewer 0 path_/*", "order [1, 0] user.path"]
    );
    let set = rules(
        "- key: user\n  L\n  reserve: { id: id, settle: end }\n- key: job\n  L\n  reserve: { id: id, settle: end }\n  \
         descriptors: [{ key: path, L }]\n",
    );
    let request = [("user", "1"), ("id", "2"), ("end", "3"), ("x", "4")];
    assert_eq!(
        near(&set, &request),
        ["fewer 2 user", "subset [0, 1, 2] user"],
        "with an entry too many"
    );
    assert_eq!(
        near(&set, &[("user", "1"), ("ids", "2")]),
        ["reserve 1 user id", "subset [0] user"]
    );
    assert_eq!(
        near(&set, &[("user", "1"), ("id", "2"), ("ende", "3")]),
        ["reserve 2 user end", "subset [0, 1] user"]
    );
    assert_eq!(near(&set, &[("end", "1"), ("user", "2"), ("id", "3")])[1], "order [1, 2, 0] user");
    assert_eq!(
        near(&set, &[("job", "1"), ("pth", "2")]),
        ["reserve 1 job id", "key 1 Some(\"path\")", "subset [0] job"]
    );
    assert!(set.has_key(None, "id") && set.has_key(None, "end"));
    assert!(!set.has_key(None, "ende"));
    let set = rules("- key: plan\n  value: gold\n  L\n");
    let others = set.near_misses("e", &[("plan", "gold")]);
    assert!(
        matches!(others[..], [NearMiss::Domain(Some("d")), NearMiss::OtherDomain(_)]),
        "{others:?}"
    );
}

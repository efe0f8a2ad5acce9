//! Siblings of one key and value in what a management server sends.

use proptest::prelude::*;
use prost::Message;

use super::{compile, describe, file};
use crate::proto::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace};
use crate::xds::Resource;
use crate::{Loaded, Overlay, Problems, RuleOptions, RuleSet, Severity, compare};

fn node(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.into(), value: value.into(), ..Default::default() }
}

fn policy(requests_per_unit: u32) -> RateLimitPolicy {
    RateLimitPolicy { unit: 2, requests_per_unit, ..Default::default() }
}

fn limited(node: RateLimitDescriptor, n: u32) -> RateLimitDescriptor {
    RateLimitDescriptor { rate_limit: Some(policy(n)), ..node }
}

fn above(node: RateLimitDescriptor, descriptors: Vec<RateLimitDescriptor>) -> RateLimitDescriptor {
    RateLimitDescriptor { descriptors, ..node }
}

fn resource(name: &str, descriptors: Vec<RateLimitDescriptor>) -> Resource {
    let (name, domain) = (name.to_owned(), "d".to_owned());
    let config = RateLimitConfig { name, domain, descriptors, ..Default::default() };
    Resource::decode(config.encode_to_vec().into(), "resource").unwrap()
}

fn load(descriptors: Vec<RateLimitDescriptor>) -> Loaded<Resource> {
    let files = vec![resource("r", descriptors)];
    Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None)
}

fn names(set: &RuleSet) -> Vec<String> {
    set.dump().lines().map(|line| line.split(" unit").next().unwrap().to_owned()).collect()
}

/// The two rules of one policy on one CIDR: all addresses together, and each.
fn gateway() -> [RateLimitDescriptor; 2] {
    let masked = || node("masked_remote_address", "10.0.0.0/8");
    [limited(masked(), 100), above(masked(), vec![limited(node("remote_address", ""), 5)])]
}

#[test]
fn a_limit_and_descriptors_below_it_are_merged_with_a_note() {
    let route = |below: Vec<_>| vec![above(node("route", "route"), below)];
    let [all, each] = gateway();
    for siblings in [[all.clone(), each.clone()], [each, all]] {
        let loaded = load(route(siblings.to_vec()));
        assert!(loaded.is_good(), "{}", loaded.render_errors());
        let masked = "d.route_route.masked_remote_address_10.0.0.0/8";
        let rules = [format!("{masked}:"), format!("{masked}.remote_address:")];
        assert_eq!(names(&loaded.rules), rules);
        assert_eq!(
            loaded.render(loaded.listed(Severity::Warning)),
            "r: warning: one descriptor is merged with a sibling of the same key and value\n  \
             at: descriptors[0].descriptors[1] (route=route > masked_remote_address=10.0.0.0/8)\n  \
             help: send one descriptor with the limit and all that is below it\n"
        );
    }
    // In a file, they stay an error.
    let problems = compile(
        "domain: d\ndescriptors:\n- { key: a, value: b, rate: 1/s }\n\
         - { key: a, value: b, descriptors: [{ key: c, rate: 1/s }] }\n",
    );
    assert!(describe(&problems.1[0]).contains("duplicate descriptor composite key 'd.a_b'"));
}

#[test]
fn siblings_merge_at_each_level_and_in_any_number() {
    let below = |name: &str| vec![limited(node(name, ""), 1)];
    let loaded = load(vec![
        above(node("a", "x"), vec![above(node("b", ""), below("one"))]),
        limited(node("z", ""), 1),
        above(node("a", "x"), vec![above(node("b", ""), below("two")), limited(node("b", ""), 7)]),
        limited(node("a", "x"), 3),
        above(node("a", "x"), below("three")),
        // The same limit once more.
        limited(node("a", "x"), 3),
    ]);
    assert!(loaded.is_good(), "{}", loaded.render_errors());
    let rules = ["a_x:", "a_x.b:", "a_x.b.one:", "a_x.b.two:", "a_x.three:", "z:"]
        .map(|rule| format!("d.{rule}"));
    assert_eq!(names(&loaded.rules), rules);
    let merged = loaded.listed(Severity::Warning).next().unwrap();
    assert!(merged.message.starts_with("6 descriptors are merged"), "{merged}");
}

#[test]
fn siblings_that_conflict_are_duplicates() {
    let plain = || node("a", "b");
    let parent = || above(plain(), vec![limited(node("c", ""), 1)]);
    let several = || RateLimitDescriptor { rate_limits: vec![policy(1), policy(2)], ..plain() };
    let named = |name: &str| RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy { name: name.into(), ..policy(1) }),
        ..plain()
    };
    let replacing = RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy {
            replaces: vec![RateLimitReplace { name: "x".into() }],
            ..policy(1)
        }),
        ..plain()
    };
    let value = prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) };
    let metadata =
        || Some(prost_types::Struct { fields: [("team".to_owned(), value.clone())].into() });
    let shadow = |node| RateLimitDescriptor { shadow_mode: true, ..node };
    let shared = |node| RateLimitDescriptor { share_threshold: true, ..node };
    let metric = |node| RateLimitDescriptor { value_to_metric: true, ..node };
    let one = || limited(plain(), 1);
    for (name, siblings, is_good) in [
        ("a limit and children", vec![one(), parent()], true),
        ("two limits", vec![one(), limited(plain(), 2)], false),
        (
            "two limits, and children",
            vec![one(), above(limited(plain(), 2), parent().descriptors)],
            false,
        ),
        ("equal limits", vec![one(), above(one(), parent().descriptors)], true),
        ("equal lists of limits", vec![several(), several()], true),
        ("a limit and a list", vec![one(), several()], false),
        ("a limit with a name", vec![one(), named("x")], false),
        ("equal names", vec![named("x"), named("x")], true),
        ("a limit that replaces", vec![one(), replacing.clone()], false),
        ("a limit that replaces, and children", vec![parent(), replacing], true),
        ("flags of the limit", vec![shadow(one()), parent()], true),
        ("flags of the limit, later", vec![parent(), shadow(one())], true),
        ("a flag on the other", vec![one(), shadow(parent())], false),
        ("a flag on the other, first", vec![shadow(parent()), one()], false),
        ("equal flags", vec![shadow(parent()), shadow(one())], true),
        ("equal limits, and a flag", vec![one(), shadow(one())], false),
        (
            "a flag without a limit",
            vec![shadow(parent()), above(plain(), vec![limited(node("e", ""), 1)])],
            true,
        ),
        (
            "shares below",
            vec![
                RateLimitDescriptor { value: "b*".into(), ..shared(one()) },
                RateLimitDescriptor { value: "b*".into(), ..parent() },
            ],
            false,
        ),
        ("metrics below", vec![metric(one()), parent()], false),
        ("metrics of both", vec![metric(one()), metric(parent())], true),
        (
            "metadata of the limit",
            vec![RateLimitDescriptor { metadata: metadata(), ..one() }, parent()],
            true,
        ),
        (
            "metadata of the other",
            vec![one(), RateLimitDescriptor { metadata: metadata(), ..parent() }],
            false,
        ),
        (
            "a conflict below",
            vec![parent(), above(plain(), vec![limited(node("c", ""), 2)])],
            false,
        ),
        ("the same text", vec![one(), above(node("a_b", ""), parent().descriptors)], false),
        (
            "networks",
            vec![
                RateLimitDescriptor { network: vec!["::/0".into()], ..limited(node("a", ""), 1) },
                RateLimitDescriptor {
                    network: vec!["::/0".into()],
                    ..above(node("a", ""), parent().descriptors)
                },
            ],
            false,
        ),
    ] {
        let loaded = load(siblings);
        assert_eq!(loaded.is_good(), is_good, "{name}: {}", loaded.render_errors());
        if !is_good {
            let errors = loaded.render_errors();
            assert!(errors.contains("duplicate descriptor composite key 'd.a"), "{name}: {errors}");
            assert_eq!(loaded.count(Severity::Error), 1, "{name}: {errors}");
        }
    }
}

#[test]
fn siblings_of_two_resources_are_not_merged() {
    let [all, each] = gateway();
    let files = vec![resource("one", vec![all]), resource("two", vec![each])];
    let options = RuleOptions { merge_domains: true, ..RuleOptions::default() };
    let loaded = Loaded::compile(files, Problems::new(100), &options, None);
    let errors = loaded.render_errors();
    assert!(errors.contains("two: error: duplicate descriptor composite key"), "{errors}");
}

#[test]
fn patches_find_merged_rules_by_the_same_entries() {
    let patch = "patches:\n- match: { domain: d, entries: 'masked_remote_address=10.0.0.0/8' }\n  set: { name: all }\n\
                 - match: { domain: d, entries: 'masked_remote_address=10.0.0.0/8,remote_address' }\n  set: { name: each }\n";
    let overlay = vec![file("o.overlay.yaml", patch)];
    let overlay = Overlay::new(overlay, Vec::new(), &RuleOptions::default()).unwrap();
    let options = RuleOptions { overlay: Some(overlay), ..RuleOptions::default() };
    let files = vec![resource("r", gateway().to_vec())];
    let loaded = Loaded::compile(files, Problems::new(100), &options, None);
    assert_eq!(loaded.overlay.problems, []);
    let named: Vec<&str> = loaded.rules.rules().map(|rule| rule.limit_name(0)).collect();
    assert_eq!(named, ["all", "each"]);
}

/// A level of a valid tree: no two descriptors have one key and value.
fn level() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
    let flags = || (any::<bool>(), any::<bool>(), prop::option::of(0..3_u32));
    let new = |((shadow_mode, quota_mode, n), below): ((bool, bool, Option<u32>), _)| {
        RateLimitDescriptor {
            shadow_mode: shadow_mode && n.is_some(),
            quota_mode: quota_mode && n.is_some(),
            rate_limit: n.map(policy),
            ..above(RateLimitDescriptor::default(), below)
        }
    };
    let distinct = |nodes: Vec<RateLimitDescriptor>| {
        let key = |i: usize| node(["a", "b", "c"][i % 3], ["", "x"][i / 3 % 2]);
        let named = |(i, node): (usize, RateLimitDescriptor)| RateLimitDescriptor {
            key: key(i).key,
            value: key(i).value,
            ..node
        };
        nodes.into_iter().enumerate().map(named).collect::<Vec<_>>()
    };
    let leaf = prop::collection::vec(flags().prop_map(move |flags| new((flags, Vec::new()))), 0..3);
    leaf.prop_map(distinct).prop_recursive(3, 24, 4, move |below| {
        prop::collection::vec((flags(), below).prop_map(new), 0..4).prop_map(distinct)
    })
}

/// Splits descriptors into siblings: one with the limit, and others with a part of what is below, in any order.
fn split(
    nodes: &[RateLimitDescriptor],
    choices: &mut impl Iterator<Item = u8>,
) -> Vec<RateLimitDescriptor> {
    let mut parts = Vec::new();
    for node in nodes {
        let mut below = split(&node.descriptors, choices);
        let mut choice = || choices.next().unwrap_or(0);
        let bare = self::node(&node.key, &node.value);
        let mut of_node = Vec::new();
        while choice() % 3 == 1 && !below.is_empty() {
            let rest = below.split_off(choice() as usize % below.len());
            of_node.push(above(bare.clone(), std::mem::replace(&mut below, rest)));
        }
        let own = RateLimitDescriptor { descriptors: below, ..node.clone() };
        if choice() % 2 == 1 {
            of_node.push(own.clone());
        }
        let at = choice() as usize % (of_node.len() + 1);
        of_node.insert(at, RateLimitDescriptor { descriptors: Vec::new(), ..own.clone() });
        of_node.push(above(
            if own.rate_limit.is_some() { bare } else { own.clone() },
            own.descriptors,
        ));
        parts.append(&mut of_node);
    }
    parts
}

proptest! {
    #[test]
    fn parts_of_a_descriptor_are_merged_to_the_whole(
        whole in level(),
        choices in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let parts = split(&whole, &mut choices.into_iter());
        let [whole, parts] = [load(whole), load(parts)];
        prop_assert!(parts.is_good(), "{}", parts.render_errors());
        prop_assert!(compare(&whole.rules, &parts.rules).is_empty());
        prop_assert_eq!(names(&whole.rules), names(&parts.rules));
    }
}

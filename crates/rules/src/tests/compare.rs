//! What differs between two sets of rules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proptest::prelude::*;

use super::{file, good};
use crate::{Difference, RuleOptions, RuleSet, compare};

/// The lines of a difference: changes, and then the rules that only one of the sets has.
fn lines(difference: &Difference<'_>) -> Vec<String> {
    let listed = |mark, rules: &[crate::ListedRule<'_>]| -> Vec<String> {
        let line = |rule: &crate::ListedRule<'_>| {
            format!("{mark} {rule}: {}", rule.limits.as_deref().unwrap_or("none"))
        };
        rules.iter().map(line).collect()
    };
    let mut lines: Vec<String> = difference.changed.iter().map(ToString::to_string).collect();
    lines.extend(listed('-', &difference.removed));
    lines.extend(listed('+', &difference.added));
    lines
}

fn compared(old: &str, new: &str) -> Vec<String> {
    lines(&compare(&good(old), &good(new)))
}

#[test]
fn numbers_and_rules_that_come_and_go_are_found() {
    let rules = |rules: &str| format!("domain: shop\ndescriptors:\n{rules}");
    let old = rules(
        "- { key: user, rate_limit: { unit: minute, requests_per_unit: 60 } }\n\
         - { key: legacy, rate_limit: { unit: day } }\n- { key: same, rate_limit: { unit: day } }\n",
    );
    let new = rules(
        "- { key: new, rate_limit: { unlimited: true } }\n\
         - { key: same, rate_limit: { unit: day } }\n\
         - { key: user, rate_limit: { unit: minute, requests_per_unit: 90 } }\n",
    );
    assert_eq!(
        compared(&old, &new),
        [
            "shop.user: 60 per minute → 90 per minute",
            "- shop.legacy: 0 per day",
            "+ shop.new: unlimited",
        ]
    );
    let json = serde_json::to_value(compare(&good(&old), &good(&new))).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "added": [{ "domain": "shop", "rule": "new", "limits": "unlimited" }],
            "removed": [{ "domain": "shop", "rule": "legacy", "limits": "0 per day" }],
            "changed": [{
                "domain": "shop", "rule": "user", "member": "limits",
                "old": "60 per minute", "new": "90 per minute",
            }],
        })
    );
}

#[test]
fn every_key_of_a_rule_makes_a_difference() {
    let limit = "unit: day, requests_per_unit: 5";
    let bucket = "algorithm: token_bucket, unit: day, requests_per_unit: 5";
    for (old, new, wanted) in [
        ("", "shadow_mode: true", "d.k_*: shadow_mode: false → true"),
        ("", "quota_mode: true", "d.k_*: quota_mode: false → true"),
        ("", "detailed_metric: true", "d.k_*: detailed_metric: false → true"),
        ("", "value_to_metric: true", "d.k_*: value_to_metric: false → true"),
        ("", "share_threshold: true", "d.k_*: share_threshold: false → true"),
        (
            "reserve: { id: i, settle: s, at_least: 2 }",
            "reserve: { id: i, estimate: 2, timeout: 2s }",
            "d.k_*: reserve: id: i, settle: s, at_least: 2, at_most: 2, timeout: 3600s → id: i, estimate: 2, \
             at_least: 1, at_most: 2, timeout: 2s",
        ),
        ("lease: true", "lease: false", "d.k_*: lease: true → false"),
        ("metadata: { a: 1 }", "", r#"d.k_*: metadata: {"a":1} → none"#),
        ("descriptors: [{ key: b }]", "", "- d.k_*.b: none"),
    ] {
        let rules = |keys: &str| {
            let keys = if keys.is_empty() { String::new() } else { format!(", {keys}") };
            let limit = format!("rate_limit: {{ {limit} }}");
            format!("domain: d\ndescriptors: [{{ key: k, value: '*', {limit}{keys} }}]\n")
        };
        assert_eq!(compared(&rules(old), &rules(new)), [wanted], "{old} | {new}");
    }
    for (old, new, wanted) in [
        (limit, "unit: day, requests_per_unit: 6", "d.k: 5 per day → 6 per day"),
        (limit, "unlimited: true", "d.k: 5 per day → unlimited"),
        (limit, &*format!("{limit}, name: n"), "d.k: name: none → n"),
        (
            limit,
            &*format!("{limit}, charge_denied: false"),
            "d.k: limits[0].charge_denied: true → false",
        ),
        (limit, &*format!("{limit}, replaces: [{{ name: o }}]"), r#"d.k: replaces: [] → ["o"]"#),
        (bucket, &*format!("{bucket}, refill_amount: 1"), "d.k: limits[0].refill_amount: 5 → 1"),
        (
            &*format!("{bucket}, charge_denied: true, max_debt: 1").replace("token_bucket", "gcra"),
            &*format!("{bucket}, charge_denied: true, max_debt: 2").replace("token_bucket", "gcra"),
            "d.k: limits[0].max_debt: 1 → 2",
        ),
    ] {
        let rules = |limit: &str| {
            format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ {limit} }} }}]\n")
        };
        assert_eq!(compared(&rules(old), &rules(new)), [wanted], "{old} | {new}");
    }
}

#[test]
fn limits_of_a_list_are_compared_one_by_one() {
    let rules = |a: &str, b: &str| {
        let limit = |name| format!("{{ {name}, unit: day, requests_per_unit: 5 }}");
        let limits = [limit(a), limit(b)].join(", ");
        format!("domain: d\ndescriptors: [{{ key: k, rate_limits: [{limits}] }}]\n")
    };
    let old = rules("name: a", "name: b");
    assert_eq!(compared(&old, &rules("name: a", "name: c")), ["d.k: limits[1].name: b → c"]);
    assert_eq!(
        compared(&old, &rules("name: a, shadow_mode: true", "name: b")),
        ["d.k: 5 per day + 5 per day → 5 per day (shadow) + 5 per day"]
    );
}

#[test]
fn domains_are_compared_too() {
    let rules = "descriptors: [{ key: k, rate_limit: { unit: day } }]\n";
    let (d, e) = (format!("domain: d\n{rules}"), "domain: e\n");
    let set = |texts: &[&str]| {
        let files: Vec<_> = texts.iter().map(|text| file("a.yaml", text)).collect();
        RuleSet::compile(&files, &RuleOptions::default(), None).0
    };
    let (both, one) = (set(&[d.as_str(), e]), set(&[d.as_str()]));
    assert_eq!(lines(&compare(&both, &one)), ["- e: none"]);
    assert_eq!(lines(&compare(&RuleSet::default(), &both)), ["+ d.k: 0 per day", "+ e: none"]);
    let changed = format!("domain: d\ncharge: together\non_store_failure: deny\n{rules}");
    assert_eq!(
        compared(&d, &changed),
        [
            "d: charge: each → together",
            "d: on_store_failure: none → deny",
            "d.k: limits[0].charge_denied: true → false",
        ]
    );
}

#[test]
fn the_place_of_a_rule_makes_no_difference() {
    let (a, b) = ("{ key: a, rate_limit: { unit: day } }", "{ key: b, rate_limit: { unit: day } }");
    let rules = |first, second| format!("domain: d\ndescriptors: [{first}, {second}]\n");
    assert!(compare(&good(&rules(a, b)), &good(&rules(b, a))).is_empty());
}

/// A descriptor of the model.
#[derive(Clone, Debug)]
struct Node {
    text: String,
    limit: Option<u32>,
    shadow_mode: bool,
    below: Vec<Node>,
}

fn yaml(nodes: &[Node], indent: &str, out: &mut String) {
    for Node { text, limit, shadow_mode, below } in nodes {
        let (key, value) = text.split_once('_').unwrap_or((text.as_str(), ""));
        *out += &format!("{indent}- key: '{key}'\n{indent}  value: '{value}'\n");
        *out += &format!("{indent}  shadow_mode: {shadow_mode}\n");
        if let Some(n) = limit {
            *out += &format!("{indent}  rate_limit: {{ unit: day, requests_per_unit: {n} }}\n");
        }
        *out += &format!("{indent}  descriptors:\n");
        yaml(below, &format!("{indent}  "), out);
    }
}

fn level(below: BoxedStrategy<Vec<Node>>) -> BoxedStrategy<Vec<Node>> {
    let text = "[ab](_[ab*]{1,2})?";
    let node = (text, prop::option::of(0..3_u32), any::<bool>(), below);
    prop::collection::vec(node, 0..5)
        .prop_map(|nodes| {
            let mut level: Vec<Node> = Vec::new();
            for (text, limit, shadow_mode, below) in nodes {
                if level.iter().all(|node| node.text != text) {
                    level.push(Node { text, limit, shadow_mode, below });
                }
            }
            level
        })
        .boxed()
}

fn tree() -> BoxedStrategy<Vec<Node>> {
    level(level(level(Just(Vec::new()).boxed())))
}

/// All descriptors by their paths, and below each the texts with a wildcard.
fn flat<'n>(
    nodes: &'n [Node],
    path: &str,
    out: &mut BTreeMap<String, (Option<&'n Node>, Vec<&'n str>)>,
) {
    let wildcards = nodes.iter().map(|node| node.text.as_str()).filter(|text| text.contains('*'));
    out.entry(path.to_owned()).or_default().1 = wildcards.collect();
    for node in nodes {
        let path = format!("{path}.{}", node.text);
        out.insert(path.clone(), (Some(node), Vec::new()));
        flat(&node.below, &path, out);
    }
}

/// Compares the plain way: path by path.
fn model(old: &[Node], new: &[Node]) -> BTreeSet<String> {
    let mut flats = [BTreeMap::new(), BTreeMap::new()];
    flat(old, "d", &mut flats[0]);
    flat(new, "d", &mut flats[1]);
    let [old, new] = &flats;
    let mut found = BTreeSet::new();
    for (mark, one, other) in [('-', old, new), ('+', new, old)] {
        for (path, (node, _)) in one {
            let Some(node) = node else { continue };
            let is_there = other.get(path).map(|(node, _)| node.is_some_and(|n| n.limit.is_some()));
            match (node.limit, is_there) {
                (Some(n), None | Some(false)) => {
                    found.insert(format!("{mark} {path}: {n} per day"))
                }
                (None, None) if node.below.is_empty() => {
                    found.insert(format!("{mark} {path}: none"))
                }
                _ => false,
            };
        }
    }
    for (path, (node, wildcards)) in old {
        let Some((newer, new_wildcards)) = new.get(path) else { continue };
        let shared = |texts: &[&str], others: &[&str]| -> Vec<String> {
            texts
                .iter()
                .filter(|text| others.contains(text))
                .map(|text| format!("{text:?}"))
                .collect()
        };
        let texts = [shared(wildcards, new_wildcards), shared(new_wildcards, wildcards)];
        if texts[0] != texts[1] {
            let [old, new] = texts.map(|texts| texts.join(","));
            found.insert(format!("{path}: wildcards: [{old}] → [{new}]"));
        }
        let (Some(old), Some(new)) = (node, newer) else { continue };
        let (Some(n), Some(new_n)) = (old.limit, new.limit) else { continue };
        if n != new_n {
            found.insert(format!("{path}: {n} per day → {new_n} per day"));
        }
        if old.shadow_mode != new.shadow_mode {
            let (old, new) = (old.shadow_mode, new.shadow_mode);
            found.insert(format!("{path}: shadow_mode: {old} → {new}"));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn finds_what_the_model_finds(old in tree(), new in tree()) {
        let set = |nodes: &[Node]| {
            let mut text = "domain: d\ndescriptors:\n".to_owned();
            yaml(nodes, "", &mut text);
            good(&text)
        };
        let (old_set, new_set) = (set(&old), set(&new));
        let wanted = model(&old, &new);
        let found = lines(&compare(&old_set, &new_set));
        prop_assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), wanted);
        let count = found.len();
        prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>().len(), count, "none twice");
        prop_assert!(compare(&old_set, &set(&old)).is_empty());
    }
}

/// Prints how long a comparison takes:
/// `cargo test --release -p weir-rules --lib compare -- --ignored --nocapture`.
#[test]
#[ignore = "takes a minute without optimization: scripts/test --all runs it"]
fn a_hundred_thousand_rules() {
    let set = |first: usize, n: usize| {
        let files = (0..100).map(|domain| {
            let rules: String = (first..first + 1_000)
                .map(|rule| {
                    format!("- {{ key: key, value: value-{rule}, rate_limit: {{ unit: minute, requests_per_unit: {n} }} }}\n")
                })
                .collect();
            file(&format!("{domain}.yaml"), &format!("domain: domain-{domain}\ndescriptors:\n{rules}"))
        });
        let (set, problems) =
            RuleSet::compile(&files.collect::<Vec<_>>(), &RuleOptions::default(), None);
        assert_eq!(problems, []);
        set
    };
    let old = set(0, 60);
    for (name, new, changes) in [
        ("equal", set(0, 60), 0),
        ("all limits changed", set(0, 90), 100_000),
        ("all rules replaced", set(1_000, 60), 200_000),
    ] {
        let start = Instant::now();
        let difference = compare(&old, &new);
        let took = start.elapsed();
        let Difference { added, removed, changed } = difference;
        assert_eq!(added.len() + removed.len() + changed.len(), changes, "{name}");
        println!("{name}: {took:?}");
    }
}

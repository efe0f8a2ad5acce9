//! Entries without an order: their look-up is compared with that of all orders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{compile, good};
use crate::{RuleSet, UnorderedMatch};

const L: &str = "rate_limit: { unit: minute, requests_per_unit: 1 }";

/// What a descriptor has besides its key.
const FORMS: [&str; 5] =
    ["", ", value: '1'", ", value: '1*'", ", values: ['2', '12']", ", network: 10.0.0.0/8"];

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Descriptors by key and form, each with whether it has a limit.
#[derive(Default)]
struct Tree(BTreeMap<(usize, usize), (bool, Tree)>);

impl Tree {
    /// Adds a path to a rule.
    fn add(&mut self, path: &[(usize, usize)]) {
        let Some((first, below)) = path.split_first() else { return };
        let (has_limit, tree) = self.0.entry(*first).or_default();
        *has_limit |= below.is_empty();
        tree.add(below);
    }

    fn yaml(&self) -> String {
        let descriptor = |(&(key, form), (has_limit, below)): (&(usize, usize), &(bool, Tree))| {
            let (key, form) = (KEYS[key], FORMS[form]);
            let limit = if *has_limit { format!(", {L}") } else { String::new() };
            let below = match below.0.is_empty() {
                true => String::new(),
                false => format!(", descriptors: {}", below.yaml()),
            };
            format!("{{ key: {key}{form}{limit}{below} }}")
        };
        format!("[{}]", self.0.iter().map(descriptor).collect::<Vec<_>>().join(", "))
    }
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: Vec<usize>| -> Vec<Vec<usize>> {
            let unused = (0..count).filter(|i| !order.contains(i));
            unused.map(|i| [&order[..], &[i]].concat()).collect()
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

/// Returns the orders of entries that match a rule, after a comparison with what is found without an order.
fn matching(set: &RuleSet, entries: &[(&str, &str)]) -> Vec<Vec<usize>> {
    let domain = set.domain("d").unwrap();
    let is_match = |order: &Vec<usize>| {
        domain.find(&order.iter().map(|&i| entries[i]).collect::<Vec<_>>()).is_some()
    };
    let wanted: Vec<Vec<usize>> = orders(entries.len()).into_iter().filter(is_match).collect();
    match domain.find_unordered(entries) {
        UnorderedMatch::None => assert!(wanted.is_empty(), "{wanted:?}"),
        UnorderedMatch::One(order) => assert_eq!(wanted, [order.into_vec()]),
        UnorderedMatch::Several(found) => {
            assert_ne!(found[0], found[1]);
            assert!(found.iter().all(|found| wanted.contains(&found.to_vec())), "{wanted:?}");
        }
        UnorderedMatch::TooMany => panic!("{entries:?}"),
    }
    wanted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn finds_the_orders_that_match(
        paths in prop::collection::vec(
            prop::collection::vec((0..KEYS.len(), 0..FORMS.len()), 1..5), 1..12),
        values in prop::collection::vec(
            prop::option::of(prop::sample::select(vec!["1", "2", "12", "10.1.2.3", "x", ""])), 5),
    ) {
        let mut tree = Tree::default();
        paths.iter().for_each(|path| tree.add(path));
        let (set, problems) = compile(&format!("domain: d\ndescriptors: {}\n", tree.yaml()));
        prop_assert!(problems.iter().all(|problem| !problem.is_error()), "{problems:?}");
        let entries = KEYS.into_iter().zip(values);
        let entries: Vec<_> = entries.filter_map(|(key, value)| Some((key, value?))).collect();
        matching(&set, &entries);
    }
}

#[test]
fn one_order_matches_or_several_do() {
    let set = good(&format!(
        "domain: d\ndescriptors:\n- key: a\n  descriptors: [{{ key: b, {L} }}, {{ key: c, {L} }}]\n\
         - key: c\n  value: '1'\n  descriptors: [{{ key: a, {L} }}]\n\
         - {{ key: free, rate_limit: {{ unlimited: true }} }}\n- key: exempt\n"
    ));
    assert_eq!(matching(&set, &[("b", "1"), ("a", "1")]), [[1, 0]]);
    assert_eq!(matching(&set, &[("c", "2"), ("a", "1")]), [[1, 0]]);
    assert_eq!(matching(&set, &[("c", "1"), ("a", "1")]).len(), 2, "by either rule");
    assert_eq!(matching(&set, &[("free", "1")]), [[0]]);
    for entries in [&[("a", "1")][..], &[("exempt", "1")], &[("free", "1"), ("x", "1")], &[]] {
        assert!(matching(&set, entries).is_empty(), "{entries:?}");
    }
}

#[test]
fn the_entries_of_a_reservation_have_an_order() {
    let set = good(&format!(
        "domain: d\ndescriptors:\n- key: job\n  {L}\n  reserve: {{ id: id, settle: end }}\n  \
         descriptors: [{{ key: path, {L} }}]\n"
    ));
    assert_eq!(matching(&set, &[("id", "1"), ("job", "1")]), [[1, 0]]);
    assert_eq!(matching(&set, &[("end", "1"), ("id", "1"), ("job", "1")]), [[2, 1, 0]]);
    assert_eq!(matching(&set, &[("path", "1"), ("job", "1")]), [[1, 0]]);
    assert!(matching(&set, &[("end", "1"), ("id", "1")]).is_empty());
}

#[test]
fn a_search_is_bounded() {
    let mut descriptors = format!("[{{ key: k*, {L} }}]");
    for _ in 0..16 {
        descriptors = format!("[{{ key: k*, descriptors: {descriptors} }}]");
    }
    let (set, _) = compile(&format!("domain: d\ndescriptors: {descriptors}\n"));
    let keys: Vec<String> = (0..17).map(|i| format!("k{i}")).collect();
    let entries: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "1")).collect();
    let domain = set.domain("d").unwrap();
    // No rule has 16 entries, and each order of them is a path.
    assert_eq!(domain.find_unordered(&entries[..16]), UnorderedMatch::TooMany);
    assert!(matches!(domain.find_unordered(&entries), UnorderedMatch::Several(_)));
}

//! Values that clients send and that are the name of a list.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::find;
use super::{L, counted, listed, load, rules};
use crate::RuleSet;

const BELOW: &str = "descriptors: [{ key: path, L }]";

/// The path of the rule of two entries, and the value of the first in the key.
fn below<'s>(set: &'s RuleSet, value: &str) -> (Option<&'s str>, String) {
    let entries = [("ip", value), ("path", "/a")];
    let values = set.domain("d").unwrap().key_values(&entries);
    let key = values.first().map_or(value.to_owned(), |(_, text)| text.clone().into_owned());
    (find(set, &entries), key)
}

#[test]
fn the_name_of_a_list_is_no_value_of_it() {
    let shared = "share_threshold: true";
    for (keys, name) in [("values: [GET]", "@values"), ("values_file: blocked.txt", "@blocked.txt")]
    {
        let set = listed(
            &format!(
                "- {{ key: ip, {keys}, {shared}, detailed_metric: true, L }}\n\
                 - {{ key: ip, detailed_metric: true, L }}\n"
            ),
            "GET\n",
        );
        assert_eq!(counted(&set, "GET"), (name.to_owned(), format!("ip_{name}")));
        assert_eq!(find(&set, &[("ip", name)]), Some("ip"));
        // The keys and the names in metrics of all others are different ones.
        for (sent, key) in [
            (name.to_owned(), format!("{name}/")),
            (format!("{name}/"), format!("{name}//")),
            (format!("{name}3"), format!("{name}3")),
            (format!("@{name}"), format!("@{name}")),
        ] {
            assert_eq!(counted(&set, &sent), (key.clone(), format!("ip_{key}")), "{sent}");
        }
        let set = listed(
            &format!("- {{ key: ip, {keys}, {shared}, {BELOW} }}\n- {{ key: ip, {BELOW} }}\n"),
            "GET\n",
        );
        assert_eq!(below(&set, "GET"), (Some(&*format!("ip_{name}.path")), name.to_owned()));
        assert_eq!(below(&set, name), (Some("ip.path"), format!("{name}/")));
        let trace = set.domain("d").unwrap().trace(&[("ip", name)]);
        assert_eq!(trace.steps[0].list_name, Some(&*format!("ip_{name}")));
        let trace = set.domain("d").unwrap().trace(&[("ip", "GET")]);
        assert_eq!(trace.steps[0].list_name, None);
    }
    // Without a key of its own, the name of a list is a value like any other.
    let set = rules("- { key: ip, values: [GET], L }\n- { key: ip, L }\n");
    assert_eq!(
        (find(&set, &[("ip", "@values")]), counted(&set, "@values").0),
        (Some("ip"), "@values".into())
    );
}

#[test]
fn the_name_of_a_list_may_be_one_of_its_values() {
    let set = rules(
        "- { key: ip, values: ['@values', GET], share_threshold: true, L }\n\
         - { key: ip, values: ['@values2'], L }\n- { key: ip, value: '*', L }\n",
    );
    assert_eq!(find(&set, &[("ip", "@values")]), Some("ip_@values"));
    assert_eq!(counted(&set, "@values").0, "@values");
    let trace = set.domain("d").unwrap().trace(&[("ip", "@values")]);
    assert_eq!(trace.steps[0].list_name, None);
    // A wildcard matches it as it does other values.
    let set = rules(
        "- { key: ip, values: [GET], share_threshold: true, L }\n- { key: ip, value: '@*', L }\n",
    );
    assert_eq!(
        (find(&set, &[("ip", "@values")]), counted(&set, "@values").0),
        (Some("ip_@*"), "@values/".into())
    );
}

/// A descriptor beside the lists: its keys, and whether it is a list.
fn sibling() -> impl Strategy<Value = String> {
    let name = || {
        prop::sample::select(vec![
            "a", "@a", "@values", "@values2", "@l.txt", "@values/", "@l.txt//",
        ])
    };
    let shared = || prop::sample::select(vec!["", ", share_threshold: true"]);
    prop_oneof![
        3 => (prop::collection::vec(name(), 1..3), shared()).prop_map(|(mut items, shared)| {
            items.dedup();
            format!("values: ['{}']{shared}", items.join("', '"))
        }),
        2 => name().prop_map(|value| format!("value: '{value}'")),
        1 => (prop::sample::select(vec!["@*", "*", "@v*/"]), shared())
            .prop_map(|(value, shared)| format!("value: '{value}'{shared}")),
        1 => shared().prop_map(|shared| format!("values_file: l.txt{shared}")),
        1 => Just("group: ~".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_value_outside_a_list_has_its_key_or_its_children(
        siblings in prop::collection::vec((sibling(), any::<bool>()), 1..6),
        requests in prop::collection::vec("(a|@a|@values2?|@l\\.txt|l\\.txt)/{0,3}", 1..20),
    ) {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        let mut set = RuleSet::default();
        for (i, (keys, below)) in siblings.iter().enumerate() {
            let limit = L.replace(" }", &format!(", name: r{i} }}"));
            let more = match below {
                true => format!("{text}- {{ key: ip, {keys}, descriptors: [{{ key: path, {limit} }}] }}\n"),
                false => format!("{text}- {{ key: ip, {keys}, {limit} }}\n"),
            };
            let (_dir, loaded) = load(&[("r.yaml", &more), ("l.txt", "a\n@a\n@l.txt/\n")]);
            // One that repeats a value of the others is left out.
            if loaded.is_good() {
                (text, set) = (more, loaded.rules);
            }
        }
        let domain = set.domain("d").unwrap();
        // The rule and the value that count by each key.
        let mut keys = HashMap::new();
        for value in &requests {
            for entries in [&[("ip", value.as_str()), ("path", "")][..], &[("ip", value.as_str())]] {
                let Some(found) = domain.find(entries) else { continue };
                let name = found.rule.limit_name(0);
                let number: usize = name[1..].parse().unwrap();
                let written = &siblings[number].0;
                let is_member = match written.split_once("values: ") {
                    Some((_, items)) => items.contains(&format!("'{value}'")),
                    None => ["a", "@a", "@l.txt/"].contains(&value.as_str()),
                };
                let is_list = written.starts_with("values");
                prop_assert!(!is_list || is_member, "{} in {}", value, written);
                let shares = written.contains("share_threshold");
                let key = domain.key_values(entries);
                let key = key.first().map_or(value.as_str(), |(_, text)| text).to_owned();
                let counts = (number, (!shares).then_some(value));
                let first = *keys.entry((key, entries.len())).or_insert(counts);
                prop_assert_eq!(first, counts, "{}\n{:?}", text, entries);
            }
        }
    }
}

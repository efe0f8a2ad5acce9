//! Rules by network and by list.

mod lists;
mod model;
mod names;
mod values;

use std::fs;
use std::path::Path;

use super::{file, find, good, reported};
use crate::source::Selection;
use crate::{Lists, Loaded, MatchKind, Problems, RuleOptions, RuleSet, compare};

const L: &str = "rate_limit: { unit: minute, requests_per_unit: 1 }";

/// A domain `d` of these descriptors; `L` is replaced by a rate limit.
fn rules(descriptors: &str) -> RuleSet {
    good(&text(descriptors))
}

fn text(descriptors: &str) -> String {
    format!("domain: d\ndescriptors:\n{}", descriptors.replace('L', L))
}

/// Writes files into a directory, and loads its rules.
fn load(files: &[(&str, &str)]) -> (tempfile::TempDir, Loaded) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let loaded = Loaded::read(&Selection::of(dir.path()), &RuleOptions::default(), None);
    (dir, loaded)
}

/// Loads rules with a list `blocked.txt`, without problems.
fn listed(descriptors: &str, list: &str) -> RuleSet {
    let (_dir, loaded) = load(&[("r.yaml", &text(descriptors)), ("blocked.txt", list)]);
    assert_eq!(loaded.problems, []);
    loaded.rules
}

/// The problems, without the directory.
fn problems(dir: &Path, loaded: &Loaded) -> Vec<String> {
    let dir = format!("{}/", dir.display());
    let shown = |problem: &crate::Problem| format!("{problem}; {}", problem.help).replace(&dir, "");
    loaded.problems.iter().map(shown).collect()
}

/// The values of the key of `ip=value`, and of its path in metrics.
fn counted(set: &RuleSet, value: &str) -> (String, String) {
    let domain = set.domain("d").unwrap();
    let entries = [("ip", value)];
    let found = domain.find(&entries).unwrap();
    let values = domain.key_values(&entries);
    assert_eq!(found.replaces_values, !values.is_empty(), "{value}");
    let key = values.first().map_or(value.to_owned(), |(_, text)| text.clone().into_owned());
    (key, domain.metric_path(found.rule, &entries))
}

#[test]
fn a_value_precedes_the_longest_network_and_that_a_wildcard() {
    let set = rules(
        "- { key: ip, L }\n- { key: ip, value: '10.*', L }\n- { key: ip, network: 10.0.0.0/8, L }\n\
         - { key: ip, network: [10.1.0.0/16, 2001:db8::/32], L }\n- { key: ip, network: 10.1.2.3, L }\n\
         - { key: ip, value: '10.1.2.4', L }\n- { key: ip, value: 10.2.0.0/16, L }\n",
    );
    for (value, rule) in [
        ("10.9.9.9", "ip_10.0.0.0/8"),
        ("10.1.9.9", "ip_10.1.0.0/16"),
        ("10.1.2.3", "ip_10.1.2.3"),
        ("10.1.2.3:80", "ip_10.1.2.3"),
        ("::ffff:10.1.2.3", "ip_10.1.2.3"),
        ("10.1.2.4", "ip_10.1.2.4"),
        ("10.1.2.4:80", "ip_10.1.2.4"),
        ("10.2.0.0/16", "ip_10.2.0.0/16"),
        ("10.2.3.4/16", "ip_10.2.0.0/16"),
        // A value that is a network does not have the addresses in it.
        ("10.2.3.4", "ip_10.0.0.0/8"),
        ("10.2.0.0/17", "ip_10.0.0.0/8"),
        ("10.0.0.0/8", "ip_10.0.0.0/8"),
        ("10.0.0.0/7", "ip_10.*"),
        ("10.x", "ip_10.*"),
        ("[2001:db8::1%eth0]:80", "ip_2001:db8::/32"),
        ("2001:db9::", "ip"),
        ("ann", "ip"),
        ("", "ip"),
    ] {
        assert_eq!(find(&set, &[("ip", value)]), Some(rule), "{value}");
    }
    assert_eq!(find(&set, &[("other", "10.1.2.3")]), None);
    assert_eq!(find(&set, &[("i", "p_10.1.2.3")]), None, "the key is not split");
}

#[test]
fn a_value_beside_networks_names_an_address_in_all_its_forms() {
    for beside in ["network: 10.0.0.0/8", "network: 192.0.2.0/24", "values_file: blocked.txt"] {
        let set = listed(
            &format!(
                "- {{ key: ip, {beside}, detailed_metric: true, L }}\n- {{ key: ip, L }}\n\
                 - {{ key: ip, value: 10.0.0.5, detailed_metric: true, L }}\n- {{ key: ip, value: '::1', L }}\n\
                 - {{ key: ip, value: '::ffff:10.0.0.6', L }}\n- {{ key: ip, value: '10.0.0.5:1', L }}\n\
                 - {{ key: ip_10.0.0.7, L }}\n- {{ key: other, value: 10.0.0.5, L }}\n"
            ),
            "10.0.0.0/8\n",
        );
        for (value, rule) in [
            ("10.0.0.5", Some("ip_10.0.0.5")),
            ("10.0.0.5:80", Some("ip_10.0.0.5")),
            ("::ffff:10.0.0.5", Some("ip_10.0.0.5")),
            ("[::ffff:a00:5]:80", Some("ip_10.0.0.5")),
            ("10.0.0.5/32", Some("ip_10.0.0.5")),
            ("10.0.0.5:1", Some("ip_10.0.0.5:1")),
            ("[::1]:80", Some("ip_::1")),
            ("0:0::1", Some("ip_::1")),
            ("10.0.0.7:80", Some("ip_10.0.0.7")),
            ("::ffff:10.0.0.6", Some("ip_::ffff:10.0.0.6")),
        ] {
            assert_eq!(find(&set, &[("ip", value)]), rule, "{beside}: {value}");
        }
        assert_ne!(
            find(&set, &[("ip", "10.0.0.6")]),
            Some("ip_::ffff:10.0.0.6"),
            "no canonical text"
        );
        assert_eq!(find(&set, &[("other", "10.0.0.5:80")]), None, "a key without networks");
        assert_eq!(counted(&set, "10.0.0.5:80"), ("10.0.0.5".into(), "ip_10.0.0.5".into()));
        assert_eq!(counted(&set, "10.0.0.7:80").0, "10.0.0.7");
        let step = |value| {
            let mut steps = set.domain("d").unwrap().trace(&[("ip", value)]).steps;
            let matched = steps.remove(0).matched.unwrap();
            (matched.kind, matched.within.is_none())
        };
        assert_eq!(step("10.0.0.5:80"), (MatchKind::Value, true));
    }
}

#[test]
fn a_value_beside_networks_names_a_group() {
    let set = |more: &str| {
        rules(&format!(
            "- {{ key: ip, network: 10.0.0.0/8, group: {{ v4: 16 }}, {more} }}\n\
             - {{ key: ip, network: 10.1.2.0/24, L }}\n- {{ key: ip, value: 10.1.0.0/16, L }}\n"
        ))
    };
    let grouped = set("L");
    for (value, rule, key) in [
        ("10.1.9.9", "ip_10.1.0.0/16", "10.1.0.0/16"),
        ("10.1.9.9:80", "ip_10.1.0.0/16", "10.1.0.0/16"),
        ("10.1.0.0/16", "ip_10.1.0.0/16", "10.1.0.0/16"),
        ("10.1.0.0/17", "ip_10.1.0.0/16", "10.1.0.0/16"),
        ("10.1.2.3", "ip_10.1.2.0/24", "10.1.2.3"),
        ("10.2.9.9", "ip_10.0.0.0/8", "10.2.0.0/16"),
        ("10.0.0.0/8", "ip_10.0.0.0/8", "10.0.0.0/8"),
    ] {
        assert_eq!(find(&grouped, &[("ip", value)]), Some(rule), "{value}");
        assert_eq!(counted(&grouped, value).0, key, "{value}");
    }
    // These do not count by the text of the value.
    for more in ["rate_limit: { unlimited: true }", "share_threshold: true, L"] {
        assert_eq!(find(&set(more), &[("ip", "10.1.9.9")]), Some("ip_10.0.0.0/8"), "{more}");
    }
}

#[test]
fn an_allow_list_beats_the_limit_of_a_wildcard() {
    let set = rules(
        "- { key: ip, value: '*', L }\n- { key: ip, network: 10.0.0.0/8, rate_limit: { unlimited: true } }\n",
    );
    let plan = |value| {
        let domain = set.domain("d").unwrap();
        domain.find(&[("ip", value)]).unwrap().rule.plan.is_some()
    };
    assert!(!plan("10.1.2.3") && plan("11.1.2.3"));
}

#[test]
fn what_is_below_a_list_of_networks_is_below_each() {
    let set = rules(
        "- key: ip\n  network: [10.0.0.0/8, 2001:db8::/32]\n  descriptors:\n  - { key: path, L }\n  - key: path\n    \
         value: /a\n    L\n",
    );
    assert_eq!(set.rules().count(), 4);
    for value in ["10.1.2.3", "2001:db8::1"] {
        assert!(find(&set, &[("ip", value), ("path", "/a")]).unwrap().ends_with(".path_/a"));
        assert_eq!(find(&set, &[("ip", value)]), None);
    }
    assert_eq!(find(&set, &[("ip", "11.1.2.3"), ("path", "/a")]), None);
}

#[test]
fn addresses_are_counted_in_their_canonical_form_or_by_prefix() {
    let detailed = "detailed_metric: true";
    let set = rules(&format!("- {{ key: ip, network: [10.0.0.0/8, '::/0'], {detailed}, L }}\n"));
    for (sent, key) in [
        ("10.1.2.3", "10.1.2.3"),
        ("10.1.2.3:80", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("10.1.2.3/16", "10.1.0.0/16"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
    ] {
        assert_eq!(counted(&set, sent), (key.to_owned(), format!("ip_{key}")), "{sent}");
    }
    let group = "group: { v4: 24, v6: 64 }";
    let set = rules(&format!(
        "- {{ key: ip, network: [10.0.0.0/8, '::/0'], {group}, value_to_metric: true, L }}\n"
    ));
    for (sent, key) in [
        ("10.1.2.3", "10.1.2.0/24"),
        ("10.1.0.0/16", "10.1.0.0/16"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::/64", "2001:db8::/64"),
    ] {
        assert_eq!(counted(&set, sent), (key.to_owned(), format!("ip_{key}")), "{sent}");
    }
    let set = rules(
        "- { key: ip, network: 10.0.0.0/8, share_threshold: true, detailed_metric: true, L }\n",
    );
    assert_eq!(counted(&set, "10.1.2.3"), ("10.0.0.0/8".into(), "ip_10.0.0.0/8".into()));
    // The whole network, and nobody else.
    let shown = set.to_json(&|_| None);
    assert!(shown.contains(r#""share_threshold":[true]"#) && shown.contains(r#""by":"network""#));
}

#[test]
fn a_trace_has_the_network_and_the_line() {
    let set = listed(
        "- { key: ip, values_file: blocked.txt, L }\n- { key: ip, network: 10.0.0.0/9, L }\n- { key: ip, value: '10*', L }\n",
        "\n10.0.0.0/8\nann\n",
    );
    let domain = set.domain("d").unwrap();
    let step = |value| {
        let trace = domain.trace(&[("ip", value)]);
        let step = trace.steps.into_iter().next().unwrap();
        let matched = step.matched.unwrap();
        let within = matched.within.map(|it| it.to_string()).unwrap_or_default();
        let later: Vec<_> = step.later.iter().map(|it| it.text.to_owned()).collect();
        (matched.kind, within, later)
    };
    assert_eq!(
        step("10.1.2.3"),
        (MatchKind::Network, "10.0.0.0/9".into(), vec!["ip_@blocked.txt".into(), "ip_10*".into()])
    );
    assert_eq!(
        step("10.200.0.0"),
        (MatchKind::List, "10.0.0.0/8 of blocked.txt:2".into(), vec!["ip_10*".into()])
    );
    assert_eq!(step("ann"), (MatchKind::List, "blocked.txt:3".into(), vec![]));
}

#[test]
fn errors_of_networks() {
    let one = |descriptor: &str| reported(&text(descriptor)).join("\n");
    for (descriptor, error) in [
        ("- { key: ip, network: 10.0.0.1/8, L }\n", "'10.0.0.1/8' has bits set after its prefix"),
        ("- { key: ip, network: 10.0.0.0/33, L }\n", "longer than 32 bits"),
        ("- { key: ip, network: 10.*, L }\n", "'10.*' is no network"),
        ("- { key: ip, network: [], L }\n", "`network` is an empty list"),
        ("- { key: ip, network: [10.0.0.0/8, {}], L }\n", "cannot use a map as text"),
        ("- { key: ip, network: 10.0.0.0/8, value: a, L }\n", "both `value` and `network`"),
        ("- { key: ip, network: '::/0', values_file: a, L }\n", "both `network` and `values_file`"),
        ("- { key: 'ip*', network: 10.0.0.0/8, L }\n", "`network` beside the key 'ip*'"),
        (
            "- { key: ip, group: { v4: 8 }, L }\n",
            "`group` without `network`, `values` or `values_file`",
        ),
        ("- { key: ip, network: '::/0', group: { v4: 33 }, L }\n", "`v4` is 33"),
        ("- { key: ip, network: '::/0', group: { v5: 3 }, L }\n", "unknown key 'v5'"),
        ("- { key: ip, network: '::/0', group: 8, L }\n", "cannot use `8` as a map"),
        ("- { key: ip, values_file: a.txt, L }\n", "`values_file` in rules that are in no file"),
        (
            "- { key: ip, network: 10.0.0.0/8, L }\n- { key: ip, network: ['::ffff:10.0.0.0/104'], L }\n",
            "4:24: error: duplicate descriptor composite key 'd.ip_10.0.0.0/8'",
        ),
        (
            "- { key: ip, value: 10.0.0.0/8, L }\n- { key: ip, network: 10.0.0.0/8, L }\n",
            "duplicate descriptor composite key 'd.ip_10.0.0.0/8'",
        ),
        ("- { key: ip, L, descriptors: [{ network: '::/0' }] }\n", "descriptor has empty key"),
    ] {
        let reported = one(descriptor);
        assert!(reported.contains(error), "{descriptor}: {reported}");
    }
    let (_, problems) = super::compile(&text("- { key: ip, network: 10.9.0.0/8, L }\n"));
    assert_eq!(problems[0].help, "write 10.0.0.0/8");
}

#[test]
fn the_help_about_a_duplicate_does_not_depend_on_the_order() {
    let value = "- { key: ip, value: 10.0.0.0/8, L }\n";
    let network = "- { key: ip, network: 10.0.0.0/8, L }\n";
    for (first, second, help) in [
        (value, network, "a value only the text"),
        (network, value, "a value only the text"),
        (network, network, "remove one of the two, or list several limits"),
        (value, value, "merge the two, and list several limits"),
    ] {
        let (_, problems) = super::compile(&text(&format!("{first}{second}")));
        assert!(problems.len() == 1 && problems[0].help.contains(help), "{problems:#?}");
    }
}

#[test]
fn a_set_that_is_no_text_is_one_error() {
    for key in ["network", "values_file"] {
        for value in ["{ a: b }", "1.5", "[1.5]"] {
            let errors = reported(&text(&format!("- {{ key: ip, {key}: {value}, L }}\n")));
            assert_eq!(errors.len(), 1, "{errors:#?}");
        }
    }
}

#[test]
fn rules_are_written_and_compared_with_their_networks_and_lists() {
    let descriptors = "- { key: ip, network: [10.0.0.0/8, 2001:db8::/32], group: { v6: 64 }, L }\n\
                       - { key: ip, values_file: blocked.txt, share_threshold: true, L }\n";
    let set = listed(descriptors, "192.0.2.1\n");
    let unread = RuleOptions { lists: Lists::Unread, ..RuleOptions::default() };
    let (again, problems) = RuleSet::compile(&[file("a", &set.to_yaml())], &unread, None);
    assert_eq!(problems, []);
    assert!(compare(&set, &again).is_empty());
    assert_eq!(again.to_yaml(), set.to_yaml());
    assert!(
        set.to_yaml().contains("  network: 10.0.0.0/8\n")
            || set.to_yaml().contains("network: \"10.0.0.0/8\"")
    );
    let changes = |new: &RuleSet| -> Vec<String> {
        compare(&set, new).changed.iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        changes(&listed(descriptors, "192.0.2.1\n192.0.2.2\n")),
        ["d.ip_@blocked.txt: values_file: 1 values → 2 values"]
    );
    assert_eq!(
        changes(&listed(descriptors, "192.0.2.9\n")),
        ["d.ip_@blocked.txt: values_file: 1 values → 1 other values"]
    );
    let text = text(descriptors).replace("v6: 64", "v6: 56");
    let (_dir, loaded) = load(&[("r.yaml", &text), ("blocked.txt", "192.0.2.1\n")]);
    assert_eq!(changes(&loaded.rules).len(), 2, "{:?}", loaded.problems);
    let as_text = rules("- { key: ip, value: 10.0.0.0/8, L }\n");
    assert!(changes(&as_text).contains(&"d.ip_10.0.0.0/8: matches by: network → value".to_owned()));
}

#[test]
fn a_patch_sets_the_group_and_finds_networks_by_their_text() {
    use crate::{Overlay, OverlayReport};
    let overlay = "patches:\n- match: { domain: d, entries: [{ key: ip, value: '10.0.0.0/8' }] }\n  \
                   set: { group: { v4: 24 } }\n- match: { domain: d, entries: [{ key: ip, value: '::/0' }] }\n  \
                   set: { group: 8 }\n";
    let options = RuleOptions::default();
    let error = Overlay::new(vec![file("o", overlay)], vec![], &options).unwrap_err();
    assert!(error.problems[0].message.contains("cannot use `8` as a map"), "{error:?}");
    let overlay = overlay.replace("group: 8", "group: { v6: 64 }");
    let overlay = Overlay::new(vec![file("o", &overlay)], vec![], &options).unwrap();
    let rules =
        file("r", &text("- { key: ip, network: [10.0.0.0/8, '::/0'], L }\n- { key: ip, L }\n"));
    let options = RuleOptions { overlay: Some(overlay), ..options };
    let loaded = Loaded::compile(vec![rules], Problems::new(100), &options, None);
    assert_eq!(loaded.problems, []);
    let OverlayReport { problems, patched_rules, .. } = &loaded.overlay;
    assert_eq!((&problems[..], *patched_rules), (&[][..], 2));
    assert_eq!(counted(&loaded.rules, "10.1.2.3").0, "10.1.2.0/24");
    assert_eq!(counted(&loaded.rules, "2001:db8::1").0, "2001:db8::/64");
    for key in ["network: 10.0.0.0/8", "values_file: a.txt"] {
        let overlay = format!("patches: [{{ match: {{ domain: d }}, set: {{ {key} }} }}]\n");
        let error = Overlay::new(vec![file("o", &overlay)], vec![], &options).unwrap_err();
        assert!(error.problems[0].help.contains("`match` selects rules by it"), "{error:?}");
    }
}

//! `values`: one rule for several values, wildcards and networks.

use proptest::prelude::*;

use super::{counted, load, rules, text};
use crate::tests::{compile, find, good};
use crate::{Overlay, RuleOptions, RuleSet, compare};

/// The problems of descriptors, each with its help.
fn problems(descriptors: &str) -> Vec<String> {
    let problems = compile(&text(descriptors)).1;
    problems.iter().map(|problem| format!("{problem}; {}", problem.help)).collect()
}

#[test]
fn each_value_counts_apart_by_one_rule() {
    let set = rules(
        "- { key: ip, values: [GET, HEAD, 'P*', 10.0.0.0/8, 200], detailed_metric: true, L }\n\
         - { key: ip, value: PATCH, L }\n- { key: ip, value: 'PU*', L }\n- { key: ip, L }\n",
    );
    for (value, rule) in [
        ("GET", "ip_@values"),
        ("POST", "ip_@values"),
        ("PUT", "ip_@values"),
        ("P*", "ip_@values"),
        ("10.1.2.3:80", "ip_@values"),
        ("200", "ip_@values"),
        ("PATCH", "ip_PATCH"),
        ("get", "ip"),
        ("@values", "ip"),
        ("11.1.2.3", "ip"),
    ] {
        assert_eq!(find(&set, &[("ip", value)]), Some(rule), "{value}");
    }
    let counted = |value| counted(&set, value).0;
    assert_eq!(["GET", "POST", "10.1.2.3:80"].map(counted), ["GET", "POST", "10.1.2.3"]);
    let rule = set.rules().next().unwrap();
    assert_eq!((rule.listed_values(), rule.path()), (Some(5), "ip_@values"));
    assert_eq!(set.rules().count(), 4);
    let metric = set.domain("d").unwrap().metric_path(rule, &[("ip", "POST")]);
    assert_eq!(metric, "ip_POST", "detailed");
}

#[test]
fn shared_values_have_a_key_that_does_not_change_with_the_list() {
    for items in ["[GET]", "[HEAD, GET, 'P*', 10.0.0.0/8]", "GET"] {
        let set = rules(&format!(
            "- {{ key: ip, values: {items}, share_threshold: true, L }}\n\
             - {{ key: ip, values: [x, 'x*'], share_threshold: true, L }}\n\
             - {{ key: other, values: [x], share_threshold: true, L }}\n"
        ));
        let key = |key: &str, value: &str| {
            let values = set.domain("d").unwrap().key_values(&[(key, value)]);
            values.first().map(|(_, text)| text.to_string())
        };
        assert_eq!(key("ip", "GET").as_deref(), Some("@values"));
        assert_eq!(key("ip", "x").as_deref(), Some("@values2"));
        assert_eq!(key("ip", "xyz").as_deref(), Some("@values2"));
        assert_eq!(key("other", "x").as_deref(), Some("@values"));
        // A client cannot put itself into the list by its name.
        assert_eq!(find(&set, &[("ip", "@values2")]), None);
        let rule = set.rules().next().unwrap();
        let metric = set.domain("d").unwrap().metric_path(rule, &[("ip", "GET")]);
        assert_eq!(metric, "ip_@values");
    }
}

#[test]
fn a_file_may_have_the_name_of_values() {
    let rules = text(
        "- { key: m, values_file: values, L }\n- { key: m, values: [a], L }\n- { key: m, values: [b], L }\n",
    );
    let (_dir, loaded) = load(&[("r.yaml", &rules), ("values", "c\n")]);
    assert_eq!(loaded.problems, []);
    for (value, rule) in [("c", "m_@values"), ("a", "m_@values2"), ("b", "m_@values3")] {
        assert_eq!(find(&loaded.rules, &[("m", value)]), Some(rule));
    }
}

#[test]
fn groups_and_rules_below_are_those_of_all_items() {
    let set = rules(
        "- key: ip\n  values: [10.0.0.0/8, '2001:db8::/32', ann]\n  group: { v4: 24 }\n  descriptors:\n  - { key: path, L }\n\
         - { key: ip, value: 10.9.9.0/24, descriptors: [{ key: other, L }] }\n",
    );
    for value in ["10.1.2.3", "2001:db8::1", "ann"] {
        assert_eq!(find(&set, &[("ip", value), ("path", "/a")]), Some("ip_@values.path"));
    }
    let domain = set.domain("d").unwrap();
    let values = domain.key_values(&[("ip", "10.1.2.3"), ("path", "/a")]);
    assert_eq!(values, [(0, "10.1.2.0/24".into())]);
    // The group is the value of another descriptor.
    assert_eq!(find(&set, &[("ip", "10.9.9.1"), ("other", "")]), Some("ip_10.9.9.0/24.other"));
    assert_eq!(set.rules().count(), 2);
}

#[test]
fn invalid_values_are_rejected_with_a_fix() {
    for (descriptors, message, help) in [
        (
            "- { key: m, values: [], L }",
            "3:21: error: config error, `values` is an empty list",
            "[GET, HEAD]",
        ),
        (
            "- { key: m, values: [a, ''], L }",
            "3:25: error: config error, an item of `values` is empty",
            "matches all",
        ),
        (
            "- { key: m, values: [a, [b]], L }",
            "3:25: error: error loading config file: cannot use a list as text",
            "write text after `values:`",
        ),
        (
            "- { key: m, values: { a: b }, L }",
            "3:21: error: error loading config file: cannot use a map as text",
            "write text after `values:`",
        ),
        (
            "- { key: m, values: [1.5], L }",
            "3:22: error: error checking config: `values` is 1.5",
            "in quotes",
        ),
        (
            "- { key: m, values: [a], value: b, L }",
            "3:21: error: config error, both `value` and `values`",
            "two descriptors",
        ),
        (
            "- { key: m, values: [a], network: 10.0.0.0/8, L }",
            "config error, both `values` and `network`",
            "two descriptors",
        ),
        (
            "- { key: m, values: [a], values_file: b, L }",
            "config error, both `values` and `values_file`",
            "two descriptors",
        ),
        ("- { key: 'm*', values: [a], L }", "`values` beside the key 'm*'", "without `*`"),
        (
            "- { key: m, values: [10.0.0.1/8], L }",
            "3:22: error: config error, '10.0.0.1/8' has bits set",
            "write 10.0.0.0/8",
        ),
        ("- { key: m, values: ['10.0.0.1:80'], L }", "has a port", "write 10.0.0.1"),
        (
            "- { key: m, values: '10.0.0.0/8, 10.1.0.0/16', L }",
            "3:21: error: config error, '10.0.0.0/8, 10.1.0.0/16' is no network",
            "write a network",
        ),
        (
            "- { key: m, values: '10.0.0.1, ann', L }",
            "more than the network '10.0.0.1' in one item",
            "or an item",
        ),
        (
            "- { key: m, values: [a, b, a], L }",
            "3:28: error: config error, 'a' is there twice on this level",
            "remove one of the two",
        ),
        (
            "- { key: m, values: ['::FFFF:10.0.0.1', 10.0.0.1], L }",
            "'10.0.0.1' is there twice",
            "remove one",
        ),
        (
            "- { key: m, values: [a], L }\n- { key: m, values: [b, a], L }",
            "4:25: error: config error, 'a' is there twice",
            "remove one",
        ),
        (
            "- { key: m, value: a, L }\n- { key: m, values: [b, a], L }",
            "4:25: error: config error, 'a' is there twice",
            "remove one",
        ),
        (
            "- { key: m, values: [b, a], L }\n- { key: m, value: a, L }",
            "duplicate descriptor composite key 'd.m_a'",
            "remove it from one of the two",
        ),
        (
            "- { key: m, values: [b, 'a*'], L }\n- { key: m, value: 'a*', L }",
            "duplicate descriptor composite key 'd.m_a*'",
            "remove it from one of the two",
        ),
        (
            "- { key: m, values: [10.0.0.0/8], L }\n- { key: m, network: 10.0.0.0/8, L }",
            "duplicate descriptor composite key 'd.m_10.0.0.0/8'",
            "remove it from one of the two",
        ),
        (
            "- { key: m, network: 10.0.0.0/8, L }\n- { key: m, values: 10.0.0.0/8, L }",
            "'10.0.0.0/8' is there twice",
            "remove one",
        ),
        (
            "- { key: m, value: b, group: { v4: 8 }, L }",
            "`group` without `network`, `values` or `values_file`",
            "network",
        ),
    ] {
        let problems = problems(descriptors);
        let [problem] = &problems[..] else { panic!("{descriptors}: {problems:#?}") };
        let (shown, fix) = problem.rsplit_once("; ").unwrap();
        assert!(shown.contains(message) && fix.contains(help), "{descriptors}: {problem}");
    }
    let rules =
        text("- { key: ip, values: [10.0.0.0/8], L }\n- { key: ip, values_file: a.txt, L }\n");
    let (_dir, loaded) = load(&[("r.yaml", &rules), ("a.txt", "ann\n10.0.0.0/8\n")]);
    let [problem] = &loaded.problems[..] else { panic!("{:?}", loaded.problems) };
    let message = "the network 10.0.0.0/8 is in both 'ip_@values' and 'ip_@a.txt' (line 2)";
    assert!(problem.message.ends_with(message), "{problem}");
}

#[test]
fn a_wildcard_before_others_is_a_warning_about_the_item() {
    let lint = |descriptors: &str| {
        let options = RuleOptions { lint: true, ..RuleOptions::default() };
        let file = crate::tests::file("r.yaml", &text(descriptors));
        let problems = RuleSet::compile(&[file], &options, None).1;
        problems.iter().map(|problem| problem.message.clone()).collect::<Vec<_>>()
    };
    let sane = "- { key: m, values: [GET, POST, 'P*', 'X*'], L }\n- { key: m, values: [PUT, 'G*'], L }\n- { key: m, L }\n";
    assert_eq!(lint(sane), [""; 0]);
    assert_eq!(
        lint("- { key: m, values: [a, 'P*'], L }\n- { key: m, values: ['PU*', b], L }\n"),
        [
            "the wildcard 'm_PU*' is unreachable: 'm_P*', earlier in the file, matches all that it does"
        ]
    );
    assert_eq!(
        lint("- { key: m, values: [a, '*'], L }\n- { key: m, L }\n"),
        ["no entry with the key 'm' gets here: the wildcard 'm_*' matches all of them"]
    );
}

#[test]
fn the_look_up_of_an_item_is_explained() {
    let set = rules(
        "- { key: m, values: [GET, 'P*', '*U*', 10.0.0.0/8, 10.1.0.0/16], L }\n- { key: m, value: 'PU*', L }\n",
    );
    let domain = set.domain("d").unwrap();
    let shown = |value: &str| {
        let trace = domain.trace(&[("m", value)]);
        let matched = trace.steps[0].matched.unwrap();
        let later = trace.steps[0].later.iter().map(|later| later.text).collect::<Vec<_>>();
        (matched.text, matched.within.unwrap().to_string(), later.join(" "))
    };
    for (value, item, later) in [
        ("GET", "GET", ""),
        ("PUT", "P*", "m_PU*"),
        ("PUU", "P*", "m_PU*"),
        ("10.1.2.3", "10.1.0.0/16", ""),
        ("10.2.2.3", "10.0.0.0/8", ""),
        ("P*", "P*", ""),
    ] {
        let within = format!("values ('{item}')");
        assert_eq!(shown(value), ("m_@values", within, later.to_owned()), "{value}");
    }
    let near = |value| format!("{:?}", set.near_misses("d", &[("m", value)]));
    assert!(near("GETT").contains("Value(0, Some(\"GET\"))"), "{}", near("GETT"));
}

#[test]
fn values_are_written_and_compared() {
    let rules_with = |items: &str| rules(&format!("- {{ key: m, values: {items}, L }}\n"));
    let set = rules_with("[GET, 'P*', yes, '2', 'a, b', 10.0.0.0/8]");
    let yaml = set.to_yaml();
    let line = "  values: [GET, 'P*', 'yes', '2', 'a, b', '10.0.0.0/8']\n";
    assert!(yaml.replace('"', "'").contains(line), "{yaml}");
    let (_, yaml) = yaml.split_once("---\n").unwrap();
    assert!(compare(&set, &good(yaml)).is_empty());
    let changes = |new: &RuleSet| {
        let changed = compare(&set, new).changed;
        changed.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(changes(&rules_with("[2, 'P*', GET, 10.0.0.0/8, 'yes', 'a, b']")), [""; 0]);
    assert_eq!(changes(&rules_with("[GET]")), ["d.m_@values: values: 6 values → 1 values"]);
}

#[test]
fn patches_match_values_by_their_text_or_by_the_key() {
    let rules = text(
        "- { key: m, values: [a, 'b*'], share_threshold: true, L }\n- { key: m, values: c, L }\n",
    );
    for (entry, names) in [
        ("{ key: m, value: '@values' }", ["x", ""]),
        ("{ key: m, value: '@values2' }", ["", "x"]),
        ("{ key: m }", ["x", "x"]),
        ("{ key: m, value: '@*' }", ["x", "x"]),
        ("{ key: m, value: a }", ["", ""]),
    ] {
        let patch = format!(
            "patches:\n- match: {{ domain: d, entries: [{entry}] }}\n  set: {{ name: x }}\n"
        );
        let files = vec![crate::tests::file("o.overlay.yaml", &patch)];
        let overlay = Overlay::new(files, Vec::new(), &RuleOptions::default()).unwrap();
        let options = RuleOptions { overlay: Some(overlay), ..RuleOptions::default() };
        let set = RuleSet::compile(&[crate::tests::file("r.yaml", &rules)], &options, None).0;
        let named: Vec<&str> = set.rules().map(|rule| rule.limit_name(0)).collect();
        assert_eq!(named, names, "{entry}");
        let key = set.domain("d").unwrap().key_values(&[("m", "bob")]);
        assert_eq!(key, [(0, "@values".into())]);
    }
}

/// A rule of the model, which is written as one with `values` or as siblings.
#[derive(Clone, Debug)]
struct Several {
    key: &'static str,
    items: Vec<String>,
    is_split: bool,
}

fn item() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ab_]{1,3}",
        2 => "[ab_]{0,1}\\*[ab_]{0,1}",
        2 => (0..8_u32, 6..=32_u8).prop_map(|(bits, len)| {
            let address = std::net::Ipv4Addr::from_bits(10 << 24 | bits << 21 | bits);
            weir_common::network::Network::new(address.into(), len).unwrap().to_string()
        }),
        1 => Just("2001:db8::/32".to_owned()),
    ]
}

fn several() -> impl Strategy<Value = Several> {
    let key = prop::sample::select(vec!["k", "l"]);
    (key, prop::collection::vec(item(), 1..6), any::<bool>())
        .prop_map(|(key, items, is_split)| Several { key, items, is_split })
}

fn sent() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "[ab_*]{0,4}",
        1 => (0..8_u32, 0..3_u32).prop_map(|(bits, low)| {
            let address = std::net::Ipv4Addr::from_bits(10 << 24 | bits << 21 | (bits + low));
            [address.to_string(), format!("{address}:80"), format!("::ffff:{address}")][low as usize].clone()
        }),
        1 => item(),
        1 => Just("[2001:db8::1]:80".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn values_decide_as_siblings_do(
        mut all in prop::collection::vec(several(), 1..6),
        has_key in any::<bool>(),
        requests in prop::collection::vec((prop::sample::select(vec!["k", "l"]), sent()), 1..30),
    ) {
        let mut seen = Vec::new();
        for several in &mut all {
            let key = several.key;
            several.items.retain(|item| {
                let text = format!("{key}_{item}");
                let is_new = !seen.contains(&text);
                seen.push(text);
                is_new
            });
        }
        all.retain(|several| !several.items.is_empty());
        let [together, split] = [false, true].map(|splits| {
            let mut text = "domain: d\ndescriptors:\n".to_owned();
            for (i, several) in all.iter().enumerate() {
                let limit = format!("group: {{ v4: 30 }}, rate_limit: {{ unit: day, requests_per_unit: 1, name: r{i} }}");
                let key = several.key;
                if splits || several.is_split {
                    for item in &several.items {
                        let (name, limit) = match weir_common::network::Network::parse(item) {
                            Ok(_) => ("network", limit.as_str()),
                            Err(_) => ("value", limit.split_once("}, ").unwrap().1),
                        };
                        text += &format!("- {{ key: {key}, {name}: '{item}', {limit} }}\n");
                    }
                } else {
                    let items = several.items.join("', '");
                    text += &format!("- {{ key: {key}, values: ['{items}'], {limit} }}\n");
                }
            }
            if has_key {
                text += "- { key: k, rate_limit: { unit: day, requests_per_unit: 1, name: k } }\n";
            }
            good(&text)
        });
        for (key, value) in &requests {
            let entries = [(*key, value.as_str())];
            let decided = |set: &RuleSet| {
                let domain = set.domain("d")?;
                let name = domain.find(&entries)?.rule.limit_name(0).to_owned();
                let keys: Vec<String> =
                    domain.key_values(&entries).into_iter().map(|(_, text)| text.into_owned()).collect();
                Some((name, keys))
            };
            prop_assert_eq!(decided(&together), decided(&split), "{:?}", entries);
            let domain = together.domain("d").unwrap();
            let trace = domain.trace(&entries);
            let rule = trace.end.and_then(|end| end.rule).map(|rule| rule.limit_name(0));
            prop_assert_eq!(rule.map(str::to_owned), decided(&together).map(|(name, _)| name));
            let matches = trace.steps[0].level.matches(entries[0]);
            prop_assert_eq!(matches.first().map(|first| first.text), trace.end.map(|end| end.text));
        }
    }
}

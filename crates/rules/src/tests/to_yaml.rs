//! Rules as rule files, which are read again.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use super::{compile, file, good};
use crate::source::RuleFile;
use crate::{
    Loaded, Overlay, Problems, RuleOptions, RuleSet, SourceFile, YAML_HEADER, compare, yaml,
};
use weir_common::value;

/// All rules, without the places where they were read, by domain.
fn described(set: &RuleSet) -> Vec<Value> {
    let mut json: Value = serde_json::from_str(&set.to_json(&|_| None)).unwrap();
    let mut rules = std::mem::take(json["rules"].as_array_mut().unwrap());
    for rule in &mut rules {
        let rule = rule.as_object_mut().unwrap();
        rule.retain(|name, _| !["file", "line", "column", "patches"].contains(&name.as_str()));
    }
    rules.sort_by_key(|rule| rule["domain"].as_str().unwrap().to_owned());
    rules
}

/// Writes a set, reads it again, and checks that both are equal. Returns what was written.
fn reread(set: &RuleSet) -> String {
    let text = set.to_yaml();
    let (again, problems) =
        RuleSet::compile(&[file("active.yaml", &text)], &RuleOptions::default(), None);
    let errors: Vec<_> = problems.iter().filter(|problem| problem.is_error()).collect();
    assert!(errors.is_empty(), "{text}\n{errors:#?}");
    let difference = compare(set, &again);
    assert!(difference.is_empty(), "{text}\n{difference:#?}");
    assert_eq!(described(set), described(&again), "{text}");
    assert_eq!(again.to_yaml(), text);
    text
}

#[test]
fn a_rule_file_has_what_is_not_a_default() {
    let set = good(
        "domain: shop\ndescriptors:\n- key: user\n  descriptors:\n  - key: path\n    value: '/a*'\n    \
         share_threshold: true\n    shadow_mode: true\n    metadata: { team: 'yes' }\n    \
         rate_limit: { period: 15m, requests_per_unit: 300, burst: 300, algorithm: leaky_bucket }\n\
         - { key: none }\n- { key: free, rate_limit: { unlimited: true, name: f } }\n",
    );
    assert_eq!(
        reread(&set),
        format!(
            "{YAML_HEADER}---\ndomain: shop\ndescriptors:\n- key: user\n  descriptors:\n  - key: path\n    \
             value: \"/a*\"\n    share_threshold: true\n    shadow_mode: true\n    \
             metadata: {{ team: \"yes\" }}\n    rate_limit: {{ algorithm: gcra, unit: minute, \
             unit_multiplier: 15, requests_per_unit: 300 }}\n- key: none\n- key: free\n  \
             rate_limit: {{ unlimited: true, name: f }}\n"
        )
    );
}

#[test]
fn several_domains_are_several_documents() {
    let texts =
        ["domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day } }]\n", "domain: e\n"];
    let files = texts.map(|text| file("a.yaml", text));
    let (set, _) = RuleSet::compile(&files, &RuleOptions::default(), None);
    let text = reread(&set);
    assert_eq!(text.matches("\n---\n").count(), 2, "{text}");
    assert_eq!(set.domain_to_yaml("e").unwrap(), "domain: e\n");
    assert_eq!(set.domain_to_yaml("f"), None);
    // Commands read it too, also from a ConfigMap, with places in the whole file.
    let line = text.lines().position(|line| line == "domain: e").unwrap() + 1;
    let wrong = format!("{text}unit: day\n");
    let quoted = serde_json::to_string(&text).unwrap();
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\ndata: {{ a.yaml: {quoted} }}\n");
    let found = &mut Vec::new();
    for (text, wanted) in [
        (&text, None),
        (&manifest, None),
        (&wrong, Some(format!("a.yaml:{}:1: warning: 'unit' has no effect here", line + 1))),
    ] {
        let files = SourceFile::unpack(file("a.yaml", text), found);
        let (again, problems) = RuleSet::compile(&files, &RuleOptions::default(), None);
        assert!(compare(&set, &again).is_empty(), "{text}");
        assert_eq!(problems.first().map(ToString::to_string), wanted);
    }
    assert!(found.is_empty());
}

#[test]
fn a_file_without_any_document_is_an_error() {
    assert_eq!(RuleSet::default().to_yaml(), YAML_HEADER);
    let (_, problems) = compile(YAML_HEADER);
    assert_eq!(problems[0].message, "config file cannot have empty domain");
}

#[test]
fn an_overlay_is_part_of_the_rules() {
    let rules = file("a.yaml", "domain: d\ndescriptors: [{ key: a, rate_limit: { unit: day } }]\n");
    let patches = "patches:\n- match: { domain: d, entries: [{ key: a }] }\n  \
                   set: { algorithm: gcra, burst: 2, requests_per_unit: 9 }\n";
    let options = RuleOptions::default();
    let overlay = Overlay::new(vec![file("a.overlay.yaml", patches)], Vec::new(), &options);
    let overlay = overlay.unwrap_or_else(|error| panic!("{}", error.render()));
    let options = RuleOptions { overlay: Some(overlay), ..options };
    let loaded: Loaded = Loaded::compile(vec![rules], Problems::new(100), &options, None);
    let text = reread(&loaded.rules);
    assert!(
        text.contains("{ algorithm: gcra, unit: day, requests_per_unit: 9, burst: 2 }"),
        "{text}"
    );
}

#[test]
fn every_limit_is_written_as_it_was_read() {
    for limits in [
        "rate_limit: { unit: month, requests_per_unit: 0, align: calendar, time_zone: Europe/Berlin }",
        "rate_limit: { unit: month, requests_per_unit: 3, align: calendar, time_zone: UTC, starts: '15' }",
        "rate_limit: { unit: week, requests_per_unit: 3, align: calendar, time_zone: UTC, starts: sunday }",
        "rate_limit: { unit: day, requests_per_unit: 3, align: calendar, time_zone: UTC, starts: '06:00' }",
        "rate_limit: { unit: day, requests_per_unit: 3, charge_denied: false, name: 'a, b: }' }",
        "rate_limit: { unit: day, requests_per_unit: 3, replaces: [{ name: a }, { name: '1' }] }",
        "rate_limit: { unlimited: true, replaces: [{ name: a }] }",
        "rate_limit: { algorithm: sliding_window, period: 90s, requests_per_unit: 3, charge_denied: true }",
        "rate_limit: { algorithm: sliding_log, unit: hour, requests_per_unit: 3 }",
        "rate_limit: { algorithm: bucketed_window, unit: hour, requests_per_unit: 3, buckets: 7 }",
        "rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 3, burst: 9, strict: true }",
        "rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 0 }",
        "rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 3, refill_amount: 2, \
         refill_interval: 1s250001us, charge_denied: true }",
        "rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 3, refill_interval: 1ms, \
         charge_denied: true, max_debt: 1 }",
        "rate_limit: { algorithm: gcra, unit: hour, requests_per_unit: 0, burst: 4 }",
        "rate_limit: { algorithm: gcra, unit: hour, requests_per_unit: 3, burst: 1 }",
        "rate_limit: { algorithm: gcra, unit: hour, requests_per_unit: 3, charge_denied: true, max_debt: 5 }",
        "rate_limit: { algorithm: concurrency, requests_per_unit: 3 }",
        "rate_limit: { algorithm: concurrency, requests_per_unit: 3, hold_id: k, hold_timeout: 250us }",
        "rate_limit: { algorithm: concurrency, requests_per_unit: 3, hold_timeout: 36500d }",
        "rate_limits: [{ unit: day, requests_per_unit: 3 }]",
        "rate_limits: [{ unit: day, requests_per_unit: 3, shadow_mode: true }]",
        "rate_limits: [{ name: a, unit: day, requests_per_unit: 3, replaces: [{ name: b }] }, \
         { name: b, unit: hour, requests_per_unit: 2, charge_denied: true, replaces: [{ name: a }, { name: c }] }]",
    ] {
        for charge in ["each", "together"] {
            let is_rejected = limits.contains("charge_denied: true")
                || (limits.contains("concurrency") && !limits.contains("hold_id"));
            if charge == "together" && is_rejected {
                continue;
            }
            reread(&good(&format!(
                "domain: d\ncharge: {charge}\ndescriptors: [{{ key: k, {limits} }}]\n"
            )));
        }
    }
}

#[test]
fn reserve_is_written_as_it_was_read() {
    for limits in [
        "rate_limit: { unit: day, requests_per_unit: 9 }",
        "rate_limit: { unit: day, requests_per_unit: 0 }",
        "rate_limit: { algorithm: bucketed_window, unit: day, requests_per_unit: 9, buckets: 8 }",
        "rate_limits: [{ unit: day, requests_per_unit: 9 }, { algorithm: sliding_window, unit: hour, \
         requests_per_unit: 8, shadow_mode: true }]",
    ] {
        for reserve in [
            "id: i, settle: 'a: b'",
            "id: k, estimate: 1",
            "id: '1', estimate: 7, at_least: 2, at_most: 8, timeout: 24h",
        ] {
            for charge in ["each", "together"] {
                let text = reread(&good(&format!(
                    "domain: d\ncharge: {charge}\ndescriptors:\n- key: k\n  {limits}\n  reserve: {{ {reserve} }}\n"
                )));
                assert!(text.contains("  reserve: { id: "), "{text}");
            }
        }
    }
    let day = "rate_limit: { unit: day, requests_per_unit: 9 }";
    let set = good(&format!(
        "domain: d\ndescriptors: [{{ key: k, {day}, reserve: {{ id: i, settle: s, at_most: 4, timeout: 60m }} }}]\n"
    ));
    assert!(reread(&set).contains("\n  reserve: { id: i, settle: s }\n"), "without the defaults");
    let line = "d.k: unit=DAY requests_per_unit=9, shadow_mode: false, quota_mode: false, limits: 9 per day, \
                charge_denied: false, reserve: id: i, settle: s, at_least: 1, at_most: 4, timeout: 3600s\n";
    assert_eq!(set.dump(), line);
}

#[test]
fn lease_is_written_where_it_is_false() {
    let with = |keys: &str| {
        let set = good(&format!(
            "domain: d\ndescriptors: [{{ key: k, rate_limit: {{ unit: day, requests_per_unit: 9 }}{keys} }}]\n"
        ));
        (
            reread(&set),
            set.dump(),
            serde_json::from_str::<serde_json::Value>(&set.to_json(&|_| None)).unwrap(),
        )
    };
    let (written, line, json) = with(", lease: false");
    assert!(written.contains("\n  lease: false\n"), "{written}");
    assert!(line.ends_with(", lease: false\n"), "{line}");
    assert_eq!(json["rules"][0]["lease"], false);
    let without = with("");
    assert_eq!(with(", lease: true"), without);
    assert!(!without.0.contains("lease") && !without.1.contains("lease"), "{without:?}");
    assert_eq!(without.2["rules"][0].get("lease"), None);
}

#[test]
fn metadata_keeps_the_types_of_its_values() {
    reread(&good(
        "domain: d\non_store_failure: allow\ndescriptors:\n- key: k\n  rate_limit: { unit: day }\n  metadata:\n    \
         1: one\n    '<<': merge\n    yes: [1, -2, 0x10, 1.5, 5.0, 1e300, 9223372036854775808, .inf, null, '', 'no', off]\n    \
         nested: { 1: a, null: b, 'true': { }, list: [[], [{ a: '\\', b: \"\\u2028\\0\" }]] }\n",
    ));
    let long = "k".repeat(5_000);
    reread(&good(&format!(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day }}\n  metadata: {{ ? {long} : x }}\n"
    )));
}

/// Rule files that the project shows and tests: those of the examples, and those in values of the chart.
fn files_of_the_project() -> Vec<RuleFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut open: Vec<PathBuf> =
        ["examples", "tests/chart/values"].map(|name| root.join(name)).into();
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let name = path.display().to_string();
        if !name.ends_with(".yaml")
            || name.ends_with(".test.yaml")
            || name.ends_with(".overlay.yaml")
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Texts within values and ConfigMaps, and files.
        for document in yaml::Documents::new(&text) {
            let Ok(Some(node)) = document else { break };
            texts(&node, &mut |text| files.push(file(&name, text)));
        }
        files.push(RuleFile { name, text });
    }
    files
}

fn texts(node: &crate::tree::Node<'_>, found: &mut impl FnMut(&str)) {
    use crate::tree::Content;
    match node.content() {
        Content::Scalar(text) => found(text),
        Content::List(items) => items.iter().for_each(|item| texts(item, found)),
        Content::Map(entries) => entries.iter().for_each(|(_, value)| texts(value, found)),
    }
}

#[test]
fn the_rules_of_examples_and_of_the_chart_are_read_again() {
    let mut count = 0;
    for file in files_of_the_project() {
        if !file.text.lines().any(|line| line.starts_with("domain:")) {
            continue;
        }
        let (set, problems) =
            RuleSet::compile(std::slice::from_ref(&file), &RuleOptions::default(), None);
        assert!(problems.iter().all(|problem| !problem.is_error()), "{}: {problems:#?}", file.name);
        reread(&set);
        count += 1;
    }
    assert!(count >= 8, "{count} files");
}

/// A text with every other character escaped, whatever it is.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c.is_ascii_alphanumeric() {
            true => out.push(c),
            false => write!(out, "\\U{:08x}", u32::from(c)).unwrap(),
        }
    }
    out + "\""
}

/// Texts that YAML could take for something else, and any.
fn any_text(min: usize) -> BoxedStrategy<String> {
    let odd = [
        "yes", "~", "1", "1.5", "<<", "- a", "a: b", "# a", "{a}", "a,b", "'", "\"", "\\n",
        "\u{85}",
    ];
    // Rules must not have those that stand for bytes.
    let usable = |c: char| if value::is_reserved(c) { 'x' } else { c };
    let any_char = any::<char>().prop_map(usable);
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        prop::collection::vec(any_char, min..6).prop_map(|chars| chars.into_iter().collect()),
        "[a_*]{1,4}",
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_texts_are_read_again(
        domain in any_text(1),
        nodes in prop::collection::vec(
            (any_text(1), any_text(0), any_text(0), any_text(1), any::<[bool; 5]>()), 0..8),
    ) {
        let mut text = format!("domain: {}\n", quoted(&domain));
        text += "descriptors:\n- key: above\n  descriptors:\n";
        let mut seen = Vec::new();
        for (key, value, name, meta, [is_limited, flag, shares, reserves, leases]) in nodes {
            let of_matcher = if value.is_empty() { key.clone() } else { format!("{key}_{value}") };
            if seen.contains(&of_matcher) {
                continue;
            }
            let shares = shares && of_matcher.contains('*');
            let [key, value, name, meta] = [key, value, name, meta].map(|text| quoted(&text));
            text += &format!("  - key: {key}\n    value: {value}\n    value_to_metric: {flag}\n");
            text += &format!("    share_threshold: {shares}\n");
            if is_limited {
                text += &format!("    metadata: {{ ? {meta} : {name} }}\n");
                text += &format!("    rate_limit: {{ unit: day, name: {name} }}\n");
                if !leases {
                    text += "    lease: false\n";
                }
                if reserves {
                    text += &format!("    reserve: {{ id: {meta}, estimate: 3 }}\n");
                }
            }
            seen.push(of_matcher);
        }
        reread(&good(&text));
    }
}

//! Limits for files with many problems, and for rules that take much memory.

use super::{compile, file};
use crate::source::RuleFile;
use crate::{Loaded, Omitted, Problems, RuleOptions, Severity};

fn load(files: Vec<RuleFile>, max_problems: usize) -> Loaded {
    let options = RuleOptions { max_problems, ..RuleOptions::default() };
    Loaded::compile(files, Problems::new(max_problems), &options, None)
}

fn listed(loaded: &Loaded, severity: Severity) -> usize {
    loaded.problems.iter().filter(|problem| problem.severity == severity).count()
}

/// A file with numbers of unknown keys and of keys without effect.
fn bad(name: &str, errors: usize, warnings: usize) -> RuleFile {
    let warnings: String = (0..warnings).map(|_| "unit: day\n").collect();
    let errors: String = (0..errors).map(|i| format!("key{i}: x\n")).collect();
    file(name, &format!("domain: {name}\n{warnings}{errors}"))
}

#[test]
fn problems_beyond_the_limit_are_counted() {
    let loaded = load(vec![bad("a", 250, 0)], 100);
    assert_eq!(loaded.problems.len(), 100);
    assert_eq!(loaded.problems[99].message, "config error, unknown key 'key99'");
    assert_eq!(loaded.omitted, Omitted { errors: 150, warnings: 0 });
    assert_eq!(loaded.count(Severity::Error), 250);
    let rendered = loaded.render_errors();
    assert_eq!(rendered.matches("unknown key").count(), 100);
    let last = rendered.lines().last().unwrap();
    assert!(
        last.starts_with("150 more errors are not listed (`weir check --max-problems`"),
        "{last}"
    );

    let loaded = load(vec![bad("a", 100, 0)], 100);
    assert_eq!((loaded.problems.len(), loaded.omitted), (100, Omitted::default()));
    assert!(!loaded.render_errors().contains("not listed"));
}

#[test]
fn warnings_leave_room_for_errors() {
    let loaded = load(vec![bad("a", 7, 50)], 5);
    assert_eq!(listed(&loaded, Severity::Warning), 5);
    assert_eq!(listed(&loaded, Severity::Error), 5);
    assert_eq!(loaded.omitted, Omitted { errors: 2, warnings: 45 });
    assert!(!loaded.is_good());
    // A set with warnings only is valid, however many there are.
    let loaded = load(vec![bad("a", 0, 50)], 5);
    assert!(loaded.is_good() && loaded.render_errors().is_empty());
    let summary = loaded.omitted.summary().unwrap();
    assert!(summary.starts_with("45 more warnings are not listed"), "{summary}");
}

#[test]
fn the_problems_of_many_files_are_limited_too() {
    let files = (0..50).map(|i| bad(&format!("f{i}"), 20, 0)).collect();
    let loaded = load(files, 10);
    assert_eq!(loaded.problems.len(), 100);
    assert_eq!(loaded.omitted.errors, 50 * 20 - 100);
    let problems_of =
        |name: &str| loaded.problems.iter().filter(|problem| problem.file == name).count();
    assert_eq!((problems_of("f0"), problems_of("f9"), problems_of("f10")), (10, 10, 0));
}

#[test]
fn quoted_text_in_problems_is_truncated() {
    let long = "x".repeat(100_000);
    for text in [
        format!("domain: d\n? {long}\n: 1\n"),
        format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {{ unit: {long} }} }}]\n"),
        format!("domain: d\ndescriptors: [{{ key: {long} }}, {{ key: {long} }}]\n"),
        format!("domain: d\ndescriptors: [{{ key: {long}, share_threshold: yes }}]\n"),
        format!("domain: d\ncharge: {long}\n"),
        format!(
            "domain: d\ndescriptors: [{{ key: {long}, rate_limit: {{ algorithm: concurrency, hold_id: a }} }}]\n"
        ),
    ] {
        let loaded = load(vec![file("a.yaml", &text)], 100);
        assert_eq!(loaded.problems.len(), 1, "{:.100}", text);
        let problem = &loaded.problems[0];
        assert!(problem.message.len() + problem.help.len() + problem.text.len() < 2_500);
        assert!(loaded.render_errors().len() < 3_000);
    }
}

/// A descriptor with a long key, and a number of rules below it.
fn below_a_long_key(key_bytes: usize, rules: usize) -> String {
    let rules: String =
        (0..rules).map(|i| format!("  - {{ key: k{i}, rate_limit: {{ unit: day }} }}\n")).collect();
    let key = "x".repeat(key_bytes);
    format!("domain: d\ndescriptors:\n- key: {key}\n  descriptors:\n{rules}")
}

#[test]
fn rules_that_take_too_much_memory_are_rejected_at_their_position() {
    let too_much = "config error, the rules of this file take more than";
    let (set, problems) = compile(&below_a_long_key(10_000, 200));
    assert_eq!((problems.len(), set.rules().count()), (0, 200));
    // Each rule's name has the long key in it: 2 000 of 50 KB each in a file of 150 KB.
    let (_, problems) = compile(&below_a_long_key(50_000, 2_000));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.message.starts_with(too_much), "{problem}");
    assert!(problem.position.unwrap().line() > Some(100), "{problem}");
    // A long id is repeated for each network.
    let id = "x".repeat(50_000);
    let networks: Vec<String> =
        (0..1_000).map(|i| format!("10.0.{}.{}", i / 250, i % 250)).collect();
    let reserve = format!("rate_limit: {{ unit: day }}, reserve: {{ id: {id}, estimate: 1 }}");
    let networks = networks.join(", ");
    let rule = format!("{{ key: k, network: [{networks}], {reserve} }}");
    let (_, problems) = compile(&format!("domain: d\ndescriptors: [{rule}]\n"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.starts_with(too_much), "{}", problems[0]);
    // A map takes far more than its four bytes.
    let maps = "{b},".repeat(50_000);
    let metadata = format!("rate_limit: {{ unit: day }}, metadata: {{ a: [{maps}] }}");
    let (_, problems) = compile(&format!("domain: d\ndescriptors: [{{ key: k, {metadata} }}]\n"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.starts_with(too_much), "{}", problems[0]);
}

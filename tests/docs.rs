//! What the documents show is true.

use std::fs;
use std::path::Path;

use weir::rules::source::RuleFile;
use weir::rules::{Options, RuleSet};

/// A document, by its name from the root of the project.
fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The fenced blocks of a language, each with the line it begins in.
fn blocks(document: &str, language: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == format!("```{language}") {
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            blocks.push((number + 1, body.map(|line| format!("{line}\n")).collect()));
        }
    }
    blocks
}

fn compile(text: &str) -> (RuleSet, String) {
    let file = RuleFile { name: "shop.yaml".into(), text: text.into() };
    let (rules, problems) =
        RuleSet::compile(std::slice::from_ref(&file), &Options::default(), None);
    let rendered = problems.iter().map(|problem| format!("{problem}\n")).collect();
    (rules, rendered)
}

#[test]
fn the_rules_shown_load() {
    let documents = [("docs/rules.md", 10), ("docs/algorithms.md", 5), ("docs/redis.md", 1)];
    for (name, at_least) in documents {
        let document = document(name);
        let blocks = blocks(&document, "yaml");
        assert!(blocks.len() >= at_least);
        for (line, text) in blocks {
            let (rules, problems) = compile(&text);
            assert_eq!(problems, "", "{name}:{line}");
            assert!(rules.rules().count() > 0, "{name}:{line}");
        }
    }
}

#[test]
fn every_key_is_shown() {
    let document = document("docs/rules.md");
    let shown: String = blocks(&document, "yaml").into_iter().map(|(_, text)| text).collect();
    for key in "domain descriptors key value rate_limit shadow_mode quota_mode detailed_metric \
                value_to_metric share_threshold metadata requests_per_unit unit unlimited name \
                replaces unit_multiplier"
        .split_whitespace()
    {
        assert!(shown.contains(&format!("{key}:")), "{key}");
        assert!(document.contains(&format!("| `{key}` |")), "{key} is in no table");
    }
}

#[test]
fn the_example_of_matching_is_true() {
    let document = document("docs/rules.md");
    let (_, text) =
        blocks(&document, "yaml").into_iter().find(|(_, text)| text.contains("# A:")).unwrap();
    let (rules, _) = compile(&text);
    let find = |entries: &[(&str, &str)]| {
        rules.domain("shop").unwrap().find(entries).map(|found| found.rule.path())
    };
    assert_eq!(find(&[("path", "/home")]), Some("path"));
    assert_eq!(find(&[("path", "/api/v1/x")]), Some("path_/api/*"));
    assert_eq!(find(&[("path", "/api/health")]), None);
    assert_eq!(find(&[("user", "ann"), ("path", "/home")]), Some("user.path"));
    assert_eq!(find(&[("user", "ann")]), None);
    assert_eq!(find(&[("path", "/home"), ("user", "ann")]), None);
}

#[test]
fn the_problems_shown_are_told_so() {
    let text = "domain: shop\ndescriptors:\n  - key: api_key\n    rate_limt:\n      unit: minute\n  \
                - key: path\n    rate_limit:\n      unit: fortnight\n      shadow_mode: true\n";
    let document = document("docs/rules.md");
    let (_, shown) = blocks(&document, "text").swap_remove(0);
    let (_, problems) = compile(text);
    for problem in problems.lines() {
        assert!(shown.contains(problem), "{problem}");
    }
    assert_eq!(problems.lines().count(), 3);
}

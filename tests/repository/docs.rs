//! Checks the rule files, worked examples and links of the documentation.

mod names;

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::iter::zip;
use std::path::{Path, PathBuf};

use crate::support::{files, markdown};

use weir_limit::{Decision, Micros, Op, Plan, SECOND, State};
use weir_rules::source::RuleFile;
use weir_rules::{Lists, RuleOptions, RuleSet};

use files::read;

/// Returns the fenced blocks of a language, each with the line of its first fence.
fn blocks(document: &str, language: &str) -> Vec<(usize, String)> {
    let blocks = markdown::blocks_of(document, language);
    blocks.into_iter().map(|block| (block.line, block.text)).collect()
}

fn compile(text: &str) -> (RuleSet, String) {
    let file = RuleFile { name: "shop.yaml".into(), text: text.into() };
    // The lists that examples name are not there. What is rejected is what `weir check` rejects.
    let lists = Lists::Unread;
    let options =
        RuleOptions { lists, rejects_ignored_shadow_mode: true, ..RuleOptions::default() };
    let (rules, problems) = RuleSet::compile(std::slice::from_ref(&file), &options, None);
    let rendered = problems.iter().map(|problem| format!("{problem}\n")).collect();
    (rules, rendered)
}

#[test]
fn rule_files_in_the_docs_load() {
    let documents = [
        ("docs/rules.md", 10),
        ("docs/reference/rule-keys.md", 8),
        ("docs/redis.md", 1),
        ("docs/compatibility.md", 1),
    ];
    for (name, at_least) in documents {
        let document = read(name);
        let mut blocks = blocks(&document, "yaml");
        // Values of the chart: tests/repository/install.rs checks them. Tests: tests/cli/rule_tests.rs runs them.
        let is_test =
            |text: &str| markdown::file_name(text).is_some_and(|name| name.ends_with(".test.yaml"));
        blocks.retain(|(_, text)| !text.starts_with("store:") && !is_test(text));
        assert!(blocks.len() >= at_least);
        for (line, text) in blocks {
            let (rules, problems) = compile(&text);
            assert_eq!(problems, "", "{name}:{line}");
            assert!(rules.rules().count() > 0, "{name}:{line}");
        }
    }
}

/// The first words of each common limit of the guide, and how many hits it admits at once.
const COMMON_LIMITS: [(&str, Option<u64>); 22] = [
    ("10 a second of each client, 20 at once", Some(20)),
    ("100 a second of all clients", Some(100)),
    ("several periods", Some(5)),
    ("300 in 15 minutes", Some(300)),
    ("50 a minute of each client on each route", Some(50)),
    ("each user below a path", Some(100)),
    ("writes of each user", Some(10)),
    ("one method on one path", Some(30)),
    ("clients without a user", Some(60)),
    ("each user of a plan", Some(1_000)),
    ("one user with more", Some(5_000)),
    ("a user without a limit", None),
    ("a blocked user", Some(0)),
    ("networks without a limit", None),
    ("a network together", Some(1_000)),
    ("never more than 100", Some(100)),
    ("10 of each client at the same time", Some(10)),
    ("a day of the calendar", Some(1_000)),
    ("a month from the billing day", Some(100_000)),
    ("[tokens of a model]", Some(40_000)),
    ("bytes or another cost", Some(1_000_000_000)),
    ("a limit that only counts", Some(100)),
];

#[test]
fn common_limits_match_their_descriptors_and_admit_what_they_say() {
    let guide = read("docs/rules.md");
    let (_, section) = guide.split_once("## Common limits").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split(" | ").collect()).collect();
    assert_eq!(rows.len(), COMMON_LIMITS.len());
    for (row, (limit, admitted)) in zip(rows, COMMON_LIMITS) {
        let [shown, descriptor, rule] = row[..] else { panic!("three cells: {row:?}") };
        assert!(shown.trim_start().starts_with(limit), "{limit}: {shown}");
        let code = |cell: &str| cell.trim().trim_matches('`').to_owned();
        let (rules, problems) =
            compile(&format!("domain: shop\ndescriptors:\n  - {}\n", code(rule)));
        assert_eq!(problems, "", "{limit}");
        let descriptor = code(descriptor);
        let entries: Vec<(&str, &str)> =
            descriptor.split(',').filter_map(|entry| entry.split_once('=')).collect();
        let found = rules.domain("shop").unwrap().find(&entries);
        let found = found.unwrap_or_else(|| panic!("{limit}: {descriptor} matches no rule"));
        let plan = found.rule.plan.as_ref();
        let left = plan.map(|plan| {
            plan.charge(&mut State::default(), START, Op::Take(0), None).decision.remaining
        });
        assert_eq!(left, admitted, "{limit}");
    }
}

#[test]
fn the_matching_example_is_correct() {
    let document = read("docs/rules.md");
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
fn the_error_example_is_correct() {
    let text = "domain: shop\ndescriptors:\n  - key: api_key\n    rate: 10 per second\n  - key: path\n    \
                rate_limt:\n      rate: 5/m\n  - key: user\n    rate_limit:\n      rate: 20/m\n      \
                shadow_mode: true\n";
    let document = read("docs/rules.md");
    let mut shown = blocks(&document, "text").into_iter().map(|(_, block)| block);
    let shown = shown.find(|block| block.contains("rate_limt")).unwrap();
    let (_, problems) = compile(text);
    for problem in problems.lines() {
        assert!(shown.contains(problem), "{problem}");
    }
    assert_eq!(problems.lines().count(), 3);
}

/// A full hour, and the start of a day.
const START: Micros = 1_700_006_400 * SECOND;

/// One row of a table of examples, by the names of its columns.
type Row<'a> = HashMap<&'a str, &'a str>;

/// Returns the worked examples of a document: a rule file, and a block with the requests for one of its keys, whose
/// columns have two spaces or more between them.
fn worked_examples(document: &str) -> Vec<(usize, String, Vec<Row<'_>>)> {
    let cells = |line| -> Vec<&str> {
        str::split(line, "  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    let mut examples = Vec::new();
    for (line, rules) in blocks(document, "yaml") {
        let after = document.lines().skip(line + rules.lines().count() + 1);
        let mut table = after
            .skip_while(|line| line.is_empty() || *line == "```text")
            .take_while(|line| *line != "```");
        let header = cells(table.next().unwrap_or_default());
        if header.first() != Some(&"At") {
            continue;
        }
        let rows = table.map(|row| {
            let row = cells(row);
            assert_eq!(row.len(), header.len(), "{row:?}");
            zip(header.clone(), row).collect()
        });
        examples.push((line, rules, rows.collect()));
    }
    examples
}

/// Parses a time such as `0.4 s`.
fn micros(text: &str) -> Micros {
    let seconds: f64 = text.strip_suffix(" s").expect("seconds").parse().unwrap();
    (seconds * SECOND as f64).round() as Micros
}

fn seconds(time: Micros) -> String {
    format!("{} s", time as f64 / SECOND as f64)
}

/// Formats the value of a column.
fn shown(column: &str, plan: &Plan, decision: &Decision) -> String {
    match column {
        "Answer" => if decision.allowed { "OK" } else { "OVER_LIMIT" }.to_owned(),
        "Limit" => plan.limits()[usize::from(decision.limit)].name.to_string(),
        "Remaining" => decision.remaining.to_string(),
        "Reset after" => seconds(decision.reset_after),
        "Retry after" => match decision.retry_after {
            _ if decision.allowed => "–".to_owned(),
            None => "never".to_owned(),
            Some(wait) => seconds(wait),
        },
        other => panic!("unknown column {other:?}"),
    }
}

#[test]
fn worked_examples_are_correct() {
    let document = read("docs/semantics.md");
    let examples = worked_examples(&document);
    assert!(examples.len() >= 8);
    let mut differences = String::new();
    for (line, rules, rows) in examples {
        let (rules, problems) = compile(&rules);
        assert_eq!(problems, "", "docs/semantics.md:{line}");
        let plan = rules.rules().next().unwrap().plan.clone().expect("limits");
        let mut state = State::default();
        for row in rows {
            let (at, hits) = (row["At"], row["Hits"]);
            let op = Op::Take(hits.parse().unwrap());
            let decision = plan.charge(&mut state, START + micros(at), op, None).decision;
            for (column, value) in row {
                if ["At", "Hits"].contains(&column) {
                    continue;
                }
                let computed = shown(column, &plan, &decision);
                if value != computed {
                    let _ = writeln!(
                        differences,
                        "{line}: {hits} hits at {at}: {column} is {computed}, not {value}"
                    );
                }
            }
        }
    }
    assert_eq!(differences, "", "docs/semantics.md, by the line of the rule file");
}

/// Returns the paths of the Markdown files from the root of the project.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for directory in [
        "",
        "docs",
        "docs/adr",
        "docs/reference",
        "helm/weir",
        "fuzz",
        "benches/load",
        "examples/envoy",
        "examples/envoy-ai-gateway",
        "examples/envoy-gateway",
        "examples/istio",
        "tests/gateway_policies",
        "tests/schemas",
    ] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let name = Path::new(directory).join(entry.unwrap().file_name());
            if name.extension().is_some_and(|extension| extension == "md") {
                found.push(name);
            }
        }
    }
    found
}

/// Returns the text of a document without its code blocks.
fn prose(document: &str) -> String {
    let mut in_code = false;
    let lines = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the anchors of the headings of a document, as GitHub generates them.
fn anchors(document: &str) -> Vec<String> {
    let headings = prose(document);
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let keep = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
    let anchor = |line: &str| -> String {
        line.trim_start_matches('#').trim().to_lowercase().chars().filter(keep).collect()
    };
    headings.map(|line| anchor(line).replace(' ', "-")).collect()
}

#[test]
fn links_have_existing_targets() {
    let mut broken = String::new();
    for name in documents() {
        let text = prose(&read(&name));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => name.clone(),
                path => name.parent().unwrap().join(path),
            };
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(&target);
            let found = match anchor {
                "" => file.exists(),
                anchor => fs::read_to_string(file)
                    .is_ok_and(|text| anchors(&text).iter().any(|other| other == anchor)),
            };
            if !found {
                let _ = writeln!(broken, "{}: {link}", name.display());
            }
        }
    }
    assert_eq!(broken, "");
}

#[test]
fn the_readme_names_the_exceptions_for_variables() {
    let variables = read("docs/compatibility.md");
    assert!(variables.contains("These variables differ:"));
    let readme = read("README.md");
    let claim = readme.split("\n- ").find(|item| item.starts_with("**Drop-in.**"));
    let claim = claim.expect("a claim").replace('\n', " ");
    let sentence = claim.split(". ").find(|sentence| sentence.contains("variables"));
    let sentence = sentence.expect("a sentence about variables");
    assert!(sentence.contains("(docs/compatibility.md#variables)"), "{sentence}");
}

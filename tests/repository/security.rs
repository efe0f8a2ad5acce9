//! What docs/security.md says of attackers: security.txt names the tests of each statement, and none of them can be renamed
//! or removed unnoticed.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::support::files::{read, root};

/// Returns each statement with the names of its tests, which are on the indented lines below it.
fn statements(list: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match (line.strip_prefix("    "), found.last_mut()) {
            (Some(names), Some((_, all))) => all.extend(names.split(' ')),
            _ => found.push((line, Vec::new())),
        }
    }
    found
}

/// Adds the names of all test functions below a directory.
fn tests_below(directory: &Path, names: &mut HashSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(tests_of(&fs::read_to_string(path).unwrap()));
        }
    }
}

/// Returns the names of the test functions of a file.
fn tests_of(text: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim_start) {
        let function = line.trim_start_matches("async ").strip_prefix("fn ");
        if let Some((name, _)) = function.and_then(|rest| rest.split_once('(')) {
            if is_test {
                names.insert(name.to_owned());
            }
            is_test = false;
        } else if line.starts_with("#[") && line.contains("test") {
            is_test = true;
        }
    }
    names
}

#[test]
fn statements_about_security_name_existing_tests() {
    let mut tests = HashSet::new();
    for directory in ["crates", "src", "tests"] {
        tests_below(&root().join(directory), &mut tests);
    }
    let list = read("tests/repository/security.txt");
    let (mut count, mut wrong) = (0, Vec::new());
    for (statement, names) in statements(&list) {
        count += names.len();
        if names.is_empty() {
            wrong.push(format!("no test: {statement}"));
        }
        let missing = names.iter().filter(|name| !tests.contains(**name));
        wrong.extend(missing.map(|name| format!("no test has the name {name}: {statement}")));
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count >= 130, "{count}");
}

#[test]
fn a_statement_without_a_test_and_a_function_that_is_no_test_are_noticed() {
    let found = statements("# Title\nit is safe\n    one two\n    three\nit is fast\n");
    assert_eq!(found, [("it is safe", vec!["one", "two", "three"]), ("it is fast", vec![])]);
    let text = "#[test]\nfn one() {}\nfn two() {}\n  #[tokio::test]\n  async fn three() {}\n";
    assert_eq!(tests_of(text), HashSet::from(["one", "three"].map(str::to_owned)));
}

//! Tests from the text of a file to the result of a look-up.

mod bans;
mod bounds;
mod compare;
mod dialect;
mod errors;
mod lease;
mod limits;
mod lint;
mod look;
mod matching;
mod model;
mod networks;
mod overlay;
mod rate;
mod reserve;
mod sets;
mod siblings;
mod source;
mod to_yaml;
mod totals;
mod trace;
mod unordered;
mod xds;
mod yaml_help;

use super::source::RuleFile;
use super::{Problem, RuleOptions, RuleSet};

fn file(name: &str, text: &str) -> RuleFile {
    RuleFile { name: name.to_owned(), text: text.to_owned() }
}

fn compile(text: &str) -> (RuleSet, Vec<Problem>) {
    RuleSet::compile(&[file("rules.yaml", text)], &RuleOptions::default(), None)
}

/// The rules of a file without problems.
fn good(text: &str) -> RuleSet {
    let (set, problems) = compile(text);
    assert!(problems.is_empty(), "{text}\n{problems:#?}");
    set
}

/// The path of the rule that entries match in the domain `d`.
fn find<'s>(set: &'s RuleSet, entries: &[(&str, &str)]) -> Option<&'s str> {
    Some(set.domain("d")?.find(entries)?.rule.path())
}

/// The problems of a file, each as position, severity, message and offending text.
fn reported(text: &str) -> Vec<String> {
    compile(text).1.iter().map(describe).collect()
}

fn describe(problem: &Problem) -> String {
    assert!(!problem.help.is_empty(), "{problem}");
    format!("{problem} «{}»", problem.text).replacen("rules.yaml:", "", 1)
}

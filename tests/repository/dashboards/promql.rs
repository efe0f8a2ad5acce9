//! Finds the metrics and labels that an expression of PromQL uses.

use std::collections::{BTreeMap, BTreeSet};

/// Words that are neither metrics nor functions.
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "inf"];

/// Returns the metrics of an expression with the labels that their selectors name, and the labels of
/// `by` clauses around them. Labels of `on`, which are those of targets, are left out.
pub fn metrics(expression: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // The labels of `by` clauses apply to the metrics within the parentheses that follow.
    let mut pending: BTreeSet<String> = BTreeSet::new();
    let mut scopes: Vec<BTreeSet<String>> = Vec::new();
    // Strings may contain anything.
    let without_strings: String = expression.split('"').step_by(2).collect();
    let mut rest = without_strings.as_str();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if !is_word(first) || first.is_ascii_digit() {
            match first {
                '(' => scopes.push(std::mem::take(&mut pending)),
                ')' => drop(scopes.pop()),
                _ => {}
            }
            let end = match first {
                '[' => rest.find(']').expect("a closing bracket"),
                '0'..='9' => rest.find(|c: char| !is_word(c) && c != '.').unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            rest = &rest[end..];
            continue;
        }
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let next = after.trim_start();
        rest = after;
        if word == "by" {
            let (labels, behind) = parenthesized(next);
            pending = labels;
            rest = behind;
        } else if ["on", "ignoring", "without", "group_left", "group_right"].contains(&word) {
            rest = parenthesized(next).1;
        } else if !next.starts_with('(') && !KEYWORDS.contains(&word) && !next.starts_with("by") {
            let labels = metrics.entry(word.to_owned()).or_default();
            labels.extend(scopes.iter().flatten().cloned());
            if let Some(selector) = next.strip_prefix('{') {
                let (selector, behind) = selector.split_once('}').expect("a closing brace");
                let matchers = selector.split(',').filter(|matcher| !matcher.trim().is_empty());
                labels.extend(
                    matchers
                        .map(|it| it.split(['=', '!']).next().expect("a label").trim().to_owned()),
                );
                rest = behind;
            }
        }
    }
    metrics
}

/// Returns the words of a list in parentheses, and what follows it.
fn parenthesized(text: &str) -> (BTreeSet<String>, &str) {
    let (inside, behind) =
        text.strip_prefix('(').and_then(|text| text.split_once(')')).expect("a list of labels");
    (inside.split(',').map(|word| word.trim().to_owned()).collect(), behind)
}

#[test]
fn metrics_have_their_labels() {
    let expression = r#"histogram_quantile(0.99, sum by (job, le) (rate(a_bucket{b="x, y}"}[$__rate_interval])))
        / sum(c) > 0.5 and on (job, instance) d{e!="f"}"#;
    let used: Vec<_> = metrics(expression)
        .into_iter()
        .map(|(name, labels)| (name, labels.into_iter().collect::<Vec<_>>().join(" ")))
        .collect();
    let expected = [("a_bucket", "b job le"), ("c", ""), ("d", "e")];
    assert_eq!(used, expected.map(|(name, labels)| (name.to_owned(), labels.to_owned())));
}

//! What pages repeat of other lists: names of metrics, names and defaults of settings, requests of the API, commands.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use serde_json::Value;

use super::files::read;

/// Names with the form of a setting that are something else: fields of `/status`, attributes of spans, values of the
/// chart, a file.
const NO_SETTINGS: [&str; 12] = [
    "controls.missing",
    "controls.share_error",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "rules.changes",
    "rules.files",
    "rules.overlay.files",
    "rules.yaml",
    "store.backends",
    "store.degraded_charges",
    "store.failing",
];

/// Returns the pages that people write, each with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let elsewhere = ["docs/adr", "docs/reference"];
    let written = super::documents().into_iter().filter(|name| {
        name.starts_with("docs") && !elsewhere.iter().any(|other| name.starts_with(other))
    });
    written.map(|name| (name.clone(), super::prose(&read(&name)))).collect()
}

/// Returns the cells of the rows of a generated list, without the marks of code.
fn list(page: &str, mark: &str) -> Vec<Vec<String>> {
    let text = read(page);
    let (_, list) = text.split_once(&format!("<!-- {mark}: from the code -->")).unwrap();
    let (list, _) = list.split_once(&format!("<!-- end of {mark} -->")).unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| cells(row).map(|cell| cell.replace('`', "")).collect()).collect()
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim_matches('|').split('|').map(str::trim)
}

/// Returns each setting with its default.
fn defaults() -> HashMap<String, String> {
    let rows = list("docs/reference/settings.md", "settings");
    rows.into_iter().map(|row| (row[0].clone(), without_spaces(&row[2]))).collect()
}

fn without_spaces(value: &str) -> String {
    value.chars().filter(|c| !c.is_whitespace() && !['_', '`'].contains(c)).collect()
}

/// Returns the values that a text has for settings: in parentheses after the name, and in columns named *Default*.
fn repeated<'a>(text: &'a str, defaults: &HashMap<String, String>) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    let parts: Vec<&str> = text.split('`').collect();
    for pair in parts[1..].chunks(2).filter(|pair| defaults.contains_key(pair[0])) {
        let after = pair.get(1).and_then(|after| after.trim_start().strip_prefix('('));
        let value = after.and_then(|after| after.split([',', ';', ')']).next());
        found.extend(
            value.filter(|value| value.starts_with(char::is_numeric)).map(|value| (pair[0], value)),
        );
    }
    let mut column = None;
    let mut in_table = false;
    for line in text.lines() {
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        if !in_table {
            (in_table, column) = (true, cells(line).position(|cell| cell == "Default"));
        }
        let Some(value) = column.and_then(|column| cells(line).nth(column)) else { continue };
        let mut names = cells(line).filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
        let name = names.find(|name| defaults.get(*name).is_some_and(|value| !value.is_empty()));
        found.extend(name.map(|name| (name, value)));
    }
    found
}

#[test]
fn defaults_are_those_of_the_settings() {
    let defaults = defaults();
    let (mut count, mut wrong) = (0, Vec::new());
    for (page, text) in pages() {
        for (name, value) in repeated(&text, &defaults) {
            count += 1;
            if without_spaces(value) != defaults[name] {
                wrong.push(format!(
                    "{}: {name} is {}, not {value}",
                    page.display(),
                    defaults[name]
                ));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count >= 20, "{count}");
}

#[test]
fn names_are_those_of_metrics_and_settings() {
    let settings = defaults();
    let groups: HashSet<&str> = settings
        .keys()
        .flat_map(|name| name.match_indices('.').map(|(at, _)| &name[..at]))
        .collect();
    let metrics: HashSet<String> = list("docs/reference/metrics.md", "metrics")
        .into_iter()
        .map(|mut row| row.swap_remove(0))
        .collect();
    let (mut count, mut unknown) = (0, Vec::new());
    for (page, text) in pages() {
        for span in text.split('`').skip(1).step_by(2) {
            let name = span.split([' ', '{']).next().unwrap_or_default();
            let is_name = |c: char| c.is_ascii_lowercase() || ['_', '.'].contains(&c);
            if !name.chars().all(is_name) || name.ends_with(['.', '_']) {
                continue;
            }
            let root = name.split('.').next().unwrap_or_default();
            let known = match name.starts_with("weir_") && !name.contains('.') {
                true => metrics.contains(name),
                false if root == name || !groups.contains(root) => continue,
                false => {
                    settings.contains_key(name)
                        || groups.contains(name)
                        || NO_SETTINGS.contains(&name)
                }
            };
            count += 1;
            if !known {
                unknown.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert_eq!(unknown, [""; 0]);
    assert!(count >= 200, "{count}");
}

#[test]
fn another_default_is_noticed() {
    let text = "`a.b` (5 s, or more), `a.b`\n(6 s) `c.d` (7 s)\n\n| Setting | Default |\n| --- | --- |\n| `a.b` | 1 000 |\n";
    let defaults = HashMap::from([("a.b".to_owned(), "5s".to_owned())]);
    let found = repeated(text, &defaults);
    assert_eq!(found, [("a.b", "5 s"), ("a.b", "6 s"), ("a.b", "1 000")]);
}

#[test]
fn lists_of_requests_and_commands_are_complete() {
    let api: Value = serde_json::from_str(&read("docs/reference/openapi.json")).unwrap();
    let described: BTreeSet<String> = api["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(move |method| (path, method)))
        .filter(|(_, method)| *method != "parameters")
        .map(|(path, method)| format!("{} {path}", method.to_uppercase()))
        .collect();
    let page = super::prose(&read("docs/control.md"));
    let spans = page.split('`').skip(1).step_by(2).filter(|span| span.contains(" /v1/"));
    let listed = spans.map(|span| span.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(described, listed);

    let page = read("docs/reference/cli.md");
    let (tasks, help) = page.split_once("## Help").unwrap();
    let commands: Vec<&str> =
        help.lines().filter_map(|line| line.strip_prefix("### weir ")).collect();
    assert!(commands.len() >= 18, "{commands:?}");
    for command in commands {
        let names = [format!("`weir {command}`"), format!("`{command}`")];
        assert!(
            names.iter().any(|name| tasks.contains(name)),
            "{command} in docs/reference/cli.md"
        );
    }
}

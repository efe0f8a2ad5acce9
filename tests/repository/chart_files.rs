//! Compares the files of the chart `helm/weir` that have a source elsewhere with it, and the table of its values.
//! `UPDATE_DOCS=1 cargo test --test repository chart_files` writes them.

use std::fmt::Write;
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::str::Lines;

use crate::support::files;

use files::{read, root};

/// Compares a file with what it should be, or writes it.
fn compare(name: &str, wanted: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(name), wanted).unwrap();
    } else {
        let command = "run UPDATE_DOCS=1 cargo test --test repository chart_files";
        assert!(read(name) == wanted, "{name} is out of date: {command}");
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the lines below a key, in one line.
fn nested(lines: &mut Peekable<Lines<'_>>, key_indent: usize) -> String {
    let mut items = Vec::new();
    while let Some(line) = lines.next_if(|line| indent(line) > key_indent) {
        items.push(line.trim());
    }
    match items.iter().map(|item| item.strip_prefix("- ")).collect::<Option<Vec<_>>>() {
        Some(items) => format!("[{}]", items.join(", ")),
        None => format!("{{ {} }}", items.join(", ")),
    }
}

/// Returns the table of all values. A comment that starts with `# --` documents the value below it.
fn table(values: &str) -> String {
    let mut table = "| Value | Default | Meaning |\n| --- | --- | --- |\n".to_owned();
    let mut groups: Vec<&str> = Vec::new();
    let mut doc = None;
    let mut lines = values.lines().peekable();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if let Some(text) = text.strip_prefix("# -- ") {
            doc = Some(text);
        }
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (key, default) = text.split_once(':').expect("a key");
        groups.truncate(indent(line) / 2);
        groups.push(key);
        let name = groups.join(".");
        match (doc.take(), default.trim()) {
            (Some(doc), default) => {
                let default = match default {
                    "" => nested(&mut lines, indent(line)),
                    default => default.to_owned(),
                };
                let _ = writeln!(table, "| `{name}` | `{default}` | {doc} |");
            }
            (None, default) => assert!(default.is_empty(), "{name} has no comment # --"),
        }
    }
    table
}

#[test]
fn the_reference_has_all_values() {
    const PAGE: &str = "docs/reference/chart-values.md";
    const BEGIN: &str = "<!-- values: from values.yaml -->\n";
    const END: &str = "<!-- end of values -->";
    let document = read(PAGE);
    let (head, rest) = document.split_once(BEGIN).expect("the beginning is marked");
    let (_, tail) = rest.split_once(END).expect("the end is marked");
    let table = table(&read("helm/weir/values.yaml"));
    compare(PAGE, &format!("{head}{BEGIN}\n{table}\n{END}{tail}"));
}

// Helm warns about symbolic links, and some of the programs that install charts ignore them.
#[test]
fn the_chart_has_the_files_and_other_directories_links_to_them() {
    for (link, file) in
        [("dashboards/weir.json", "weir.json"), ("alerts/weir.rules.yaml", "weir.rules.yaml")]
    {
        let target = fs::read_link(root().join(link)).unwrap();
        assert_eq!(target, Path::new("../helm/weir/files").join(file), "{link}");
        assert!(fs::symlink_metadata(root().join("helm/weir/files").join(file)).unwrap().is_file());
    }
}

#[test]
fn tables_have_nested_values_and_reject_those_without_a_comment() {
    let values =
        "# -- A.\na: 1\ng:\n  # -- B.\n  b:\n    c: 2\n    d: {}\n# -- E.\ne:\n  - { f: 3 }\n";
    let rows =
        "| `a` | `1` | A. |\n| `g.b` | `{ c: 2, d: {} }` | B. |\n| `e` | `[{ f: 3 }]` | E. |\n";
    assert!(table(values).ends_with(rows), "{}", table(values));
    assert!(std::panic::catch_unwind(|| table("g:\n  x: 1\n")).is_err());
}

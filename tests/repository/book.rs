//! Checks that the pages make a book: the list of pages, the preprocessor, and the check of the built book.
//! `scripts/build-book` builds it.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::files;

use files::{read, root};
use serde_json::{Value, json};

/// Returns the pages below docs, by their path from there, except the list of pages.
fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for directory in ["", "adr/", "reference/"] {
        for entry in fs::read_dir(root().join("docs").join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                pages.push(format!("{directory}{name}"));
            }
        }
    }
    pages
}

#[test]
fn the_summary_lists_each_page_once() {
    let summary = read("docs/SUMMARY.md");
    let mut listed: HashMap<&str, u32> = HashMap::new();
    for line in summary.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let link = line.split_once("](").and_then(|(_, link)| link.strip_suffix(')'));
        *listed.entry(link.unwrap_or_else(|| panic!("no link: {line}"))).or_default() += 1;
    }
    let pages = pages();
    assert!(pages.len() >= 40, "{pages:?}");
    for page in &pages {
        assert_eq!(listed.get(page.as_str()), Some(&1), "{page} in docs/SUMMARY.md");
    }
    for page in listed.keys().filter(|page| !page.starts_with("../")) {
        assert!(pages.iter().any(|other| other == page), "{page} is no page");
    }
}

#[test]
fn the_lists_of_decisions_have_their_titles() {
    let (summary, index) = (read("docs/SUMMARY.md"), read("docs/adr/README.md"));
    let records = pages().into_iter().filter(|page| page.starts_with("adr/0"));
    let mut count = 0;
    for page in records {
        let text = read(format!("docs/{page}"));
        let heading = text.lines().next().unwrap();
        let (number, title) = heading.trim_start_matches("# ").split_once(". ").unwrap();
        let file = page.trim_start_matches("adr/");
        assert!(summary.contains(&format!("- [{title}]({page})\n")), "{title} in docs/SUMMARY.md");
        let row = format!("\n| [{number}]({file}) | {title} |\n");
        assert!(index.contains(&row), "{title} in docs/adr/README.md");
        count += 1;
    }
    assert!(count >= 15, "{count}");
}

/// Runs a script with a text as its standard input.
fn run(script: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(root().join("scripts").join(script));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn chapter(source: &str, content: &str, below: &[Value]) -> Value {
    json!({ "Chapter": {
        "name": "a", "path": source, "source_path": source, "content": content, "sub_items": below,
    } })
}

/// Returns the chapters of a book with three pages as the preprocessor changes them.
fn preprocessed(html: &Value) -> Vec<Value> {
    let readme = "[a](docs/redis.md#b) [c](LICENSE) [d](#e) [f](https://example.com/g.md) [h](docs/SUMMARY.md)";
    let redis = "[a](../README.md#b) [c](adr/README.md) [d](img/e.svg)\n ```\n[f](../g)\n ```\n[h](../fuzz)";
    let decision = "[a](../redis.md) [b](../../README.md) [c](../../fuzz/README.md#d)";
    let below = [chapter("adr/README.md", decision, &[])];
    let items = [
        chapter("../README.md", readme, &[]),
        json!("Separator"),
        chapter("redis.md", redis, &below),
    ];
    let input = json!([{ "config": { "output": { "html": html } } }, { "items": items }]);
    let output = run("book-preprocessor", &[], &input.to_string());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let book: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [readme, redis] = [0, 2].map(|item| book["items"][item]["Chapter"].clone());
    let decision = redis["sub_items"][0]["Chapter"].clone();
    vec![readme, redis, decision]
}

#[test]
fn the_preprocessor_keeps_links_within_the_book_or_leads_to_the_repository() {
    let pages = preprocessed(&json!({ "git-repository-url": "https://example.com/a/weir" }));
    let paths: Vec<&Value> = pages.iter().map(|page| &page["path"]).collect();
    assert_eq!(paths, ["index.md", "redis.md", "adr/index.md"]);
    let outside = "https://example.com/a/weir/blob/HEAD";
    let expected = [
        format!(
            "[a](redis.md#b) [c]({outside}/LICENSE) [d](#e) [f](https://example.com/g.md) [h]({outside}/docs/SUMMARY.md)"
        ),
        format!(
            "[a](index.md#b) [c](adr/index.md) [d](img/e.svg)\n ```\n[f](../g)\n ```\n[h]({outside}/fuzz)"
        ),
        format!("[a](../redis.md) [b](../index.md) [c]({outside}/fuzz/README.md#d)"),
    ];
    for (page, expected) in pages.iter().zip(expected) {
        assert_eq!(page["content"], expected);
    }
    assert!(run("book-preprocessor", &["supports", "html"], "").status.success());
}

#[test]
fn without_a_repository_links_lead_to_the_checkout() {
    let pages = preprocessed(&json!({}));
    let license = format!("[c](file://{}/LICENSE)", root().display());
    assert!(pages[0]["content"].as_str().unwrap().contains(&license), "{}", pages[0]);
}

/// Writes two pages, of which the first has this text, and checks them.
fn check(directory: &Path, text: &str) -> (bool, String) {
    fs::write(directory.join("a.html"), text).unwrap();
    fs::write(directory.join("b.html"), "<h2 id=\"c\">c</h2>").unwrap();
    let output = run("check-book", &[directory.to_str().unwrap()], "");
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn a_broken_link_of_the_book_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let valid = "<a id=\"d\" href=\"b.html#c\"></a><a href=\"#d\"></a><a href=\"https://example.com/a\"></a>\
                 <a href=\"https://example.com/a/b/blob/HEAD/fuzz/README.md#c\"></a>";
    assert_eq!(check(directory.path(), valid), (true, "2 pages, 4 links, 0 broken\n".to_owned()));
    for link in [
        "b.html#d",
        "#c",
        "c.html",
        "img/c.svg",
        "file:///none",
        "https://example.com/a/b/blob/HEAD/none",
    ] {
        let (passes, printed) = check(directory.path(), &format!("{valid}<img src=\"{link}\">"));
        assert!(!passes && printed.ends_with(&format!("\na.html: {link}\n")), "{printed}");
    }
    assert!(!check(directory.path(), "").0, "no links");
}

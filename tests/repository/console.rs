//! Runs the `console` blocks of the documents as they are pasted. A document's blocks share a directory with
//! the YAML that it shows before them: in a file with the name of its first line, else in `shop.yaml`.

use std::fs;

use crate::support::{console, files, markdown};

/// Documents with examples that another test runs.
const ELSEWHERE: [(&str, &str); 4] = [
    ("docs/budgets.md", "tests/e2e/budget_api.rs"),
    ("docs/reference/cli.md", "tests/e2e/hit.rs"),
    ("docs/control.md", "tests/e2e/hit.rs"),
    ("docs/redis-protocol.md", "tests/e2e/resp.rs"),
];

/// Runs the blocks of a document. Returns how many there are.
fn run(name: &str, document: &str) -> Result<usize, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for block in markdown::blocks(document) {
        match block.language.as_str() {
            "yaml" => {
                let file = markdown::file_name(&block.text).unwrap_or("shop.yaml");
                files::write_below(directory.path(), file, &block.text);
            }
            "console" => {
                count += 1;
                let ran = console::run(&block.text, directory.path());
                ran.map_err(|error| format!("{name}:{}: {error}", block.line))?;
            }
            _ => {}
        }
    }
    Ok(count)
}

#[test]
fn the_documents_show_what_their_commands_print() {
    let (mut count, mut errors) = (0, String::new());
    let names = ["docs", "docs/reference"].map(|directory| {
        let entries = fs::read_dir(files::root().join(directory)).unwrap();
        entries.map(move |entry| {
            format!("{directory}/{}", entry.unwrap().file_name().into_string().unwrap())
        })
    });
    for name in names.into_iter().flatten().filter(|name| name.ends_with(".md")) {
        match ELSEWHERE.iter().find(|(document, _)| *document == name) {
            Some((_, test)) => assert!(files::read(test).contains(&name), "{test} has no {name}"),
            None => match run(&name, &files::read(&name)) {
                Ok(found) => count += found,
                Err(error) => errors += &format!("{error}\n"),
            },
        }
    }
    assert_eq!(errors, "");
    assert!(count >= 7, "{count} blocks");
}

#[test]
fn an_output_that_differs_is_an_error() {
    let rules = "```yaml\ndomain: shop\n```\n\n";
    let example = |command: &str, shown: &str| {
        run("a.md", &format!("{rules}```console\n$ {command}\n{shown}```\n"))
    };
    assert_eq!(example("head -1 shop.yaml; echo 12.5", "domain: shop\n…\n"), Ok(1));
    assert_eq!(example("weir check none.yaml >/dev/null 2>&1\n$ echo $?", "1\n"), Ok(1));
    for (command, shown) in
        [("echo a", "b\n"), ("echo a", ""), ("echo a1", "a\n"), ("exit", ""), ("echo a\nx", "a\n")]
    {
        assert!(example(command, shown).is_err(), "{command}");
    }
    assert!(run("a.md", "```console\nweir check\n```\n").is_err());
}

//! The help of `docs/reference/cli.md`. `UPDATE_DOCS=1 cargo test --lib docs` writes it.

use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory, Parser};

use crate::cli::{Cli, arguments};

/// Returns the commands as a user may type them.
fn commands() -> Vec<Command> {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect()
}

/// An option that this many commands have, in the same words, is listed once.
const SHARED_BY: usize = 3;

/// The help of a command, cut where its options start and end.
struct Help {
    name: String,
    head: String,
    options: Vec<String>,
    examples: String,
}

/// Returns the help of a command, without `--help`, which every command has.
fn help(mut command: Command) -> Help {
    let help = command.render_long_help().to_string();
    let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let (head, rest) = help.split_once("\nOptions:\n").expect("options");
    let (listed, examples) = rest.split_once("\nExamples:").expect("examples");
    let mut options: Vec<String> = Vec::new();
    for line in listed.lines() {
        if line.starts_with("  -") || line.starts_with("      --") {
            options.push(String::new());
        }
        let option = options.last_mut().expect("the first line is an option");
        option.push_str(line);
        option.push('\n');
    }
    options.retain(|option| !option.starts_with("  -h, --help"));
    Help {
        name: command.get_name().to_owned(),
        head: head.trim_end().to_owned(),
        options: options.iter().map(|option| option.trim_end().to_owned()).collect(),
        examples: format!("Examples:{}", examples.trim_end()),
    }
}

/// Returns the long name of an option.
fn long_name(option: &str) -> &str {
    option.split_whitespace().find(|word| word.starts_with("--")).expect("a long name")
}

/// Returns a section for each command, with its help, and one with the options of several commands.
fn sections() -> String {
    let helps: Vec<Help> = commands().into_iter().map(help).collect();
    let is_shared = |option: &str| {
        let has_option = |help: &&Help| help.options.iter().any(|other| other == option);
        helps.iter().filter(has_option).count() >= SHARED_BY
    };
    let mut all_shared: Vec<&str> = Vec::new();
    let mut sections = String::new();
    for Help { name, head, options, examples } in &helps {
        let (shared, own): (Vec<&str>, Vec<&str>) =
            options.iter().map(String::as_str).partition(|&option| is_shared(option));
        let _ = writeln!(sections, "### weir {name}\n\n```text\n{head}\n");
        if !own.is_empty() {
            let _ = writeln!(sections, "Options:\n{}\n", own.join("\n\n"));
        }
        let _ = writeln!(sections, "{examples}\n```\n");
        if !shared.is_empty() {
            let names: Vec<String> =
                shared.iter().map(|option| format!("`{}`", long_name(option))).collect();
            let _ = writeln!(sections, "[More options](#more-options): {}.\n", names.join(", "));
        }
        for option in shared {
            if !all_shared.contains(&option) {
                all_shared.push(option);
            }
        }
    }
    let _ = writeln!(sections, "### More options\n\n```text\n{}\n```\n", all_shared.join("\n\n"));
    sections
}

#[test]
fn the_document_has_the_help_of_every_command() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/cli.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- help: from the code -->\n", "<!-- end of help -->");
    let (head, rest) = document.split_once(begin).expect("the beginning is marked");
    let (_, tail) = rest.split_once(end).expect("the end is marked");
    let wanted = format!("{head}{begin}\n{}{end}{tail}", sections());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert!(document == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
}

/// Splits a line as a shell does that has no variables: quotes group, and `>`, `|` or `#` ends the command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('>' | '|' | '<', None) => {
                // Standard error: `2>`.
                word.take_if(|word| *word == "2");
                break;
            }
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn the_help_of_every_command_has_examples_that_parse() {
    for mut command in commands().into_iter().chain([Cli::command()]) {
        let name = command.get_name().trim_start_matches("weir").to_owned();
        let help = command.render_long_help().to_string();
        let prefix = format!("weir {name}");
        let (_, examples) = help.split_once("\nExample").unwrap_or_else(|| panic!("none: {help}"));
        let examples: Vec<&str> = examples
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .filter_map(|line| line.find("weir ").map(|at| &line[at..]))
            .collect();
        assert!(examples.iter().any(|line| line.starts_with(&prefix)), "{name}: {help}");
        for line in examples {
            parse(line);
        }
    }
}

fn parse(line: &str) {
    let args = words(line).into_iter().map(Into::into).collect();
    if let Err(error) = Cli::try_parse_from(arguments(args)) {
        panic!("{line}: {error}");
    }
}

#[test]
fn the_commands_in_the_documents_parse() {
    let mut count = 0;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let entries = [docs.join("reference"), docs].map(|directory| directory.read_dir().unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let document = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
        let mut language = None;
        for line in document.lines().map(str::trim_start) {
            if let Some(fence) = line.strip_prefix("```") {
                language = if language.is_none() { Some(fence) } else { None };
                continue;
            }
            let commands = match language {
                Some("sh") => Some(line),
                Some("console") => line.strip_prefix("$ "),
                _ => None,
            };
            for command in commands.unwrap_or_default().split(" | ") {
                // Variables may come before the program.
                let program = command.split(' ').find(|word| !word.contains('='));
                if program == Some("weir") {
                    parse(&command[command.find("weir ").unwrap_or_default()..]);
                    count += 1;
                }
            }
        }
    }
    assert!(count >= 20, "{count} commands");
}

//! Suggests fixes for YAML syntax errors.

use super::position::Position;
use super::problem::{Problem, lines};
use super::yaml::SyntaxError;

/// What to write instead, by a part of the parser's message; the first that fits.
const HELP: [(&str, &str); 11] = [
    ("cannot decode", "write a value of the tag's type, or remove the tag"),
    ("!!binary", "write text encoded as base64, padded with `=`, or remove the tag"),
    ("tab", "indent with spaces, not with a tab"),
    ("anchor or alias", OTHER_HELP),
    (
        "mapping values are not allowed",
        "indent as the siblings are, and quote a value with `: ` in it",
    ),
    ("unclosed bracket", "close it with a ] or }"),
    ("quoted scalar", "close the quote that is open above"),
    ("indentation", "indent the line with as many spaces as its siblings"),
    ("alias", "replace the alias with the value of its anchor"),
    ("nested too deep", "use fewer levels: rule files never need that many"),
    ("too many nodes", "split the file into several"),
];

/// The help for all other messages.
const OTHER_HELP: &str = "fix the YAML here: put text with special characters in quotes";

/// Describes the error that stopped the parser. The text after it was not checked.
pub(crate) fn problem(file: &str, text: &str, error: SyntaxError) -> Problem {
    let SyntaxError { mut line, mut column, message } = error;
    if message.contains("tab") {
        // The parser may stop before the line that the tab indents.
        (line, column) = indenting_tab(text, line).unwrap_or((line, column));
    }
    let help = HELP.iter().find(|(part, _)| message.contains(part)).map(|(_, help)| *help);
    let message = format!("error loading config file: yaml: line {line}: {message}");
    let problem = Problem::of_file(file, message, help.unwrap_or(OTHER_HELP));
    problem.at(Position::in_text(line, column)).about(word_at(text, line, column))
}

/// Finds the first tab that indents this line or one of the next two; returns its line and column.
fn indenting_tab(text: &str, line: u32) -> Option<(u32, u32)> {
    let skipped = line.saturating_sub(1) as usize;
    lines(text).enumerate().skip(skipped).take(3).find_map(|(i, line)| {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        Some((i as u32 + 1, indent.find('\t')? as u32 + 1))
    })
}

/// The word at a position.
fn word_at(text: &str, line: u32, column: u32) -> String {
    let line = lines(text).nth(line.saturating_sub(1) as usize).unwrap_or("");
    let rest = line.chars().skip(column.saturating_sub(1) as usize);
    rest.take_while(|c| !c.is_whitespace()).take(80).collect()
}

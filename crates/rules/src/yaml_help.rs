//! Suggests fixes for YAML syntax errors.

use super::position::Position;
use super::problem::{Problem, Severity, lines};
use super::yaml::SyntaxError;

/// Describes the error that stopped the parser. The text after it was not checked.
pub(super) fn problem(file: &str, text: &str, error: SyntaxError) -> Problem {
    let SyntaxError { mut line, mut column, message } = error;
    let contains = |part: &str| message.contains(part);
    let quote = "put the value in quotes: \"…\"";
    let help = if contains("cannot decode") {
        "write a value of the tag's type, or remove the tag"
    } else if contains("!!binary") {
        "write text encoded as base64, padded with `=`, or remove the tag"
    } else if contains("tab") {
        // The parser stops before the line that the tab indents.
        (line, column) = indenting_tab(text, line).unwrap_or((line, column));
        "indent with spaces, not with a tab"
    } else if contains("anchor or alias") || contains("unexpected character") {
        quote
    } else if contains("mapping values are not allowed") {
        if is_first_key(text, line, column) {
            "indent the line with as many spaces as its siblings"
        } else {
            "put the value in quotes if a `: ` belongs to it: \"…\""
        }
    } else if contains("unclosed bracket") {
        "close it with a ] or }"
    } else if contains("quoted scalar") || contains("end of stream") {
        "close the quote that is open above"
    } else if contains("indentation") {
        "indent the line with as many spaces as its siblings"
    } else if contains("nested too deep") {
        "use fewer levels: rule files never need that many"
    } else if contains("alias") {
        "replace the alias with the value of its anchor"
    } else if contains("too many nodes") {
        "split the file into several"
    } else {
        "fix the YAML here; the text after it was not checked"
    };
    Problem {
        severity: Severity::Error,
        file: file.to_owned(),
        position: Some(Position::in_text(line, column)),
        text: word_at(text, line, column),
        message: format!("error loading config file: yaml: line {line}: {message}"),
        first: None,
        help: help.to_owned(),
    }
}

/// Returns a line by its number, counted from 1; empty if there is none.
fn line_at(text: &str, line: u32) -> &str {
    lines(text).nth(line.saturating_sub(1) as usize).unwrap_or("")
}

/// Finds the first tab that indents this line or one of the next two; returns its line and column.
fn indenting_tab(text: &str, line: u32) -> Option<(u32, u32)> {
    let skipped = line.saturating_sub(1) as usize;
    lines(text).enumerate().skip(skipped).take(3).find_map(|(i, line)| {
        let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        Some((i as u32 + 1, indent.find('\t')? as u32 + 1))
    })
}

/// Whether a position is in the first `key:` of its line, so that the indentation is the error.
fn is_first_key(text: &str, line: u32, column: u32) -> bool {
    let before = line_at(text, line).chars().take(column.saturating_sub(1) as usize);
    !before.collect::<String>().contains(": ")
}

/// The word at a position.
fn word_at(text: &str, line: u32, column: u32) -> String {
    let rest = line_at(text, line).chars().skip(column.saturating_sub(1) as usize);
    rest.take_while(|c| !c.is_whitespace()).take(80).collect()
}

//! What to do about text that is no YAML.

use super::problem::{Problem, Severity, lines};
use super::yaml::{Broken, Place};

/// The problem that stopped the parser. What comes after it was not looked at.
pub(super) fn problem(file: &str, text: &str, broken: Broken) -> Problem {
    let Broken { mut place, message } = broken;
    let says = |part: &str| message.contains(part);
    let quote = "put the value in quotes: \"…\"";
    let help = if says("cannot decode") {
        "write what the tag says, or leave the tag out"
    } else if says("!!binary") {
        "write text encoded as base64, padded with `=`, or leave the tag out"
    } else if says("tab") {
        // The parser stops before the line that the tab indents.
        place = indenting_tab(text, place).unwrap_or(place);
        "indent with spaces, not with a tab"
    } else if says("anchor or alias") || says("unexpected character") {
        quote
    } else if says("mapping values are not allowed") {
        if is_indented_otherwise(text, place) {
            "begin the line below its siblings, with as many spaces"
        } else {
            "put the value in quotes if a `: ` belongs to it: \"…\""
        }
    } else if says("unclosed bracket") {
        "close it with a ] or }"
    } else if says("quoted scalar") || says("end of stream") {
        "close the quote that is open above"
    } else if says("indentation") {
        "begin the line below its siblings, with as many spaces"
    } else if says("nested too deep") {
        "nest less deep: a rule file has no need of so many levels"
    } else if says("alias") {
        "write out what the alias stands for"
    } else if says("too many nodes") {
        "split the file into several"
    } else {
        "mend the YAML here; what comes after it was not looked at"
    };
    let line = place.line;
    Problem {
        severity: Severity::Error,
        file: file.to_owned(),
        place: Some(place),
        message: format!("error loading config file: yaml: line {line}: {message}"),
        text: word_at(text, place),
        first: None,
        help: help.to_owned(),
    }
}

/// The first tab that indents a line, from the place's line on.
fn indenting_tab(text: &str, place: Place) -> Option<Place> {
    let from = place.line.saturating_sub(1) as usize;
    lines(text).enumerate().skip(from).take(3).find_map(|(i, line)| {
        let blank = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        let column = blank.find('\t')? as u32 + 1;
        Some(Place { line: i as u32 + 1, column })
    })
}

/// Whether the place is in the first `key:` of its line, so that the line's indentation is wrong.
fn is_indented_otherwise(text: &str, place: Place) -> bool {
    let line = lines(text).nth(place.line.saturating_sub(1) as usize).unwrap_or("");
    let before: String = line.chars().take(place.column.saturating_sub(1) as usize).collect();
    !before.contains(": ")
}

/// The word that stands at a place.
fn word_at(text: &str, Place { line, column }: Place) -> String {
    let line = lines(text).nth(line.saturating_sub(1) as usize).unwrap_or("");
    let from = line.chars().skip(column.saturating_sub(1) as usize);
    from.take_while(|c| !c.is_whitespace()).take(80).collect()
}

//! Reads a settings file in YAML, with the parser of the rule files.

use std::collections::HashMap;

use config::{Value, ValueKind};

use super::entries::{Entries, LineColumn, number_or_text};
use crate::settings::group::below;
use weir_rules::Position;
use weir_rules::tree::{Content, Node, Value as Scalar};
use weir_rules::yaml::{Cause, Documents};

/// The deepest nesting of groups. Settings have less.
const MAX_DEPTH: usize = 16;

/// Reads the only document of a text.
pub(super) fn read(text: &str, entries: &mut Entries) {
    let mut documents = Documents::new(text);
    match documents.next() {
        None | Some(Ok(None)) => {}
        Some(Ok(Some(root))) => match root.content() {
            Content::Map(map) => group("", map, 0, entries),
            Content::Scalar(_) if root.value() == Some(Scalar::Null) => {}
            _ => {
                entries.invalid(|| place(root.position), "it has no settings", "write name: value")
            }
        },
        Some(Err(error)) => {
            let place = (error.line as usize, error.column as usize);
            let message = match error.cause {
                // The message quotes the value, which may be a secret.
                Cause::Tag => "its tag does not allow the value",
                _ => &error.message,
            };
            let help = "fix it, or put the value in quotes";
            return entries.invalid(|| place, format!("invalid YAML: {message}"), help);
        }
    }
    if let Some(rest) = documents.rest() {
        let message = "the file has another document here";
        entries.invalid(|| place(rest), message, "write all settings into one document");
    }
}

fn place(position: Position) -> LineColumn {
    let or_first = |number: Option<u32>| number.unwrap_or(1) as usize;
    (or_first(position.line()), or_first(position.column()))
}

fn group(prefix: &str, map: &[(Node<'_>, Node<'_>)], depth: usize, entries: &mut Entries) {
    let mut seen: HashMap<&str, LineColumn> = HashMap::new();
    for (key, value) in map {
        let at = place(key.position);
        let Some(text) = key.text() else {
            entries.invalid(|| at, "a key is not text", "write the name of a setting");
            continue;
        };
        let name = below(prefix, text);
        if let Some(first) = seen.insert(text, at) {
            entries.repeated(&name, || at, first);
            continue;
        }
        match value.content() {
            Content::Map(map) if depth < MAX_DEPTH => group(&name, map, depth + 1, entries),
            _ => entries.set(&name, || at, || place(value.position), kind(value)),
        }
    }
}

fn kind(node: &Node<'_>) -> ValueKind {
    match node.content() {
        _ if node.value() == Some(Scalar::Null) => ValueKind::Nil,
        Content::Scalar(text) if node.is_plain() => number_or_text(text),
        Content::Scalar(text) => ValueKind::String(text.clone().into_owned()),
        Content::List(items) => {
            ValueKind::Array(items.iter().map(|item| Value::new(None, kind(item))).collect())
        }
        Content::Map(_) => ValueKind::Table(config::Map::new()),
    }
}

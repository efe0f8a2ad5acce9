//! TOML.

use std::ops::Range;

use config::{Value, ValueKind};
use toml::de::{DeTable, DeValue};

use super::{Entries, Place, below, number_or_text, shown};

/// Reads a text.
pub(super) fn read(text: &str, entries: &mut Entries) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let places = Places::new(text);
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let place = || places.of(&span);
        match error.message() {
            "duplicate key" => {
                let key = text.get(span.clone()).unwrap_or_default();
                let message = format!("{:?} is there twice", shown(key));
                entries.invalid(place, message, "remove one of them");
            }
            message => entries.invalid(place, format!("invalid TOML: {message}"), "fix it"),
        }
    }
    if errors.is_empty() {
        group("", root.get_ref(), &places, entries);
    }
}

fn group(prefix: &str, table: &DeTable<'_>, places: &Places<'_>, entries: &mut Entries) {
    for (key, value) in table {
        let name = below(prefix, key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) => group(&name, table, places, entries),
            other => {
                let place = || places.of(&value.span());
                entries.set(&name, || places.of(&key.span()), place, kind(other));
            }
        }
    }
}

/// Returns a value.
fn kind(value: &DeValue<'_>) -> ValueKind {
    match value {
        DeValue::String(text) => ValueKind::String(text.clone().into_owned()),
        DeValue::Integer(number) => number_or_text(&number.to_string()),
        DeValue::Float(number) => number_or_text(number.as_str()),
        DeValue::Boolean(is_true) => ValueKind::Boolean(*is_true),
        DeValue::Datetime(time) => ValueKind::String(time.to_string()),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| Value::new(None, kind(item.get_ref())));
            ValueKind::Array(items.collect())
        }
        DeValue::Table(_) => ValueKind::Table(config::Map::new()),
    }
}

/// Finds lines and columns.
struct Places<'t> {
    text: &'t str,
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Places<'t> {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Places { text, lines: std::iter::once(0).chain(breaks).collect() }
    }

    fn of(&self, span: &Range<usize>) -> Place {
        let line = self.lines.partition_point(|start| *start <= span.start);
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(start..span.start).unwrap_or_default();
        (line, before.chars().count() + 1)
    }
}

//! Reads a settings file in TOML.

use std::ops::Range;

use config::{Value, ValueKind};
use toml::de::{DeTable, DeValue};

use super::entries::{Entries, LineColumn, number_or_text, shown};
use crate::settings::group::below;
use crate::settings::table;

pub(super) fn read(text: &str, entries: &mut Entries) {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let place = || place(text, &span);
        match error.message() {
            "duplicate key" => {
                let message = format!("{:?} is there twice", shown(&name_at(text, &span)));
                entries.invalid(place, message, "remove one of them");
            }
            message => entries.invalid(place, format!("invalid TOML: {message}"), "fix it"),
        }
    }
    if errors.is_empty() {
        group("", root.get_ref(), text, entries);
    }
}

/// Returns the name of a key: with its group and what is before it in a dotted name if that is a setting.
fn name_at(text: &str, span: &Range<usize>) -> String {
    let key = text.get(span.clone()).unwrap_or_default();
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let header = |line: &str| Some(line.trim().strip_prefix('[')?.split_once(']')?.0.to_owned());
    let group = before.lines().rev().find_map(header).unwrap_or_default();
    let name = below(&group, &format!("{}{key}", line.trim_start()));
    // Anything else could be a part of a value.
    if table::find(&name).is_some() { name } else { key.to_owned() }
}

fn group(prefix: &str, table: &DeTable<'_>, text: &str, entries: &mut Entries) {
    for (key, value) in table {
        let name = below(prefix, key.get_ref());
        match value.get_ref() {
            DeValue::Table(table) => group(&name, table, text, entries),
            other => {
                let of_value = || place(text, &value.span());
                entries.set(&name, || place(text, &key.span()), of_value, kind(other));
            }
        }
    }
}

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

/// Returns the line and the column of the start of a span.
fn place(text: &str, span: &Range<usize>) -> LineColumn {
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

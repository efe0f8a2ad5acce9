//! Collects what a settings file sets, and the errors in it. The readers of TOML and YAML fill it.

use std::collections::HashMap;

use config::{Value, ValueKind};

use crate::settings::setting::SettingError;
use crate::settings::table;
use weir_common::truncate::truncated;

const MAX_LISTED_ERRORS: usize = 100;
const MAX_NAME_BYTES: usize = 100;

/// A line and a column, both counted from 1.
pub type LineColumn = (usize, usize);

/// What a file sets, and its errors. No error quotes the file, whose values may be secrets.
#[derive(Default)]
pub struct Entries {
    pub file: String,
    pub values: Vec<(String, Value)>,
    /// Where each setting was set first.
    pub first: HashMap<&'static str, LineColumn>,
    pub errors: Vec<SettingError>,
    pub omitted: usize,
}

impl Entries {
    /// Sets a setting. `key` and `place` return the places of its name and of its value.
    pub fn set(
        &mut self,
        name: &str,
        key: impl FnOnce() -> LineColumn,
        place: impl FnOnce() -> LineColumn,
        kind: ValueKind,
    ) {
        let Some(setting) = table::find(name) else {
            return self.report(key, |origin| table::unknown(&shown(name), &origin));
        };
        if let Some(first) = self.first.get(setting.name) {
            return self.repeated(name, key, *first);
        }
        self.first.insert(setting.name, key());
        let value = Value::new(Some(&self.origin(place())), kind);
        self.values.push((setting.name.to_owned(), value));
    }

    pub fn repeated(
        &mut self,
        name: &str,
        key: impl FnOnce() -> LineColumn,
        (line, column): LineColumn,
    ) {
        let message = || format!("{:?} is there twice, first at {line}:{column}", shown(name));
        self.report(key, |origin| SettingError::new(origin, message(), "remove one of them"));
    }

    pub fn invalid(
        &mut self,
        place: impl FnOnce() -> LineColumn,
        message: impl Into<String>,
        help: &str,
    ) {
        self.report(place, |origin| SettingError::new(origin, message, help));
    }

    /// Lists an error, unless there are many. Making one takes longer than reading the file: finding its place reads
    /// a line, and it may suggest a name.
    fn report(
        &mut self,
        place: impl FnOnce() -> LineColumn,
        error: impl FnOnce(String) -> SettingError,
    ) {
        if self.errors.len() < MAX_LISTED_ERRORS {
            self.errors.push(error(self.origin(place())));
        } else {
            self.omitted += 1;
        }
    }

    fn origin(&self, (line, column): LineColumn) -> String {
        format!("{}:{line}:{column}", self.file)
    }
}

pub fn shown(name: &str) -> String {
    truncated(name, MAX_NAME_BYTES)
}

/// Returns a number of a file as such, so that `010` is ten and `1e3` a thousand, and anything else as text.
pub fn number_or_text(text: &str) -> ValueKind {
    let is_float = || text.bytes().any(|byte| byte.is_ascii_digit());
    let in_base = |(prefix, base)| {
        text.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, base).ok())
    };
    let whole = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(in_base);
    match (whole.or_else(|| text.parse().ok()), text.parse()) {
        (Some(whole), _) => ValueKind::I64(whole),
        (_, Ok(number)) if is_float() => ValueKind::Float(number),
        _ => ValueKind::String(text.to_owned()),
    }
}

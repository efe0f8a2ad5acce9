//! Writes texts, maps and JSON values in one line of YAML, for the rules that `to_yaml` writes.

use std::fmt::{self, Display, Write};

use serde_json::Value;

use crate::model::rule::Metadata;
use crate::syntax::tree::{self, Style};

/// A text as a scalar: plain where no reader takes it for anything else, else in double quotes.
pub(super) struct Text<'t>(pub &'t str);

/// Returns whether a text may be written without quotes, also within `{}` and `[]`.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && Style::Plain.value(text) == tree::Value::Text(text)
}

/// Returns whether YAML must escape a character, or breaks lines at it.
fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                c if is_special(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Returns values as a list in `[]`.
pub(super) fn list(values: impl Iterator<Item = impl Display>) -> String {
    let values: Vec<String> = values.map(|value| value.to_string()).collect();
    format!("[{}]", values.join(", "))
}

/// The keys and values of a map in `{}`.
#[derive(Default)]
pub(super) struct FlowMap(String);

impl FlowMap {
    pub fn add(&mut self, key: impl Display, value: impl Display) {
        let separator = if self.0.is_empty() { " " } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{separator}{key}: {value}");
    }

    /// Adds a value other than the default of its key.
    pub fn add_unless<T: Display + PartialEq>(&mut self, default: T, key: &str, value: T) {
        if value != default {
            self.add(key, value);
        }
    }

    pub fn add_name(&mut self, name: &str) {
        if !name.is_empty() {
            self.add("name", Text(name));
        }
    }

    pub fn add_replaces(&mut self, names: &[&str]) {
        if !names.is_empty() {
            let items = names.iter().map(|name| format!("{{ name: {} }}", Text(name)));
            self.add("replaces", list(items));
        }
    }
}

impl fmt::Display for FlowMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} }}", self.0)
    }
}

/// The longest text that may be a key without `?`, in bytes. YAML has 1024 characters with the quotes and escapes.
const MAX_KEY_BYTES: usize = 128;

/// Metadata, from which rule files read the same again. Keys that look like numbers are quoted, and so stay texts.
impl From<&Metadata> for FlowMap {
    fn from(metadata: &Metadata) -> FlowMap {
        let mut map = FlowMap::default();
        for (key, value) in metadata {
            let mark = if key.len() > MAX_KEY_BYTES { "? " } else { "" };
            map.add(format_args!("{mark}{}", Text(key)), Json(value));
        }
        map
    }
}

struct Json<'v>(&'v Value);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Object(object) => FlowMap::from(object).fmt(f),
            Value::Array(items) => f.write_str(&list(items.iter().map(Json))),
            Value::String(string) => Text(string).fmt(f),
            other => other.fmt(f),
        }
    }
}

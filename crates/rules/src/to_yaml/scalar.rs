//! Texts and JSON values as YAML.

use std::fmt::{self, Write};

use crate::syntax::tree::{Style, Value};

/// A text as a scalar: plain where no reader takes it for anything else, else in double quotes.
pub(super) struct Text<'t>(&'t str);

pub(super) fn text(text: &str) -> Text<'_> {
    Text(text)
}

/// Whether a text may be written without quotes, also within `{}` and `[]`.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && Style::Plain.value(text) == Value::Text(text)
}

/// Whether YAML must escape a character, or breaks lines at it.
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

/// JSON values in one line, from which rule files read the same metadata.
pub(super) mod json {
    use std::fmt::Write;

    use serde_json::{Map, Value};

    use super::text;

    /// The longest text that may be a key without `?`, in bytes: YAML has 1024 characters with the quotes
    /// and escapes.
    const MAX_KEY_BYTES: usize = 128;

    pub(in super::super) fn map(map: &Map<String, Value>, out: &mut String) {
        out.push('{');
        for (i, (key, value)) in map.iter().enumerate() {
            *out += if i == 0 { " " } else { ", " };
            if key.len() > MAX_KEY_BYTES {
                *out += "? ";
            }
            // Writing to a string cannot fail. Keys that look like numbers stay texts, as all that are quoted.
            let _ = write!(out, "{}: ", text(key));
            self::value(value, out);
        }
        *out += " }";
    }

    fn value(value: &Value, out: &mut String) {
        match value {
            Value::Object(object) => map(object, out),
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    *out += if i == 0 { "" } else { ", " };
                    self::value(item, out);
                }
                out.push(']');
            }
            Value::String(string) => {
                let _ = write!(out, "{}", text(string));
            }
            other => {
                let _ = write!(out, "{other}");
            }
        }
    }
}

//! Writes YAML in flow style: indentation would repeat for every line how deep it is.

use std::fmt::{Display, Write};

use super::Unreadable;

/// How many fields a message may have: as many as fit into the tree that is made of it.
pub(super) const MAX_FIELDS: u32 = (1 << 23) - 1;

#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    fields: u32,
    /// Whether a comma is due before what comes next in the list or map.
    comma: bool,
}

// Writing to a string cannot fail, so that the results of `write!` say nothing.
impl Writer {
    pub fn into_text(self) -> String {
        self.text
    }

    /// Finds out whether there are too many fields.
    pub fn check(&self) -> Result<(), Unreadable> {
        if self.fields > MAX_FIELDS { Err(Unreadable::TooManyFields) } else { Ok(()) }
    }

    /// What comes next is another entry or item.
    pub fn next(&mut self) {
        self.fields += 1;
        if std::mem::replace(&mut self.comma, true) {
            self.text.push(',');
        }
    }

    /// Begins a list or map.
    pub fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.comma = false;
    }

    pub fn close(&mut self, bracket: char) {
        self.text.push(bracket);
        self.comma = true;
    }

    /// Begins a list or map that is an item of a list.
    pub fn item(&mut self, bracket: char) {
        self.next();
        self.open(bracket);
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn end_line(&mut self) {
        self.text.push('\n');
    }

    pub fn key(&mut self, key: &str) {
        self.next();
        let _ = write!(self.text, "{key}: ");
    }

    /// A key of any text. It is marked as a key, or it would have to be short.
    pub fn any_key(&mut self, key: &str) {
        self.next();
        self.text.push_str("? ");
        self.quoted(key);
        self.text.push_str(": ");
    }

    pub fn plain(&mut self, key: &str, value: impl Display) {
        self.key(key);
        let _ = write!(self.text, "{value}");
    }

    pub fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.quoted(text);
    }

    /// A text that is a line of its own, at the root.
    pub fn line(&mut self, key: &str, text: &str) {
        self.comma = false;
        self.text(key, text);
        self.end_line();
        self.comma = false;
    }

    pub fn text_unless_empty(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    pub fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.plain(key, true);
        }
    }

    pub fn number(&mut self, key: &str, value: Option<u32>) {
        if let Some(value) = value {
            self.plain(key, value);
        }
    }

    /// A length of time, to the microsecond; one that is none (negative) as it came.
    pub fn time(&mut self, key: &str, time: Option<&prost_types::Duration>) {
        let Some(time) = time else { return };
        let (seconds, micros) = (time.seconds, time.nanos / 1_000);
        match micros {
            0 => self.plain(key, format_args!("{seconds}s")),
            _ => self.plain(key, format_args!("{seconds}s{micros}us")),
        }
    }

    /// A text in double quotes. JSON's escapes are YAML's; what YAML alone takes for no printable
    /// character is escaped too.
    pub fn quoted(&mut self, text: &str) {
        for c in serde_json::Value::from(text).to_string().chars() {
            match c {
                '\u{7f}'..='\u{9f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{feff}'
                | '\u{fffe}'
                | '\u{ffff}' => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(c));
                }
                _ => self.text.push(c),
            }
        }
    }
}

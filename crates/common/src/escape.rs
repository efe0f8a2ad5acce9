//! Escapes characters that could forge or hide text on a terminal or in a log: control characters,
//! line separators and overrides of the writing direction. And whether a terminal shows colors.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::io::IsTerminal;

/// Returns `text` as one line, with such characters as `\n`, `\r`, `\t` or `\u001b`.
///
/// ```
/// assert_eq!(weir_common::escape::escape("a\n\u{1b}[31mb"), r"a\n\u001b[31mb");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    // Writing to a string cannot fail.
    let _ = Escaping::new(&mut escaped, r"\n").write_str(text);
    Cow::Owned(escaped)
}

/// A writer that escapes what it passes on.
#[derive(Debug)]
pub struct Escaping<W> {
    out: W,
    newline: &'static str,
}

impl<W: Write> Escaping<W> {
    /// Writes to `out`, with `newline` for each newline. The other escapes are also valid within strings of JSON.
    pub fn new(out: W, newline: &'static str) -> Escaping<W> {
        Escaping { out, newline }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut written = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_escaped(*c)) {
            self.out.write_str(&text[written..at])?;
            match c {
                '\n' => self.out.write_str(self.newline)?,
                '\r' => self.out.write_str(r"\r")?,
                '\t' => self.out.write_str(r"\t")?,
                _ => write!(self.out, r"\u{:04x}", u32::from(c))?,
            }
            written = at + c.len_utf8();
        }
        self.out.write_str(&text[written..])
    }
}

/// Whether a character is escaped. All of these are below U+10000, so that four digits name them.
fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Line and paragraph separator.
            '\u{2028}' | '\u{2029}'
            // Marks, embeddings, overrides and isolates of bidirectional text.
            | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
}

/// Whether to print colors: on a terminal that has them, unless `NO_COLOR` is set. See <https://no-color.org>.
pub fn has_colors(stream: &impl IsTerminal) -> bool {
    let variable = |name| std::env::var_os(name);
    may_color(stream.is_terminal(), variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn may_color(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_is_escaped_and_text_stays() {
        assert_eq!(escape("tab\tline\r\n"), r"tab\tline\r\n");
        assert_eq!(escape("\0\u{7}\u{1b}\u{7f}"), r"\u0000\u0007\u001b\u007f");
        assert_eq!(escape("\u{9b}31m\u{2028}\u{202e}\u{2066}"), r"\u009b31m\u2028\u202e\u2066");
        assert_eq!(escape("grüße, 世界 \\n \"'"), "grüße, 世界 \\n \"'");
    }

    proptest! {
        #[test]
        fn nothing_to_escape_is_left(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.chars().any(is_escaped));
            prop_assert_eq!(escape(&escaped), escaped.as_ref());
        }

        #[test]
        fn strings_of_json_keep_their_meaning(text in any::<String>()) {
            let mut json = String::new();
            let text = serde_json::to_string(&text).unwrap();
            Escaping::new(&mut json, "\n").write_str(&text).unwrap();
            prop_assert!(!json.chars().any(is_escaped), "{:?}", json);
            let read = |text: &str| serde_json::from_str::<String>(text).unwrap();
            prop_assert_eq!(read(&json), read(&text));
        }
    }

    #[test]
    fn colors_are_for_terminals_and_no_color_disables_them() {
        let [empty, one, xterm, dumb] = ["", "1", "xterm", "dumb"].map(OsStr::new);
        assert!(may_color(true, None, None));
        assert!(may_color(true, Some(empty), Some(xterm)));
        assert!(!may_color(true, Some(one), None));
        assert!(!may_color(true, None, Some(dumb)));
        assert!(!may_color(false, None, None));
    }
}

//! Text of the page: escaped and cut for display; numbers and shares.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::super::report;
pub(super) use super::super::report::number;
use weir_common::escape::escape;

/// Characters of a name or key that are shown, of its start and of its end.
const SHOWN_CHARS: (usize, usize) = (120, 40);

/// Bytes of the name of an option that is not broken.
const MAX_OPTION_BYTES: usize = 20;

/// Returns `text` for content and quoted attributes, as one line.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Invisible, so that two keys could look the same; and the two that are no characters.
            '\u{200b}'..='\u{200d}'
            | '\u{2060}'
            | '\u{feff}'
            | '\u{ad}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                // Writing to a string cannot fail.
                let _ = write!(out, r"\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

/// Returns a name or key as HTML. Long text loses its middle, and its length is shown.
pub(super) fn code(text: &str) -> String {
    let (start, end) = SHOWN_CHARS;
    let text = escape(text);
    let cut = text.char_indices().nth(start);
    // Where the end begins, counted from the end.
    let rest = text.char_indices().rev().nth(end.saturating_sub(1));
    let (Some((cut, _)), Some((rest, _))) = (cut, rest) else { return tagged(&text) };
    // A few more characters are shorter than saying that they are missing.
    if rest <= cut || text[cut..rest].chars().nth(end).is_none() {
        return tagged(&text);
    }
    let length = number(text.chars().count() as u64);
    let shown = tagged(&format!("{}…{}", &text[..cut], &text[rest..]));
    format!(r#"{shown} <span class="note">({length} characters)</span>"#)
}

fn tagged(text: &str) -> String {
    format!("<code>{}</code>", html(text))
}

/// Cuts prose, such as an error.
pub(super) fn cut(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

/// Returns a number with the noun it counts, which gets an `s` unless it is one.
pub(super) fn counted(value: u64, noun: &str) -> String {
    report::counted(value, noun).replacen(' ', "\u{a0}", 1)
}

/// Returns a share from 0 to 1 in percent.
pub(super) fn percent(share: f64) -> String {
    report::percent(share).replace(' ', "\u{a0}")
}

/// Returns prose as HTML. A narrow page does not break the options in it, such as `--format`.
pub(super) fn prose(text: &str) -> String {
    let is_option = |word: &str| {
        let name = word.strip_prefix("--").unwrap_or_default();
        (1..=MAX_OPTION_BYTES).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    };
    let word = |word: &str| match is_option(word.trim_end_matches([',', ';', ':', '.'])) {
        true => format!(r#"<span class="word">{}</span>"#, html(word)),
        false => html(word),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markup_and_hidden_characters_are_escaped() {
        assert_eq!(
            html("<img src=x onerror=\"a('b')\"> & c"),
            "&lt;img src=x onerror=&quot;a(&#39;b&#39;)&quot;&gt; &amp; c"
        );
        assert_eq!(
            html("a\0\u{1b}\u{202e}\u{200b}\u{feff}\u{ffff}\nü"),
            r"a\u0000\u001b\u202e\u200b\ufeff\uffff\nü"
        );
    }

    #[test]
    fn long_text_loses_its_middle() {
        assert_eq!(code("path_/a"), "<code>path_/a</code>");
        let whole = "é".repeat(200);
        assert_eq!(code(&whole), format!("<code>{whole}</code>"));
        let text = format!("{}{}", "a".repeat(65_000), "z".repeat(536));
        let start_end = format!("<code>{}…{}</code>", "a".repeat(120), "z".repeat(40));
        assert_eq!(code(&text), start_end + r#" <span class="note">(65,536 characters)</span>"#);
        assert_eq!(cut("grüße", 3), "grü…");
        assert_eq!(cut("grüße", 5), "grüße");
    }

    #[test]
    fn numbers_have_separators() {
        let texts = [0, 999, 1_000, 12_345, 1_234_567].map(number);
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([counted(1, "key"), counted(2_000, "key")], ["1\u{a0}key", "2,000\u{a0}keys"]);
    }

    #[test]
    fn options_are_not_broken() {
        assert_eq!(
            prose("a <b>: write --format, or --ABC"),
            r#"a &lt;b&gt;: write <span class="word">--format,</span> or --ABC"#
        );
        assert_eq!(prose("--"), "--");
        let long = format!("--{}", "w".repeat(300));
        assert_eq!(prose(&long), long);
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_place(text in any::<String>(), repeat in 1..100_usize) {
            let page = code(&text.repeat(repeat));
            let inside = page.strip_prefix("<code>").unwrap().split_once("</code>").unwrap().0;
            prop_assert!(!inside.contains(['<', '>', '"', '\'']), "{}", inside);
            prop_assert!(inside.len() <= 12 * 250);
        }
    }
}

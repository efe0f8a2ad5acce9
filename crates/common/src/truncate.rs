//! Cuts texts that are too long. An ellipsis marks the cut, and counts as part of what is left.

use crate::value::ellipsis;

/// Returns a text with an ellipsis in place of what exceeds `max` bytes.
pub fn truncated(text: impl Into<String>, max: usize) -> String {
    let text = text.into();
    let (start, ellipsis) = parts(&text, max);
    if ellipsis.is_empty() {
        return text;
    }
    format!("{start}{ellipsis}")
}

/// Returns a text with an ellipsis in place of what exceeds `max` characters: for columns, and for lines that people
/// read, where a text of another script than Latin must not be shorter.
pub fn truncated_chars(text: &str, max: usize) -> String {
    let mut chars = text.char_indices().skip(max.saturating_sub(1));
    match (chars.next(), chars.next()) {
        (Some((end, _)), Some(_)) => format!("{}{}", &text[..end], ellipsis(text)),
        _ => text.to_owned(),
    }
}

/// Returns the parts of a text that [`truncated`] joins: its beginning, and the ellipsis, empty if that is all of it.
#[inline]
pub fn parts(text: &str, max: usize) -> (&str, &'static str) {
    if text.len() <= max {
        return (text, "");
    }
    let ellipsis = ellipsis(text);
    let end = text.floor_char_boundary(max.saturating_sub(ellipsis.len()));
    (&text[..end], ellipsis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn a_long_text_ends_in_an_ellipsis_that_counts_as_part_of_it() {
        for (text, max, wanted) in [
            ("", 0, ""),
            ("abcd", 4, "abcd"),
            ("abcde", 4, "a…"),
            ("äöüß", 8, "äöüß"),
            ("äöüßa", 8, "äö…"),
            ("abcde", 3, "…"),
        ] {
            assert_eq!(truncated(text, max), wanted);
        }
        for (text, max, wanted) in
            [("", 1, ""), ("äöü", 3, "äöü"), ("äöüß", 3, "äö…"), ("ab", 1, "…")]
        {
            assert_eq!(truncated_chars(text, max), wanted);
        }
    }

    #[test]
    fn a_value_that_is_not_utf_8_is_still_one() {
        let text = value::encode(&[0xff; 100]);
        for cut in [truncated(&*text, 20), truncated_chars(&text, 4)] {
            assert_eq!(value::shown(&cut), r"\xff\xff\xff…");
        }
    }
}

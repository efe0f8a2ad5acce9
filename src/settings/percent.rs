//! Percent-encoding in settings.

use percent_encoding::percent_decode_str;

/// Decodes a text; `None` if a `%` is not followed by two hexadecimal digits.
pub(super) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.match_indices('%').all(is_escape).then(|| percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_escapes_are_decoded() {
        let decoded = |text| percent_decoded(text).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(decoded("a%20b%c3%A4%25"), Some("a b\u{e4}%".to_owned()));
        assert_eq!(decoded("%2541"), Some("%41".to_owned()));
        for bad in ["%", "%4", "a%zz", "%+9", "% 9", "%%41", "%\u{e4}"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}

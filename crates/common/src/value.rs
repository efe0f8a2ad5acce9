//! The values of descriptor entries as text. Envoy copies the bytes of headers into them, which need not be UTF-8.
//!
//! A value in UTF-8 is its own text. The text of any other has U+10FF00 + b in place of each byte b that is not UTF-8, and
//! ends with `END`, by which it is recognized without a scan. UTF-8 that ends with `END` is encoded, too, so that two
//! values never have the same text. Rules must not contain these characters, the last of the private use areas.

use std::borrow::Cow;
use std::fmt::Write;

/// Ends the text of a value that is not UTF-8. The characters of bytes are those after it.
const END: char = '\u{10ff7f}';

/// The character of byte b is this one + b.
const BASE: u32 = 0x10_ff00;

/// Returns the text of a value as it was received. Allocates only if it is not UTF-8.
pub fn encode(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) if !is_encoded(text) => text.into(),
        _ => encoded(value).into(),
    }
}

#[cold]
fn encoded(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len() + 2 * END.len_utf8());
    let of_byte = |byte: &u8| char::from_u32(BASE + u32::from(*byte));
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_reserved(c) {
                true => {
                    text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().filter_map(of_byte))
                }
                false => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().filter_map(of_byte));
    }
    text.push(END);
    text
}

/// Returns whether a text is that of a value that is not UTF-8.
#[inline(always)]
pub fn is_encoded(text: &str) -> bool {
    text.ends_with(END)
}

/// Returns whether texts of rules must not have a character.
pub fn is_reserved(c: char) -> bool {
    c >= END
}

/// Returns what patterns are compared with: the text without its end.
#[inline]
pub fn content(text: &str) -> &str {
    text.strip_suffix(END).unwrap_or(text)
}

/// Returns what replaces the rest of a text that is cut.
pub(crate) fn ellipsis(text: &str) -> &'static str {
    if is_encoded(text) { "…\u{10ff7f}" } else { "…" }
}

/// Returns the value as it was received.
pub fn decode(text: &str) -> Cow<'_, [u8]> {
    let Some(text) = text.strip_suffix(END) else { return text.as_bytes().into() };
    let mut value = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(BASE).map(u8::try_from) {
            Some(Ok(byte)) if is_reserved(c) => value.push(byte),
            _ => value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    value.into()
}

/// Returns a text for people and JSON. Of a value that is not UTF-8, `\xff` is a byte and `\\` a backslash.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !is_encoded(text) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for chunk in decode(text).utf8_chunks() {
        shown.push_str(&chunk.valid().replace('\\', r"\\"));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, r"\x{byte:02x}");
        }
    }
    shown.into()
}

/// Returns the text of a value that is [`shown`] with escapes. A backslash that starts no escape stands for itself.
pub fn read_shown(shown: &str) -> String {
    let (mut value, mut rest) = (Vec::with_capacity(shown.len()), shown);
    while let Some((before, behind)) = rest.split_once('\\') {
        value.extend_from_slice(before.as_bytes());
        let byte;
        (byte, rest) = read_escape(behind).unwrap_or((b'\\', behind));
        value.push(byte);
    }
    value.extend_from_slice(rest.as_bytes());
    encode(&value).into_owned()
}

/// Reads what comes after a backslash: another one, or `x` and the two digits of a byte. Returns the byte, and the rest.
pub fn read_escape(text: &str) -> Option<(u8, &str)> {
    if let Some(rest) = text.strip_prefix('\\') {
        return Some((b'\\', rest));
    }
    let (digits, rest) = text.strip_prefix('x')?.split_at_checked(2)?;
    let digits = Some(digits).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::glob::Glob;

    /// Bytes, with many that are UTF-8 or that the encoding itself uses.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            "[a-z\\\\*,x]{0,3}".prop_map(String::into_bytes),
            "\\PC{1}".prop_map(String::into_bytes),
            (0x10_ff00_u32..0x11_0000).prop_map(|c| char::from_u32(c).unwrap().to_string().into()),
            prop::collection::vec(any::<u8>(), 0..3),
        ];
        prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
    }

    #[test]
    fn only_bytes_that_are_not_utf_8_are_shown_escaped() {
        for (value, text) in [
            (&b"a\xffb"[..], r"a\xffb"),
            (b"\xc3", r"\xc3"),
            (b"\xed\xa0\x80", r"\xed\xa0\x80"),
            (b"\xff\\x\xc3\xa4", r"\xff\\xä"),
            (br"a\xff", r"a\xff"),
            ("äöü".as_bytes(), "äöü"),
            ("\u{10ffff}".as_bytes(), "\u{10ffff}"),
        ] {
            assert_eq!(shown(&encode(value)), text);
        }
        assert_eq!(read_shown(r"\xff\q\x+f\"), encode(b"\xff\\q\\x+f\\"));
    }

    #[test]
    fn stars_stand_for_any_bytes() {
        let matches =
            |pattern: &[u8], value: &[u8]| Glob::new(&encode(pattern)).matches(&encode(value));
        for (pattern, value) in [
            (&b"*"[..], &b"\xff"[..]),
            (b"a*", b"a\xff"),
            (b"*a", b"\xffa"),
            (b"a*b*c", b"ab\xffc"),
            (b"\xff*", b"\xffa"),
            (b"*\xff", b"a\xff"),
            (b"\xff", b"\xff"),
        ] {
            assert!(matches(pattern, value), "{pattern:?} {value:?}");
        }
        for (pattern, value) in [
            ("*ÿ".as_bytes(), &b"\xff"[..]),
            (br"\xff", b"\xff"),
            (b"\xff", br"\xff"),
            (b"a", b"a\xff"),
            (b"*a", b"a\xff"),
        ] {
            assert!(!matches(pattern, value), "{pattern:?} {value:?}");
        }
    }

    proptest! {
        #[test]
        fn no_two_values_have_the_same_text(value in value()) {
            let text = encode(&value);
            let (back, shown) = (decode(&text), shown(&text));
            prop_assert_eq!(&*back, &*value);
            prop_assert!(text.len() <= 4 * value.len() + 4);
            match std::str::from_utf8(&value) {
                Ok(utf8) if !is_encoded(utf8) => prop_assert_eq!(shown, utf8),
                _ => prop_assert_eq!(read_shown(&shown), &*text),
            }
            if matches!(text, Cow::Borrowed(_)) {
                prop_assert_eq!(text.as_bytes(), &*value);
            }
        }
    }
}

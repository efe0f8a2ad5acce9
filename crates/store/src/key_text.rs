//! The text of a key, as Redis has it and operators see it.
//!
//! `weir:{shop|api_key=alice}f60`: prefix, domain, entries, and the shape of the rule's limits (`f60`, a fixed window
//! of 60 s). In a domain with `charge: together` it is `weir:{shop}|api_key=alice|f60`. The part in braces decides a
//! key's slot on a cluster, so that all keys of such a domain are in one. The characters that structure the text are
//! escaped in values (`%7B`), and control characters too, so that no value can close the braces, move a key to another
//! slot, or produce the key of other entries. So are bytes that are not UTF-8 (`%FF`).

use std::fmt::Write;

use crate::charge::Key;
use weir_common::value;
use weir_limit::Plan;

/// The longest name in braces, or of entries behind them. A longer one is cut, and ends in a hash of the whole.
const MAX_NAME: usize = 200;
const HASH_HEX: usize = 32;

/// Returns the text of `key` and `plan`, the limits of its rule. `together`: whether its domain has `charge: together`.
pub fn key_text(prefix: &str, key: &Key<'_>, plan: &Plan, together: bool) -> String {
    let mut text = String::with_capacity(96);
    text.push_str(prefix);
    text.push('{');
    let mut start = text.len();
    escape(&mut text, key.domain);
    if together {
        shorten(&mut text, start);
        text.push('}');
        start = text.len();
    }
    for (name, value) in key.entries {
        text.push('|');
        escape(&mut text, name);
        text.push('=');
        escape_value(&mut text, value);
    }
    shorten(&mut text, start);
    text.push(if together { '|' } else { '}' });
    text.push_str(plan.shape());
    text
}

/// Returns the key of `key` and `plan`, as [`key_text`] does, as Redis gets it.
pub fn key_bytes(prefix: &str, key: &Key<'_>, plan: &Plan, together: bool) -> Box<[u8]> {
    key_text(prefix, key, plan, together).into_bytes().into()
}

/// Returns the text of an id as a part of a key, escaped and shortened as names are.
pub fn id_text(id: &str) -> String {
    let mut text = String::with_capacity(id.len().min(MAX_NAME));
    escape_value(&mut text, id);
    shorten(&mut text, 0);
    text
}

/// Replaces the end of a name, which starts at `start`, by a hash of the whole if it is too long.
fn shorten(text: &mut String, start: usize) {
    if text.len() - start <= MAX_NAME {
        return;
    }
    let hash = blake3::hash(&text.as_bytes()[start..]).to_hex();
    let mut end = start + MAX_NAME - HASH_HEX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push('#');
    text.push_str(&hash[..HASH_HEX]);
}

fn escape_value(text: &mut String, value: &str) {
    if !value::is_encoded(value) {
        return escape(text, value);
    }
    for chunk in value::decode(value).utf8_chunks() {
        escape(text, chunk.valid());
        escape_bytes(text, chunk.invalid());
    }
}

fn escape_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

fn escape(text: &mut String, part: &str) {
    let special = |c: char| c.is_control() || matches!(c, '{' | '}' | '|' | '=' | '#' | '%');
    let mut rest = part;
    while let Some(at) = rest.find(special) {
        let (plain, from) = rest.split_at(at);
        text.push_str(plain);
        let mut chars = from.chars();
        let c = chars.next().unwrap_or_default();
        escape_bytes(text, c.encode_utf8(&mut [0; 4]).as_bytes());
        rest = chars.as_str();
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use weir_limit::{Limit, Unit};

    fn plan(unit: Unit) -> Plan {
        Plan::new(vec![Limit::fixed_window(1, unit, 1).unwrap()])
    }

    fn text(domain: &str, entries: &[(&str, &str)]) -> String {
        text_of(domain, entries, false)
    }

    fn text_of(domain: &str, entries: &[(&str, &str)], together: bool) -> String {
        let key = key_bytes("weir:", &Key { domain, entries }, &plan(Unit::Minute), together);
        String::from_utf8(key.into()).unwrap()
    }

    #[test]
    fn keys_are_readable() {
        assert_eq!(text("shop", &[("api_key", "alice")]), "weir:{shop|api_key=alice}f60");
        assert_eq!(text("shop", &[("käse", ""), ("a", "b")]), "weir:{shop|käse=|a=b}f60");
        let together = |entries| text_of("shop", entries, true);
        assert_eq!(together(&[("käse", ""), ("a", "b")]), "weir:{shop}|käse=|a=b|f60");
        assert_eq!(together(&[]), "weir:{shop}|f60");
    }

    #[test]
    fn values_cannot_close_the_braces_or_collide() {
        assert_eq!(text("a{b}", &[("|", "\n%")]), "weir:{a%7Bb%7D|%7C=%0A%25}f60");
        let long = "x".repeat(1 << 10);
        let other = format!("{long}y");
        let parts =
            ["", "a", "a|b", "a=b", "=", "|", "{", "}", "%7B", "#", "\0", "\u{85}", "%FF", "ÿ"];
        let bytes = [&b"\xff"[..], b"\xfe", b"a\xff", b"\xff|b", b"%\xff", b"\xf4\x8f\xbf\xbf\xff"];
        let bytes = bytes.map(|bytes| value::encode(bytes));
        let bytes = bytes.iter().map(|text| &**text);
        let own = ["\u{10ffff}", "\u{10ff7f}", "\u{10ffff}\u{10ff7f}"]
            .map(|text| value::encode(text.as_bytes()));
        let own = own.iter().map(|text| &**text);
        let long = [long.as_str(), other.as_str()];
        let parts: Vec<&str> = parts.into_iter().chain(long).chain(bytes).chain(own).collect();
        let mut seen = HashMap::new();
        let mut check = |domain, entries: &[(&str, &str)]| {
            for together in [false, true] {
                let key = text_of(domain, entries, together);
                assert!(key.len() < 460 && key.matches('{').count() == 1, "{key}");
                assert_eq!(key.matches('}').count(), 1, "{key}");
                let written = format!("{domain:?}{entries:?}{together}");
                if let Some(other) = seen.insert(key.clone(), written.clone()) {
                    panic!("{key}: {other:.99} and {written:.99}");
                }
            }
        };
        for a in &parts {
            check(a, &[]);
            for b in &parts {
                for c in &parts {
                    check(a, &[(b, c)]);
                }
                check("d", &[(a, b), (b, a)]);
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_escaped_and_texts_are_not() {
        let of_value = |value: &[u8]| text("shop", &[("user", &*value::encode(value))]);
        assert_eq!(of_value(b"a%\xff\xc3"), "weir:{shop|user=a%25%FF%C3}f60");
        assert_eq!(of_value(b"a%FF"), "weir:{shop|user=a%25FF}f60");
        // As before there were such bytes.
        assert_eq!(of_value("\u{10ff7f}".as_bytes()), "weir:{shop|user=\u{10ff7f}}f60");
    }

    proptest! {
        #[test]
        fn no_two_values_have_the_same_key(
            a in prop::collection::vec(prop::sample::select(&b"a%F\xff\xf4\x8f\xbd\xbf"[..]), 0..6),
            b in prop::collection::vec(prop::sample::select(&b"a%F\xff\xf4\x8f\xbd\xbf"[..]), 0..6),
        ) {
            let key = |value: &[u8]| text("shop", &[("user", &*value::encode(value))]);
            prop_assert_eq!(key(&a) == key(&b), a == b);
        }
    }

    #[test]
    fn ids_are_short_and_do_not_collide() {
        assert_eq!(id_text("6f3c-1"), "6f3c-1");
        assert_eq!(id_text("a{b}\n#"), "a%7Bb%7D%0A%23");
        let long = "x".repeat(1 << 20);
        let other = format!("{long}y");
        let start = &id_text(&long)[..MAX_NAME - HASH_HEX];
        let ids = ["", "é", "%", "%25", &long[..200], &long[..201], &long, &other, start];
        let texts = ids.map(id_text);
        for (i, text) in texts.iter().enumerate() {
            assert!(text.len() <= MAX_NAME + 1 && !text.contains('{'), "{text}");
            assert!(!texts[..i].contains(text), "{text}");
        }
    }

    #[test]
    fn keys_differ_by_shape() {
        let key = Key { domain: "d", entries: &[] };
        assert_ne!(
            key_text("weir:", &key, &plan(Unit::Minute), false),
            key_text("weir:", &key, &plan(Unit::Hour), false)
        );
    }
}

//! The text of keys in Redis.
//!
//! `weir:{shop|api_key=alice}f60`: prefix, domain, entries and the plan's shape. The part in braces
//! decides a key's slot on a cluster. The characters that structure the text are escaped in values
//! (`%7B`), and control characters too, so that no value can close the braces, move a key to another slot,
//! or produce the key of other entries.

use std::fmt::{self, Write};

use crate::limit::{Micros, Plan};
use crate::store::Key;

/// The longest name in braces. A longer one keeps a readable start and ends in a hash of the whole.
const MAX_NAME: usize = 200;
const HASH_HEX: usize = 32;

/// The most bytes of a key in a log line: enough for every key but those of the reference's layout and
/// those with a long prefix.
const MAX_LOGGED: usize = 256;

/// Returns the key of `key` and `plan` without its prefix, for the log.
pub fn text(key: &Key<'_>, plan: &Plan) -> String {
    String::from_utf8_lossy(&write("", key, plan)).into_owned()
}

/// Returns the key of `key` and `plan`.
pub(super) fn write(prefix: &str, key: &Key<'_>, plan: &Plan) -> Box<[u8]> {
    let mut text = String::with_capacity(96);
    text.push_str(prefix);
    text.push('{');
    let start = text.len();
    escape(&mut text, key.domain);
    for (name, value) in key.entries {
        text.push('|');
        escape(&mut text, name);
        text.push('=');
        escape(&mut text, value);
    }
    if text.len() - start > MAX_NAME {
        let hash = blake3::hash(&text.as_bytes()[start..]).to_hex();
        let mut end = start + MAX_NAME - HASH_HEX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('#');
        text.push_str(&hash[..HASH_HEX]);
    }
    text.push('}');
    text.push_str(plan.shape());
    text.into_bytes().into()
}

/// Returns the key under which the reference counts the window of `period` that `now` is in; with all its
/// ambiguities, so that both find the same number.
pub(super) fn write_reference(
    prefix: &str,
    key: &Key<'_>,
    period: Micros,
    now: Micros,
) -> Box<[u8]> {
    let mut text = format!("{prefix}{}_", key.domain);
    for (name, value) in key.entries {
        text.push_str(name);
        text.push('_');
        text.push_str(value);
        text.push('_');
    }
    // Writing to a string cannot fail.
    let _ = write!(text, "{}", (now - now % period) / crate::limit::SECOND);
    text.into_bytes().into()
}

/// Bytes for a log line: truncated, and escaped so that they cannot end the line or move the cursor.
#[derive(Debug)]
pub(super) struct EscapedKey<'k>(pub &'k [u8]);

impl fmt::Display for EscapedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.0[..self.0.len().min(MAX_LOGGED)];
        let more = if start.len() < self.0.len() { "…" } else { "" };
        write!(f, "{:?}{more}", String::from_utf8_lossy(start))
    }
}

/// Returns the slot of a key on a cluster: of the text in its first braces, unless that is empty.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        memchr::memchr(b'}', rest).filter(|&close| close > 0).map(|close| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// Computes CRC16/XMODEM, from which Redis Cluster derives slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

fn escape(text: &mut String, part: &str) {
    let special = |c: char| c.is_control() || matches!(c, '{' | '}' | '|' | '=' | '#' | '%');
    let mut rest = part;
    while let Some(at) = rest.find(special) {
        let (plain, from) = rest.split_at(at);
        text.push_str(plain);
        let mut chars = from.chars();
        let c = chars.next().unwrap_or_default();
        let mut bytes = [0; 4];
        for byte in c.encode_utf8(&mut bytes).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        rest = chars.as_str();
    }
    text.push_str(rest);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::limit::{Limit, Unit};

    #[test]
    fn logged_keys_are_one_line_and_truncated() {
        let logged = |key: &[u8]| EscapedKey(key).to_string();
        assert_eq!(logged("weir:{a|b=é}f60".as_bytes()), "\"weir:{a|b=é}f60\"");
        assert_eq!(logged(b"a\n\x1b[2J\"\xff"), "\"a\\n\\u{1b}[2J\\\"\u{fffd}\"");
        assert_eq!(logged(&[b'x'; 300]), format!("\"{}\"…", "x".repeat(256)));
    }

    fn plan(unit: Unit) -> Plan {
        Plan::new(vec![Limit::fixed_window(1, unit, 1).unwrap()])
    }

    fn text(domain: &str, entries: &[(&str, &str)]) -> String {
        let key = write("weir:", &Key { domain, entries }, &plan(Unit::Minute));
        String::from_utf8(key.into()).unwrap()
    }

    #[test]
    fn keys_are_readable() {
        assert_eq!(text("shop", &[("api_key", "alice")]), "weir:{shop|api_key=alice}f60");
        assert_eq!(text("shop", &[("käse", ""), ("a", "b")]), "weir:{shop|käse=|a=b}f60");
    }

    #[test]
    fn values_cannot_close_the_braces_or_collide() {
        assert_eq!(text("a{b}", &[("|", "\n%")]), "weir:{a%7Bb%7D|%7C=%0A%25}f60");
        let long = "x".repeat(1 << 20);
        let other = format!("{long}y");
        let parts = ["", "a", "a|b", "a=b", "=", "|", "{", "}", "%7B", "#", "\0", "\u{85}"];
        let parts: Vec<&str> = parts.into_iter().chain([long.as_str(), other.as_str()]).collect();
        let mut seen = HashMap::new();
        let mut check = |domain, entries: &[(&str, &str)]| {
            let key = text(domain, entries);
            assert!(key.len() < 260 && key.matches('{').count() == 1, "{key}");
            assert_eq!(key.matches('}').count(), 1, "{key}");
            let written = format!("{domain:?}{entries:?}");
            if let Some(other) = seen.insert(key.clone(), written.clone()) {
                panic!("{key}: {other:.99} and {written:.99}");
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
    fn keys_differ_by_shape() {
        let key = Key { domain: "d", entries: &[] };
        assert_ne!(write("", &key, &plan(Unit::Minute)), write("", &key, &plan(Unit::Hour)),);
    }

    #[test]
    fn writes_the_keys_of_the_reference() {
        let of = |domain, entries: &[(&str, &str)], period, now| {
            let key = write_reference("", &Key { domain, entries }, period, now);
            String::from_utf8(key.into()).unwrap()
        };
        let second = crate::limit::SECOND;
        assert_eq!(
            of("domain", &[("key", "value")], second, 1_234 * second),
            "domain_key_value_1234"
        );
        let entries = [("key2", "value2"), ("subkey2", "subvalue2")];
        let now = 1_234 * second + 5;
        assert_eq!(
            of("domain", &entries, 60 * second, now),
            "domain_key2_value2_subkey2_subvalue2_1200"
        );
        assert_eq!(of("d", &[("k", "")], second, now), "d_k__1234");
    }

    #[test]
    fn computes_slots_as_redis_does() {
        // From `CLUSTER KEYSLOT`.
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"weir:{foo}f60"), 12_182);
        assert_eq!(slot(b"{}foo"), slot(b"{}foo"));
        assert_ne!(slot(b"{}foo"), slot(b"foo"));
        assert_eq!(slot(b"123456789"), 12_739);
    }
}

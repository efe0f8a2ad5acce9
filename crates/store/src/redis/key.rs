//! The keys of the reference, keys in the log, and slots of a cluster.

use std::fmt::{self, Write};

use crate::Key;
use weir_limit::Micros;

/// The most bytes of a key in a log line: enough for every key but those of the reference's layout and
/// those with a long prefix.
const MAX_LOGGED: usize = 256;

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
    let _ = write!(text, "{}", (now - now % period) / weir_limit::SECOND);
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

/// Returns what decides the server of a key: the text in its first braces, unless that is empty.
pub(super) fn tag(key: &[u8]) -> &[u8] {
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        memchr::memchr(b'}', rest).filter(|&close| close > 0).map(|close| &rest[..close])
    });
    tag.unwrap_or(key)
}

/// Returns the slot of a key on a cluster.
pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_keys_are_one_line_and_truncated() {
        let logged = |key: &[u8]| EscapedKey(key).to_string();
        assert_eq!(logged("weir:{a|b=é}f60".as_bytes()), "\"weir:{a|b=é}f60\"");
        assert_eq!(logged(b"a\n\x1b[2J\"\xff"), "\"a\\n\\u{1b}[2J\\\"\u{fffd}\"");
        assert_eq!(logged(&[b'x'; 300]), format!("\"{}\"…", "x".repeat(256)));
    }

    #[test]
    fn writes_the_keys_of_the_reference() {
        let of = |domain, entries: &[(&str, &str)], period, now| {
            let key = write_reference("", &Key { domain, entries }, period, now);
            String::from_utf8(key.into()).unwrap()
        };
        let second = weir_limit::SECOND;
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

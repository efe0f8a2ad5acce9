//! Names of keys in Redis and their cluster slots, and keys as log lines show them.

use std::fmt;

use weir_common::random::random_bytes;
use weir_common::truncate::truncated;
use weir_store::id_text;

/// Returns the key of the holds of a key: its hits in flight by the id of their request.
pub(super) fn holds_key(key: &[u8]) -> Vec<u8> {
    [key, b":holds"].concat()
}

/// Returns the key of what an id has reserved of a key: in the slot of the key.
pub(super) fn record_key(key: &[u8], id: &str) -> Box<[u8]> {
    [key, b":r:", id_text(id).as_bytes()].concat().into()
}

/// Returns the key of when a key was reset, as the scripts name it: in the slot of the key.
pub(super) fn reset_key(key: &[u8]) -> Vec<u8> {
    [key, b":reset"].concat()
}

/// The most bytes of a key in a log line: enough for every key but those with a long prefix, and long ones of domains
/// with `charge: together`.
const MAX_LOGGED_BYTES: usize = 256;

/// Bytes for a log line: truncated, and escaped so that they cannot end the line or move the cursor.
#[derive(Debug)]
pub(super) struct EscapedKey<'k>(pub &'k [u8]);

impl fmt::Display for EscapedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", truncated(String::from_utf8_lossy(self.0), MAX_LOGGED_BYTES))
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

/// Draws 16 random hexadecimal digits, for a key that nobody else has.
pub(super) fn random_hex() -> String {
    format!("{:016x}", u64::from_le_bytes(random_bytes()))
}

pub(super) fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

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
        assert_eq!(logged(&[b'x'; 300]), format!("\"{}…\"", "x".repeat(253)));
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

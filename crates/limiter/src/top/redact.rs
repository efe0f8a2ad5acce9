//! Hashes in place of values that are secret.

use std::fmt::{self, Write};

use parking_lot::RwLock;

use weir_common::entry::Entry;
use weir_common::random::random_bytes;

/// Bytes of a shown hash.
const HASH_BYTES: usize = 8;

/// Bytes of the secret.
const SECRET_BYTES: usize = 32;

/// What the id of a secret is the hash of.
const ID_INPUT: &[u8] = b"id of this secret";

/// Replaces the values of some descriptor keys by a hash with a secret: equal values have equal hashes, as long
/// as the secret is the same. It is one of this process, until it adopts that which replicas share.
pub struct Redaction {
    keys: Vec<String>,
    secret: RwLock<[u8; SECRET_BYTES]>,
}

impl Redaction {
    /// Returns the redaction of the values of these descriptor keys, with a new secret.
    pub fn new(keys: Vec<String>) -> Redaction {
        Redaction { keys, secret: RwLock::new(random_bytes()) }
    }

    /// The descriptor keys whose values are replaced.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the value of an entry as it may be shown. `tag` distinguishes values that are cut; 0 for
    /// others.
    pub fn value(&self, (name, value): Entry<'_>, tag: u64) -> String {
        if !self.hides((name, value)) {
            return value.to_owned();
        }
        // Of a value that is cut, only a part is known.
        format!("hash:{}", self.hash(&[value.as_bytes(), &tag.to_le_bytes()]))
    }

    /// Returns the path of a rule as it may be shown. It repeats the values that the rule names: it
    /// ends at the first that is hidden, because one that is cut cannot be found in it.
    pub fn path(&self, path: &str, entries: &[Entry<'_>], tag: u64) -> String {
        let mut path = path.to_owned();
        for (name, value) in entries.iter().filter(|entry| self.hides(**entry)) {
            if let Some((before, _)) = path.split_once(&format!("{name}_")) {
                path = format!("{before}{name}_{}", self.value((name, value), tag));
            }
        }
        path
    }

    /// Returns what identifies a key that is cut, as it may leave the process; empty for others.
    pub(super) fn tag(&self, tag: u64) -> String {
        if tag == 0 { String::new() } else { self.hash(&[&tag.to_le_bytes()]) }
    }

    /// Returns the secret as hexadecimal digits.
    pub(super) fn secret(&self) -> String {
        hex(&*self.secret.read())
    }

    /// Returns what identifies the secret, and does not show it.
    pub(super) fn secret_id(&self) -> String {
        self.hash(&[ID_INPUT])
    }

    /// Replaces the secret by that with these digits. Returns whether they are one.
    pub(super) fn adopt(&self, digits: &str) -> bool {
        let mut secret = [0; SECRET_BYTES];
        let is_one = digits.len() == 2 * SECRET_BYTES
            && secret.iter_mut().enumerate().all(|(i, byte)| {
                let digits = digits.get(2 * i..2 * i + 2);
                let read = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                read.map(|read| *byte = read).is_some()
            });
        if is_one {
            *self.secret.write() = secret;
        }
        is_one
    }

    fn hash(&self, parts: &[&[u8]]) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret.read());
        for part in parts {
            hasher.update(part);
        }
        hex(&hasher.finalize().as_bytes()[..HASH_BYTES])
    }

    fn hides(&self, (name, value): Entry<'_>) -> bool {
        !value.is_empty() && self.keys.iter().any(|hidden| hidden == name)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Debug for Redaction {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").field("keys", &self.keys).finish_non_exhaustive()
    }
}

//! Hashes in place of values that are secret.

use std::fmt::{self, Write};

use weir_common::entry::Entry;
use weir_common::random::random_bytes;

/// Bytes of a shown hash.
const HASH_BYTES: usize = 8;

/// Replaces the values of some descriptor keys by a hash with a secret of this process: equal values
/// have equal hashes, until it restarts.
pub struct Redaction {
    keys: Vec<String>,
    secret: [u8; 32],
}

impl Redaction {
    /// Returns the redaction of the values of these descriptor keys, with a new secret.
    pub fn new(keys: Vec<String>) -> Redaction {
        Redaction { keys, secret: random_bytes() }
    }

    /// Returns the value of an entry as it may be shown. `tag` distinguishes values that are cut; 0 for
    /// others.
    pub fn value(&self, (name, value): Entry<'_>, tag: u64) -> String {
        if !self.hides((name, value)) {
            return value.to_owned();
        }
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(value.as_bytes());
        // Of a value that is cut, only a part is known.
        hasher.update(&tag.to_le_bytes());
        let mut text = "hash:".to_owned();
        for byte in &hasher.finalize().as_bytes()[..HASH_BYTES] {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
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

    fn hides(&self, (name, value): Entry<'_>) -> bool {
        !value.is_empty() && self.keys.iter().any(|hidden| hidden == name)
    }
}

impl fmt::Debug for Redaction {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction").field("keys", &self.keys).finish_non_exhaustive()
    }
}

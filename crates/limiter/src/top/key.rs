//! The keys of rows: hashed where they are, copied only when a row is made.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use weir_common::entry::Entry;

/// Bytes of a key that a row keeps; a longer one is cut.
const MAX_KEY_BYTES: usize = 512;

/// Bytes of one text of a key that is cut, and of the path of a rule.
const MAX_TEXT_BYTES: usize = 128;

/// Bytes in front of each text: its length.
const LENGTH_BYTES: usize = 2;

/// Bytes of a row's texts: a key, and the path of its rule.
const MAX_BYTES: usize = MAX_KEY_BYTES + LENGTH_BYTES + MAX_TEXT_BYTES;

/// Hashes keys with a secret of its own.
#[derive(Clone, Default)]
pub(super) struct KeyHasher(DefaultHashBuilder);

/// The key of a charge, borrowed from its request. Keys of the same hash are the same: comparing texts
/// would take longer, and of a billion keys one in 10 million takes the place of a listed one.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub domain: &'a str,
    pub entries: &'a [Entry<'a>],
    pub hash: u64,
}

/// The key of a row, its rule's path behind it. Copies share it.
#[derive(Clone, Debug)]
pub(super) struct StoredKey {
    /// The domain, and the key and the value of each entry; then the path of the rule. The length
    /// precedes each.
    bytes: Arc<[u8]>,
    /// Where the entries end.
    entries_end: u16,
    is_cut: bool,
    /// Identifies a key whose texts are cut, in all processes; 0 for others.
    cut_tag: u64,
}

impl KeyHasher {
    #[inline]
    pub fn key<'a>(&self, domain: &'a str, entries: &'a [Entry<'a>]) -> Key<'a> {
        let mut hasher = self.0.build_hasher();
        hasher.write(domain.as_bytes());
        for (key, value) in entries {
            hasher.write(key.as_bytes());
            hasher.write(value.as_bytes());
        }
        Key { domain, entries, hash: hasher.finish() }
    }
}

impl<'a> Key<'a> {
    /// Returns the key of one limit for the same entries. The hash is secret, so that any fixed change
    /// does.
    #[inline]
    pub fn of_limit(&self, limit: u64) -> Key<'a> {
        Key { hash: self.hash ^ limit, ..*self }
    }
}

impl Key<'_> {
    /// Copies the key for a row.
    pub fn store(&self, rule: &str) -> StoredKey {
        let mut bytes = Bytes { bytes: [0; MAX_BYTES], len: 0 };
        let is_cut = self.bytes() > MAX_KEY_BYTES;
        if is_cut {
            self.put_cut(&mut bytes);
        } else {
            bytes.put(self.domain);
            for (key, value) in self.entries {
                bytes.put(key);
                bytes.put(value);
            }
        }
        let entries_end = bytes.len as u16;
        bytes.put_cut(rule);
        StoredKey {
            bytes: Arc::from(bytes.written()),
            entries_end,
            is_cut,
            cut_tag: if is_cut { self.tag() } else { 0 },
        }
    }

    /// Returns a number that is the same in all processes, and not 0.
    #[cold]
    fn tag(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(self.domain);
        for (key, value) in self.entries {
            add(key);
            add(value);
        }
        let hash = hasher.finalize();
        hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1))
    }

    /// Returns the bytes that it takes as a whole.
    fn bytes(&self) -> usize {
        let entries = self.entries.iter();
        let entries = entries.map(|(key, value)| 2 * LENGTH_BYTES + key.len() + value.len());
        LENGTH_BYTES + self.domain.len() + entries.sum::<usize>()
    }

    /// Writes what there is room for, with an ellipsis in place of the rest of a text.
    #[cold]
    fn put_cut(&self, bytes: &mut Bytes) {
        bytes.put_cut(self.domain);
        for (key, value) in self.entries {
            if bytes.len + 2 * (LENGTH_BYTES + MAX_TEXT_BYTES) > MAX_KEY_BYTES {
                break;
            }
            bytes.put_cut(key);
            bytes.put_cut(value);
        }
    }
}

impl StoredKey {
    /// Whether texts are cut, and entries may be omitted.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Identifies a key whose texts are cut; 0 for others.
    pub fn cut_tag(&self) -> u64 {
        self.cut_tag
    }

    /// Returns the domain and the entries.
    pub fn texts(&self) -> (&str, SmallVec<[Entry<'_>; 4]>) {
        let mut rest = self.bytes.get(..usize::from(self.entries_end)).unwrap_or_default();
        let domain = text(take(&mut rest));
        let mut entries = SmallVec::new();
        while !rest.is_empty() {
            entries.push((text(take(&mut rest)), text(take(&mut rest))));
        }
        (domain, entries)
    }

    /// Returns the path of the rule; empty if there was none.
    pub fn rule(&self) -> &str {
        let mut rest = self.bytes.get(usize::from(self.entries_end)..).unwrap_or_default();
        text(take(&mut rest))
    }
}

/// The texts of a row, written one behind the other.
struct Bytes {
    bytes: [u8; MAX_BYTES],
    len: usize,
}

impl Bytes {
    /// Writes a text of up to [`MAX_KEY_BYTES`] bytes.
    #[inline]
    fn put(&mut self, text: &str) {
        self.write(&(text.len() as u16).to_le_bytes());
        self.write(text.as_bytes());
    }

    /// Writes a text that takes up to [`MAX_TEXT_BYTES`]: a longer one ends in an ellipsis.
    fn put_cut(&mut self, text: &str) {
        let (text, ellipsis) = cut(text);
        self.write(&((text.len() + ellipsis.len()) as u16).to_le_bytes());
        self.write(text.as_bytes());
        self.write(ellipsis.as_bytes());
    }

    /// Writes bytes, for which there is room.
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.len..end) {
            room.copy_from_slice(bytes);
            self.len = end;
        }
    }

    fn written(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Returns a text as a row has it: the beginning, and an ellipsis if that is not all of it.
pub(super) fn cut(text: &str) -> (&str, &'static str) {
    const ELLIPSIS: &str = "…";
    if text.len() <= MAX_TEXT_BYTES {
        return (text, "");
    }
    (
        text.get(..text.floor_char_boundary(MAX_TEXT_BYTES - ELLIPSIS.len())).unwrap_or_default(),
        ELLIPSIS,
    )
}

/// Takes the next text; empty at the end.
fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return &[] };
    let Some((text, behind)) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))
    else {
        return &[];
    };
    *rest = behind;
    text
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

//! The keys of rows: hashed and compared where they are, copied only when a row is made.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use crate::entry::Entry;

/// Bytes of a key that a row keeps; a longer one is cut, and known by two hashes.
const MAX_KEY_BYTES: usize = 512;

/// Bytes of one text of a key that is cut, and of the path of a rule.
const MAX_TEXT_BYTES: usize = 128;

/// Bytes in front of each text: its length.
const LENGTH_BYTES: usize = 2;

/// Hashes keys with a secret of its own.
#[derive(Clone, Default)]
pub(super) struct KeyHasher {
    hash: DefaultHashBuilder,
    tag: DefaultHashBuilder,
}

/// The key of a charge, borrowed from its request.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub domain: &'a str,
    pub entries: &'a [Entry<'a>],
    /// The shape of the plan and the index of the limit, where rows differ by them.
    limit: (&'a str, u8),
    pub hash: u64,
    /// A second hash of a long key, never 0; 0 for others.
    tag: u64,
}

/// The key of a row, its rule's path behind it. Copies share it.
#[derive(Clone, Debug)]
pub(super) struct StoredKey {
    /// The domain, and the key and the value of each entry; then the shape of the plan; then the path
    /// of the rule. The length precedes each.
    bytes: Arc<[u8]>,
    /// Where the entries end.
    entries_end: u16,
    /// The index of the limit.
    limit: u8,
    /// That of the key. If it is not 0, texts are cut.
    tag: u64,
}

impl KeyHasher {
    #[inline]
    pub fn key<'a>(&self, domain: &'a str, entries: &'a [Entry<'a>]) -> Key<'a> {
        let (hash, bytes) = hash(&self.hash, domain, entries);
        let tag = if bytes > MAX_KEY_BYTES { tag(&self.tag, domain, entries) } else { 0 };
        Key { domain, entries, limit: ("", 0), hash, tag }
    }

    /// Returns the key of one limit of a plan for the same entries.
    #[inline]
    pub fn limit_key<'a>(&self, key: &Key<'a>, shape: &'a str, limit: u8) -> Key<'a> {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u64(key.hash);
        hasher.write_u64(u64::from(limit));
        hasher.write(shape.as_bytes());
        Key { limit: (shape, limit), hash: hasher.finish(), ..*key }
    }
}

/// Returns the hash of a key, and the bytes that it would take.
#[inline]
fn hash(builder: &DefaultHashBuilder, domain: &str, entries: &[Entry<'_>]) -> (u64, usize) {
    let mut hasher = builder.build_hasher();
    hasher.write(domain.as_bytes());
    let mut bytes = LENGTH_BYTES + domain.len();
    for (key, value) in entries {
        hasher.write(key.as_bytes());
        hasher.write(value.as_bytes());
        bytes += 2 * LENGTH_BYTES + key.len() + value.len();
    }
    (hasher.finish(), bytes)
}

#[cold]
fn tag(builder: &DefaultHashBuilder, domain: &str, entries: &[Entry<'_>]) -> u64 {
    hash(builder, domain, entries).0.max(1)
}

impl Key<'_> {
    /// Copies the key for a row.
    pub fn store(&self, rule: &str) -> StoredKey {
        let mut bytes = Bytes::new();
        let (shape, limit) = self.limit;
        if self.tag == 0 {
            put(self.domain, &mut bytes);
            for (key, value) in self.entries {
                put(key, &mut bytes);
                put(value, &mut bytes);
            }
        } else {
            self.put_cut(&mut bytes);
        }
        let entries_end = bytes.len() as u16;
        put(shape, &mut bytes);
        put_cut(rule, MAX_TEXT_BYTES, &mut bytes);
        StoredKey { bytes: Arc::from(&*bytes), entries_end, limit, tag: self.tag }
    }

    /// Writes what there is room for, with an ellipsis in place of the rest of a text.
    #[cold]
    fn put_cut(&self, bytes: &mut Bytes) {
        put_cut(self.domain, MAX_TEXT_BYTES, bytes);
        for (key, value) in self.entries {
            if bytes.len() + 2 * (LENGTH_BYTES + MAX_TEXT_BYTES) > MAX_KEY_BYTES {
                break;
            }
            put_cut(key, MAX_TEXT_BYTES, bytes);
            put_cut(value, MAX_TEXT_BYTES, bytes);
        }
    }
}

impl StoredKey {
    #[inline]
    pub fn is(&self, key: &Key<'_>) -> bool {
        let (shape, limit) = key.limit;
        if self.tag != key.tag || self.limit != limit {
            return false;
        }
        let mut rest = &*self.bytes;
        if self.tag == 0 {
            let mut is = is_same(take(&mut rest), key.domain.as_bytes());
            for (key, value) in key.entries {
                is = is
                    && is_same(take(&mut rest), key.as_bytes())
                    && is_same(take(&mut rest), value.as_bytes());
            }
            if !is || self.bytes.len() - rest.len() != usize::from(self.entries_end) {
                return false;
            }
        } else {
            rest = self.bytes.get(usize::from(self.entries_end)..).unwrap_or_default();
        }
        shape.is_empty() || is_same(take(&mut rest), shape.as_bytes())
    }

    /// Returns whether it is the key of another row, of the same hash.
    pub fn is_same(&self, other: &StoredKey) -> bool {
        let identity = |key: &StoredKey| {
            let mut rest = key.bytes.get(usize::from(key.entries_end)..).unwrap_or_default();
            take(&mut rest);
            key.bytes.len() - rest.len()
        };
        (self.tag, self.limit, self.entries_end) == (other.tag, other.limit, other.entries_end)
            && self.bytes[..identity(self)] == other.bytes[..identity(other)]
    }

    /// Whether texts are cut, and entries may be left out.
    pub fn is_cut(&self) -> bool {
        self.tag != 0
    }

    /// Identifies a key whose texts are cut.
    pub fn tag(&self) -> u64 {
        self.tag
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
        take(&mut rest);
        text(take(&mut rest))
    }
}

type Bytes = SmallVec<[u8; 256]>;

/// Writes a text of up to [`MAX_KEY_BYTES`] bytes.
fn put(text: &str, bytes: &mut Bytes) {
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Writes a text that takes up to `max` bytes: a longer one ends in an ellipsis.
fn put_cut(text: &str, max: usize, bytes: &mut Bytes) {
    const ELLIPSIS: &str = "…";
    if text.len() <= max {
        return put(text, bytes);
    }
    let mut end = max - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.extend_from_slice(&((end + ELLIPSIS.len()) as u16).to_le_bytes());
    bytes.extend_from_slice(&text.as_bytes()[..end]);
    bytes.extend_from_slice(ELLIPSIS.as_bytes());
}

/// Takes the next text; empty at the end.
#[inline]
fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return &[] };
    let Some((text, behind)) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))
    else {
        return &[];
    };
    *rest = behind;
    text
}

/// Compares two texts. Most are short: without a call, that takes half the time.
#[inline(always)]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    fn is_same_at_ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
        a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
    }
    a.len() == b.len()
        && match a.len() {
            8..=16 => is_same_at_ends::<8>(a, b),
            4..8 => is_same_at_ends::<4>(a, b),
            2..4 => is_same_at_ends::<2>(a, b),
            _ => a == b,
        }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

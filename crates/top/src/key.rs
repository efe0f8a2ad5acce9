//! The texts of a row of top keys: the key that it counts, and the path of its rule. They are copied when it is made.

use std::sync::Arc;

use smallvec::SmallVec;

use weir_common::entry::Entry;
use weir_common::truncate;

/// Bytes of a key that a row keeps; a longer one is cut.
const MAX_KEY_BYTES: usize = 512;

/// Bytes of one text of a key that is cut, and of the path of a rule.
const MAX_TEXT_BYTES: usize = 128;

/// Bytes in front of each text: its length.
const LENGTH_BYTES: usize = 2;

/// Bytes of a row's texts: a key, and the path of its rule.
const MAX_BYTES: usize = MAX_KEY_BYTES + LENGTH_BYTES + MAX_TEXT_BYTES;

/// The key of a row, its rule's path behind it. Copies share it.
#[derive(Clone, Debug)]
pub(super) struct RowKey {
    /// The domain, and the key and the value of each entry; then the path of the rule. The length
    /// precedes each.
    bytes: Arc<[u8]>,
    /// Where the entries end.
    entries_end: u16,
    /// Identifies a key whose texts are cut, in all processes; 0 for others.
    pub cut_tag: u64,
}

impl RowKey {
    pub fn new(domain: &str, entries: &[Entry<'_>], rule: &str) -> RowKey {
        let mut bytes = Bytes { bytes: [0; MAX_BYTES], len: 0 };
        let is_cut = key_bytes(domain, entries) > MAX_KEY_BYTES;
        if is_cut {
            bytes.put_cut_key(domain, entries);
        } else {
            bytes.put(domain);
            for (key, value) in entries {
                bytes.put(key);
                bytes.put(value);
            }
        }
        let entries_end = bytes.len as u16;
        bytes.put_cut(rule);
        let cut_tag = if is_cut { tag(domain, entries) } else { 0 };
        RowKey { bytes: Arc::from(bytes.written()), entries_end, cut_tag }
    }

    /// Whether texts are cut, and entries may be omitted.
    pub fn is_cut(&self) -> bool {
        self.cut_tag > 0
    }

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

/// Returns a number that identifies a key in all processes, and is not 0.
#[cold]
fn tag(domain: &str, entries: &[Entry<'_>]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    let entries = entries.iter().flat_map(|(key, value)| [*key, *value]);
    for text in std::iter::once(domain).chain(entries) {
        hasher.update(&text.len().to_le_bytes());
        hasher.update(text.as_bytes());
    }
    let hash = hasher.finalize();
    hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes).max(1))
}

/// Returns the bytes that a key takes as a whole.
fn key_bytes(domain: &str, entries: &[Entry<'_>]) -> usize {
    let entries = entries.iter();
    let entries = entries.map(|(key, value)| 2 * LENGTH_BYTES + key.len() + value.len());
    LENGTH_BYTES + domain.len() + entries.sum::<usize>()
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

    /// Writes as much of a key as there is room for, with an ellipsis in place of the rest of a text.
    #[cold]
    fn put_cut_key(&mut self, domain: &str, entries: &[Entry<'_>]) {
        self.put_cut(domain);
        for (key, value) in entries {
            if self.len + 2 * (LENGTH_BYTES + MAX_TEXT_BYTES) > MAX_KEY_BYTES {
                break;
            }
            self.put_cut(key);
            self.put_cut(value);
        }
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
    truncate::parts(text, MAX_TEXT_BYTES)
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

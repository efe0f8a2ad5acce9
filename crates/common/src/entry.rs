//! The entries of descriptors.

use serde::{Deserialize, Serialize};

/// A descriptor entry: its key and its value.
pub type Entry<'a> = (&'a str, &'a str);

/// A descriptor entry with texts of its own; in JSON `{"key":"user","value":"ann"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OwnedEntry {
    pub key: String,
    pub value: String,
}

impl OwnedEntry {
    /// Returns copies of entries.
    pub fn copied<'e>(entries: impl IntoIterator<Item = Entry<'e>>) -> Vec<OwnedEntry> {
        entries.into_iter().map(OwnedEntry::from).collect()
    }
}

impl<T: Into<String>> From<(T, T)> for OwnedEntry {
    fn from((key, value): (T, T)) -> OwnedEntry {
        OwnedEntry { key: key.into(), value: value.into() }
    }
}

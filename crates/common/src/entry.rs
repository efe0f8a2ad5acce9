//! The entries of rate-limit descriptors, key and value, borrowed or owned; and their JSON.

use serde::{Deserialize, Serialize};

use crate::value;

/// A descriptor entry: its key, and its value as [text](crate::value).
pub type Entry<'a> = (&'a str, &'a str);

/// Returns the text of an entry in the name of a rule: `key`, or `key_value` if the rule names a value.
pub fn rule_text((key, value): Entry<'_>) -> String {
    match value {
        "" => key.to_owned(),
        _ => format!("{key}_{value}"),
    }
}

/// A descriptor entry that owns its strings; in JSON `{"key":"user","value":"ann"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "JsonEntry", into = "JsonEntry")]
pub struct OwnedEntry {
    pub key: String,
    pub value: String,
}

impl OwnedEntry {
    pub fn copied<'e>(entries: impl IntoIterator<Item = Entry<'e>>) -> Vec<OwnedEntry> {
        entries.into_iter().map(OwnedEntry::from).collect()
    }
}

impl<T: Into<String>> From<(T, T)> for OwnedEntry {
    fn from((key, value): (T, T)) -> OwnedEntry {
        OwnedEntry { key: key.into(), value: value.into() }
    }
}

#[derive(Serialize, Deserialize)]
struct JsonEntry {
    key: String,
    value: String,
    /// Whether the value is [shown with escapes](value::shown).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    escaped: bool,
}

impl From<OwnedEntry> for JsonEntry {
    fn from(OwnedEntry { key, value }: OwnedEntry) -> JsonEntry {
        match value::is_encoded(&value) {
            true => JsonEntry { key, value: value::shown(&value).into_owned(), escaped: true },
            false => JsonEntry { key, value, escaped: false },
        }
    }
}

impl From<JsonEntry> for OwnedEntry {
    fn from(JsonEntry { key, value, escaped }: JsonEntry) -> OwnedEntry {
        match escaped {
            true => OwnedEntry { key, value: value::read_shown(&value) },
            false => OwnedEntry { key, value: value::encode(value.as_bytes()).into_owned() },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_json_of_bytes_differs_from_that_of_text() {
        let json = |value: &[u8]| {
            let entry = OwnedEntry::from(("k".to_owned(), value::encode(value).into_owned()));
            serde_json::to_string(&entry).unwrap()
        };
        assert_eq!(json(br"a\xff"), r#"{"key":"k","value":"a\\xff"}"#);
        assert_eq!(json(b"a\xff"), r#"{"key":"k","value":"a\\xff","escaped":true}"#);
    }

    proptest! {
        #[test]
        fn json_keeps_every_value(value in prop::collection::vec(any::<u8>(), 0..6)) {
            let entry = OwnedEntry::from(("k".to_owned(), value::encode(&value).into_owned()));
            let json = serde_json::to_string(&entry).unwrap();
            prop_assert_eq!(serde_json::from_str::<OwnedEntry>(&json).unwrap(), entry);
        }
    }
}

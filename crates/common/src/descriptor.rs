//! Descriptors as text: `key=value,key2=value2`.

use std::str::FromStr;

use crate::entry::Entry;

/// The entries of a descriptor, as an argument or a URL has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorArg(pub Vec<(String, String)>);

impl DescriptorArg {
    /// Returns the entries as look-ups take them.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        self.0.iter().map(|(key, value)| (&**key, &**value)).collect()
    }
}

impl FromStr for DescriptorArg {
    type Err = String;

    /// Parses entries with commas between them. The first `=` of an entry ends its key; without one, the
    /// value is empty. `\,` is a comma and `\\` a backslash.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write instead.
    fn from_str(text: &str) -> Result<DescriptorArg, String> {
        let mut entries = Vec::new();
        let (mut key, mut part) = (None, String::new());
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            match next {
                '\\' => match chars.next() {
                    Some(escaped @ (',' | '\\')) => part.push(escaped),
                    Some(other) => {
                        return Err(format!(
                            "`\\{other}` is no escape: write `\\\\` for a backslash, or `\\,` for a comma"
                        ));
                    }
                    None => {
                        return Err("the last backslash escapes nothing: write `\\\\`".to_owned());
                    }
                },
                '=' if key.is_none() => key = Some(std::mem::take(&mut part)),
                ',' => entries.push(entry(key.take(), std::mem::take(&mut part))?),
                other => part.push(other),
            }
        }
        entries.push(entry(key, part)?);
        Ok(DescriptorArg(entries))
    }
}

/// Returns a descriptor as an argument has it.
pub fn descriptor_text(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    write_descriptor(entries, &mut text);
    text
}

/// Appends a descriptor as an argument has it.
pub fn write_descriptor(entries: &[Entry<'_>], out: &mut String) {
    for (i, (key, value)) in entries.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        write_escaped(key, out);
        out.push('=');
        write_escaped(value, out);
    }
}

fn write_escaped(text: &str, out: &mut String) {
    for part in text.split_inclusive([',', '\\']) {
        let (before, last) = part.split_at(part.len() - usize::from(part.ends_with([',', '\\'])));
        out.push_str(before);
        if !last.is_empty() {
            out.push('\\');
        }
        out.push_str(last);
    }
}

fn entry(key: Option<String>, part: String) -> Result<(String, String), String> {
    let (key, value) = match key {
        Some(key) => (key, part),
        None => (part, String::new()),
    };
    if key.is_empty() {
        return Err("an entry has no key: write key=value, with commas between entries".to_owned());
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        text.parse::<DescriptorArg>().map(|descriptor| descriptor.0)
    }

    fn written(entries: &[(String, String)]) -> String {
        let entries: Vec<Entry<'_>> =
            entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        descriptor_text(&entries)
    }

    #[test]
    fn entries_have_keys_and_values() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        for (text, expected) in [
            ("path=/a", vec![pair("path", "/a")]),
            ("a=1,b=2", vec![pair("a", "1"), pair("b", "2")]),
            ("query=a=b", vec![pair("query", "a=b")]),
            (r"a=1\,2,b=\\", vec![pair("a", "1,2"), pair("b", r"\")]),
            ("a,b=", vec![pair("a", ""), pair("b", "")]),
        ] {
            assert_eq!(parsed(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, cause) in [
            ("", "no key"),
            ("=1", "no key"),
            ("a=1,", "no key"),
            (r"a=\n", r"`\n`"),
            (r"a=\", "backslash"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(cause), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn all_entries_can_be_written(entries in prop::collection::vec(("[^=]{1,4}", "\\PC{0,6}"), 1..4)) {
            prop_assert_eq!(parsed(&written(&entries)).unwrap(), entries);
        }
    }
}

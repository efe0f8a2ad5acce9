//! Patterns in which `*` stands for any text, also none: rules, and what operators send, match values with them.

use memchr::memmem;

use crate::value::content;

/// A pattern, ready to be compared with texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glob {
    /// A pattern without a star.
    Text(Box<str>),
    /// The literal parts around the stars.
    Parts(Box<[Box<str>]>),
}

impl Glob {
    /// Reads a pattern, in which `*` stands for any text.
    pub fn new(text: &str) -> Glob {
        if text.contains('*') { Glob::Parts(parts(content(text))) } else { Glob::Text(text.into()) }
    }

    /// Returns the only text that it matches, if there is only one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Glob::Text(text) => Some(text),
            Glob::Parts(_) => None,
        }
    }

    /// Returns whether the pattern matches the whole text.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Glob::Text(wanted) => **wanted == *text,
            Glob::Parts(parts) => has_parts(content(text), parts),
        }
    }
}

/// Returns the literal parts around the stars of a text that has some; adjacent stars count as one.
pub fn parts(text: &str) -> Box<[Box<str>]> {
    let last = text.matches('*').count();
    let is_needed = |&(i, part): &(usize, &str)| i == 0 || i == last || !part.is_empty();
    text.split('*').enumerate().filter(is_needed).map(|(_, part)| part.into()).collect()
}

/// Returns whether a text consists of these parts in order, with any text between them. Linear, whatever clients send.
pub fn has_parts(text: &str, parts: &[Box<str>]) -> bool {
    parts.split_first().is_some_and(|(first, others)| has_parts_after(text, first, others))
}

/// Returns the same as [`has_parts`], of the first part and the others.
pub fn has_parts_after(text: &str, first: &str, others: &[Box<str>]) -> bool {
    let [middle @ .., last] = others else { return false };
    let inner = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(&**last));
    let Some(mut rest) = inner else { return false };
    for part in middle {
        // The first place of a part is as good as any later one: more text follows it.
        match memmem::find(rest.as_bytes(), part.as_bytes()) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let matches = |pattern: &str, value: &str| Glob::new(pattern).matches(value);
        for (pattern, value) in [
            ("", ""),
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a**c", "abc"),
            ("10.*.3", "10.2.3"),
            ("*a*a*", "aba"),
            ("ä*ü", "äöü"),
        ] {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [
            ("", "a"),
            ("a", "ab"),
            ("a*a", "a"),
            ("a*c", "acb"),
            ("*b*b*", "abc"),
            ("*a*a*", "a"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern, value), "{pattern} {value}");
        }
    }

    /// Matches by trying every text for each star.
    fn naive(pattern: &[u8], value: &[u8]) -> bool {
        match pattern {
            [] => value.is_empty(),
            [b'*', pattern @ ..] => (0..=value.len()).any(|at| naive(pattern, &value[at..])),
            [first, pattern @ ..] => value.first() == Some(first) && naive(pattern, &value[1..]),
        }
    }

    proptest! {
        #[test]
        fn matches_what_trying_every_text_matches(
            pattern in "[ab*]{0,6}",
            value in "[ab]{0,8}",
        ) {
            let matches = Glob::new(&pattern).matches(&value);
            prop_assert_eq!(matches, naive(pattern.as_bytes(), value.as_bytes()));
        }
    }
}

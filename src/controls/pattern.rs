//! Values of a control's entries, where `*` stands for any text.

use memchr::memmem;

/// The value of an entry, ready to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValuePattern {
    Exact(Box<str>),
    /// The literal parts around the stars: at least two.
    Wildcard(Box<[Box<str>]>),
}

impl ValuePattern {
    pub fn new(text: &str) -> ValuePattern {
        if !text.contains('*') {
            return ValuePattern::Exact(text.into());
        }
        let last = text.matches('*').count();
        let is_needed = |&(i, part): &(usize, &str)| i == 0 || i == last || !part.is_empty();
        let parts = text.split('*').enumerate().filter(is_needed);
        ValuePattern::Wildcard(parts.map(|(_, part)| part.into()).collect())
    }

    /// Returns whether a value matches. Linear, whatever a client sends.
    pub fn matches(&self, value: &str) -> bool {
        let parts = match self {
            ValuePattern::Exact(text) => return **text == *value,
            ValuePattern::Wildcard(parts) => parts,
        };
        let [first, middle @ .., last] = &**parts else { return false };
        let rest = value.strip_prefix(&**first);
        let Some(mut rest) = rest.and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        for part in middle {
            match memmem::find(rest.as_bytes(), part.as_bytes()) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        let matches = |pattern: &str, value: &str| ValuePattern::new(pattern).matches(value);
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
            ("ä*ü", "äöü"),
        ] {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in
            [("", "a"), ("a", "ab"), ("a*a", "a"), ("a*c", "acb"), ("*b*b*", "abc"), ("A", "a")]
        {
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
            value in "[ab]{0,6}",
        ) {
            let matches = ValuePattern::new(&pattern).matches(&value);
            prop_assert_eq!(matches, naive(pattern.as_bytes(), value.as_bytes()));
        }
    }
}

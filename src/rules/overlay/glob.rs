//! Patterns of `match`: `*` stands for any text, also none.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rules) enum Glob {
    Any,
    Text(Box<str>),
    /// The literal parts around the stars: at least two.
    Parts(Box<[Box<str>]>),
}

impl Glob {
    pub fn new(pattern: &str) -> Glob {
        let parts: Vec<&str> = pattern.split('*').collect();
        match parts[..] {
            [text] => Glob::Text(text.into()),
            _ if parts.iter().all(|part| part.is_empty()) => Glob::Any,
            _ => Glob::Parts(parts.into_iter().map(Into::into).collect()),
        }
    }

    /// The only text that it matches, if there is only one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Glob::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn matches(&self, text: &str) -> bool {
        let parts = match self {
            Glob::Any => return true,
            Glob::Text(wanted) => return **wanted == *text,
            Glob::Parts(parts) => parts,
        };
        let [first, middle @ .., last] = &parts[..] else { return false };
        let Some(mut rest) =
            text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last))
        else {
            return false;
        };
        // The first place of a part is as good as any later one: more text follows it.
        for part in middle {
            let Some(at) = rest.find(&**part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plain way: by recursion.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|i| model(rest, &text[i..])),
            [first, rest @ ..] => text.first() == Some(first) && model(rest, &text[1..]),
        }
    }

    #[test]
    fn a_part_is_not_used_twice() {
        assert!(!Glob::new("*a*a*").matches("a"));
        assert!(Glob::new("*a*a*").matches("aba"));
    }

    proptest! {
        #[test]
        fn matches_what_the_model_matches(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let matched = Glob::new(&pattern).matches(&text);
            prop_assert_eq!(matched, model(pattern.as_bytes(), text.as_bytes()));
        }
    }
}

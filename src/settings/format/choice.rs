//! Choices between words.

use super::{Format, FormatKind};

/// A type with a word for each of its values, in any letter case.
pub trait Choice: Copy + PartialEq + 'static {
    const CHOICES: &'static [(&'static str, Self)];

    /// Returns the word for this value.
    fn word(self) -> &'static str {
        let choice = Self::CHOICES.iter().find(|(_, value)| *value == self);
        choice.map_or("", |(word, _)| word)
    }
}

impl<T: Choice> Format for T {
    type Value = T;
    const KIND: FormatKind =
        FormatKind::Choice(|| T::CHOICES.iter().map(|(word, _)| *word).collect());

    fn parse(text: &str) -> Option<T> {
        let choice = T::CHOICES.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        choice.map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::table::StoreKind;

    #[test]
    fn words_are_read_in_any_letter_case() {
        assert_eq!(StoreKind::parse("Redis"), Some(StoreKind::Redis));
        assert_eq!(StoreKind::parse("disks"), None);
        assert_eq!(StoreKind::Memory.word(), "memory");
    }
}

//! Suggests the right word for a misspelled one, in errors about settings, rules and requests of operators.

/// Returns the word nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|&(distance, _)| distance <= most_edits(word))
        .map(|(_, candidate)| candidate)
}

/// Returns how many characters of a near word may differ: of a short word, one.
fn most_edits(word: &str) -> usize {
    match word.chars().count() {
        0..6 => 1,
        length => 1 + length / 3,
    }
}

/// Suggests words for many misspelled ones, until it has compared so many that more would take too long.
#[derive(Debug)]
pub struct Suggester {
    /// How many more words to compare.
    left: usize,
}

impl Default for Suggester {
    fn default() -> Suggester {
        Suggester { left: 1 << 20 }
    }
}

impl Suggester {
    /// As [`nearest`]; none where comparing all words would take too long.
    pub fn nearest<'a>(
        &mut self,
        word: &str,
        words: impl ExactSizeIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        self.left = self.left.checked_sub(words.len())?;
        nearest(word, words)
    }
}

/// Returns how many characters to change, or to swap with their neighbors; words of more than 100 bytes are never near.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 100 || b.len() > 100 {
        return usize::MAX;
    }
    strsim::osa_distance(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_if_it_is_near() {
        let words = || ["requests_per_unit", "unit", "name"].into_iter();
        assert_eq!(nearest("request_per_unit", words()), Some("requests_per_unit"));
        assert_eq!(nearest("unti", words()), Some("unit"));
        assert_eq!(nearest("burst", words()), None);
        assert_eq!(nearest("rate", words()), None);
        assert_eq!(nearest("nam", words()), Some("name"));
        assert_eq!(nearest("", words()), None);
    }

    #[test]
    fn many_words_get_a_bounded_number_of_comparisons() {
        let names: Vec<String> = (0..1_000).map(|i| format!("name{i}")).collect();
        let (mut suggester, compared) = (Suggester::default(), std::cell::Cell::new(0));
        let mut suggested = 0;
        for _ in 0..1_000_000 {
            let count =
                |name: &'_ String| compared.set(compared.get() + usize::from(!name.is_empty()));
            let words = names.iter().inspect(|name| count(name)).map(String::as_str);
            suggested += usize::from(suggester.nearest("nam999", words).is_some());
        }
        assert_eq!(suggested, 1_048, "the first get suggestions");
        assert_eq!(compared.get(), 1_048_000);
    }
}

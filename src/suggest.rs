//! Suggestions for misspelled words.

/// Returns the word nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|&(distance, _)| distance <= 1 + word.chars().count() / 3)
        .map(|(_, candidate)| candidate)
}

/// Returns the Levenshtein distance of two words; words of more than 100 bytes are never near.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    if a.len() > 100 || b.len() > 100 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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
    }
}

//! Finds denials that are news: the first of each key in a second. Operators see the details of these; all others must
//! cost next to nothing, however many there are.
//!
//! **Bounded.** Of each thread [`MAX_NEWS`] a second are news, of one rule at most half of them. What is forgotten of
//! keys makes some of them news again.

/// The keys that are remembered; a power of two.
const KEYS: usize = 1_024;
const RULES: usize = 64;

/// The most news of a thread in a second.
const MAX_NEWS: u16 = 128;

/// What has been news in this second, on one thread.
#[derive(Debug)]
pub(super) struct News {
    second: u32,
    /// A part of the hash of the last key at its place, and of the second.
    keys: Box<[u32; KEYS]>,
    count: u16,
    /// The news by rule; rules may share a place.
    of_rules: [u16; RULES],
}

impl Default for News {
    fn default() -> News {
        News { second: 0, keys: Box::new([0; KEYS]), count: 0, of_rules: [0; RULES] }
    }
}

impl News {
    /// Returns whether a denial of a key is the first in a second.
    #[inline]
    pub fn is_news(&mut self, hash: u64, rule: &str, second: u32) -> bool {
        let seen = (hash >> 32) as u32 ^ second.wrapping_add(1);
        self.keys.get(hash as usize % KEYS) != Some(&seen) && self.note(hash, rule, second, seen)
    }

    #[cold]
    fn note(&mut self, hash: u64, rule: &str, second: u32, seen: u32) -> bool {
        if self.second != second {
            (self.second, self.count, self.of_rules) = (second, 0, [0; RULES]);
        }
        // A path has the same address as long as the rules are active.
        let of_rule = &mut self.of_rules[rule.as_ptr().addr() / 16 % RULES];
        if self.count >= MAX_NEWS || *of_rule >= MAX_NEWS / 2 {
            return false;
        }
        self.count += 1;
        *of_rule += 1;
        self.keys[hash as usize % KEYS] = seen;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_denial_of_a_key_in_a_second_is_news() {
        let mut news = News::default();
        // Texts at two addresses.
        let (rule, other) = "0123456789abcdef0123456789abcdef".split_at(16);
        let hash = |key: u64| key << 40 | key;
        assert_eq!(
            [0, 0, 1, 1].map(|second| news.is_news(7, rule, second)),
            [true, false, true, false]
        );
        assert!(news.is_news(hash(8), rule, 1) && !news.is_news(7, rule, 1));
        // A flood of keys of one rule leaves room for others.
        let of_rule = (10..10_000).filter(|key| news.is_news(hash(*key), rule, 2)).count();
        assert_eq!(of_rule, usize::from(MAX_NEWS / 2));
        assert!(!news.is_news(hash(20_000), rule, 2) && news.is_news(hash(20_000), other, 2));
        assert!(news.is_news(hash(9), rule, 3));
    }
}

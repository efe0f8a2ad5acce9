//! Finds hot keys, by what was admitted lately: hits of these are leased (charged in Redis ahead of requests).

use crate::memory::fingerprint::Print;
use weir_limit::Micros;

/// The requests that must be admitted within the length of a lease for a key to be hot.
pub(super) const HOT: u64 = 32;

const SLOTS: usize = 64;

/// The counts of keys that share a lock. A slot counts the key with more than half of the recent requests, by Boyer and
/// Moore's majority vote.
#[derive(Debug, Default)]
pub(super) struct HotKeys(Box<[Slot]>);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    print: Print,
    votes: u8,
    recent: Recent,
}

/// The requests of a key that were admitted within the length of a lease, and their hits. What was admitted in the
/// length before counts in proportion to the part of it that is still within one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Recent {
    since: Micros,
    current: Admitted,
    before: Admitted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Admitted {
    pub requests: u64,
    pub hits: u64,
}

impl HotKeys {
    /// Counts an admitted request. Returns what was admitted of its key of late, if the key is hot.
    pub fn add(&mut self, print: &Print, hits: u64, now: Micros, length: Micros) -> Option<Recent> {
        if self.0.is_empty() {
            self.0 = vec![Slot::default(); SLOTS].into();
        }
        let slot = &mut self.0[usize::from(print[0]) % SLOTS];
        if slot.print != *print {
            if slot.votes > 0 {
                slot.votes -= 1;
                return None;
            }
            *slot = Slot { print: *print, ..Slot::default() };
        }
        slot.votes = slot.votes.saturating_add(1).min(2 * HOT as u8);
        slot.recent.add(hits, now, length);
        let Admitted { requests, .. } = slot.recent.within(now, length);
        (requests >= HOT).then(|| std::mem::take(slot).recent)
    }
}

impl Recent {
    pub fn add(&mut self, hits: u64, now: Micros, length: Micros) {
        let passed = now.saturating_sub(self.since);
        if passed >= length.saturating_mul(2) {
            *self = Recent { since: now, ..Recent::default() };
        } else if passed >= length {
            *self =
                Recent { since: self.since + length, before: self.current, ..Recent::default() };
        }
        self.current.requests += 1;
        self.current.hits = self.current.hits.saturating_add(hits);
    }

    /// Returns what was admitted in the `length` before `now`, about.
    pub fn within(&self, now: Micros, length: Micros) -> Admitted {
        let passed = now.saturating_sub(self.since);
        let part = |sum: u64, span: Micros| {
            let weighted = u128::from(sum) * u128::from(span) / u128::from(length.max(1));
            u64::try_from(weighted).unwrap_or(u64::MAX)
        };
        let (newer, older) = match passed.checked_sub(length) {
            None => (length, length - passed),
            // Nothing was added since.
            Some(beyond) => (length.saturating_sub(beyond), 0),
        };
        let sum =
            |newer_sum, older_sum| part(newer_sum, newer).saturating_add(part(older_sum, older));
        Admitted {
            requests: sum(self.current.requests, self.before.requests),
            hits: sum(self.current.hits, self.before.hits),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LENGTH: Micros = 100_000;

    fn print(number: u64) -> Print {
        let mut print = Print::default();
        print[..8].copy_from_slice(&number.to_le_bytes());
        print
    }

    #[test]
    fn a_key_is_hot_from_its_32nd_request_within_the_length() {
        let mut keys = HotKeys::default();
        let mut now = 7 * LENGTH;
        let hot = |keys: &mut HotKeys, now| keys.add(&print(1), 3, now, LENGTH);
        for _ in 0..31 {
            assert_eq!(hot(&mut keys, now), None);
        }
        let recent = hot(&mut keys, now).unwrap();
        assert_eq!(recent.within(now, LENGTH), Admitted { requests: 32, hits: 96 });
        // 31 in each length.
        for _ in 0..310 {
            now += LENGTH / 31 + 1;
            assert_eq!(hot(&mut keys, now), None);
        }
    }

    #[test]
    fn a_hot_key_is_found_among_others_of_its_slot() {
        let mut keys = HotKeys::default();
        let found = (0..100).any(|i| {
            let now = i * 1_500;
            keys.add(&print(1), 1, now, LENGTH).is_some() | {
                let other = print(1 + 256 * (i + 1));
                i % 2 == 0 && keys.add(&other, 1, now, LENGTH).is_some()
            }
        });
        assert!(found);
    }

    /// A length of a lease that passes soon.
    const SHORT: Micros = 100;

    proptest! {
        /// Never more than were added within two lengths, and of even traffic what came within one.
        #[test]
        fn it_is_near_what_came_within_one_length(
            steps in prop::collection::vec((0..250_u64, 1..50_u64), 1..50),
            after in 0..300_u64,
        ) {
            let (mut recent, mut now, mut added) = (Recent::default(), 1_000, Vec::new());
            for (pass, hits) in steps {
                now += pass;
                recent.add(hits, now, SHORT);
                added.push((now, hits));
            }
            now += after;
            let within = |span| {
                let late = added.iter().filter(move |(at, _)| now - at < span);
                late.map(|(_, hits)| hits).sum::<u64>()
            };
            let hits = recent.within(now, SHORT).hits;
            prop_assert!(hits <= within(2 * SHORT), "{hits}");
        }
    }

    #[test]
    fn even_traffic_is_counted_as_it_comes() {
        let mut recent = Recent::default();
        for at in 1_000..1_400 {
            recent.add(2, at, SHORT);
            if at >= 1_100 {
                let Admitted { requests, hits } = recent.within(at, SHORT);
                assert!((99..=101).contains(&requests), "{requests} at {at}");
                assert!((198..=202).contains(&hits), "{hits} at {at}");
            }
        }
        assert_eq!(recent.within(1_700, SHORT), Admitted::default());
    }

    #[test]
    fn the_first_requests_count_at_once() {
        let mut recent = Recent::default();
        for _ in 0..32 {
            recent.add(1, 5_000, SHORT);
        }
        assert_eq!(recent.within(5_000, SHORT), Admitted { requests: 32, hits: 32 });
        assert_eq!(recent.within(5_000 + 2 * SHORT, SHORT), Admitted::default());
    }
}

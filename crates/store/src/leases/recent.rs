//! How much of a key was admitted lately.

use weir_limit::Micros;

/// The requests of a key that were admitted within the length of a lease, and their hits. What was admitted in
/// the length before counts in proportion to the part of it that is still within one length.
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

impl Recent {
    /// Adds a request.
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
        let part = |sum: u64, of: Micros| {
            let weighted = u128::from(sum) * u128::from(of) / u128::from(length.max(1));
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

    const LENGTH: Micros = 100;

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
                recent.add(hits, now, LENGTH);
                added.push((now, hits));
            }
            now += after;
            let within = |span| {
                let late = added.iter().filter(move |(at, _)| now - at < span);
                late.map(|(_, hits)| hits).sum::<u64>()
            };
            let hits = recent.within(now, LENGTH).hits;
            prop_assert!(hits <= within(2 * LENGTH), "{hits}");
        }
    }

    #[test]
    fn even_traffic_is_counted_as_it_comes() {
        let mut recent = Recent::default();
        for at in 1_000..1_400 {
            recent.add(2, at, LENGTH);
            if at >= 1_100 {
                let Admitted { requests, hits } = recent.within(at, LENGTH);
                assert!((99..=101).contains(&requests), "{requests} at {at}");
                assert!((198..=202).contains(&hits), "{hits} at {at}");
            }
        }
        assert_eq!(recent.within(1_700, LENGTH), Admitted::default());
    }

    #[test]
    fn the_first_requests_count_at_once() {
        let mut recent = Recent::default();
        for _ in 0..32 {
            recent.add(1, 5_000, LENGTH);
        }
        assert_eq!(recent.within(5_000, LENGTH), Admitted { requests: 32, hits: 32 });
        assert_eq!(recent.within(5_000 + 2 * LENGTH, LENGTH), Admitted::default());
    }
}

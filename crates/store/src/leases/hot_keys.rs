//! Finds keys that are hot, in a table of fixed size.

use super::recent::{Admitted, Recent};
use crate::memory::fingerprint::Print;
use weir_limit::Micros;

/// The requests that must be admitted within the length of a lease.
pub(super) const HOT: u64 = 32;

/// Keys that are counted at a time.
const SLOTS: usize = 64;

/// The counts of keys that share a lock. A slot counts one key: that which has had more than half of the requests
/// of late, as by Boyer and Moore's majority vote.
#[derive(Debug, Default)]
pub(super) struct HotKeys(Box<[Slot]>);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    print: Print,
    votes: u8,
    recent: Recent,
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

#[cfg(test)]
mod tests {
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
}

//! The counters that a connection has recently seen in an open window: their hits need no script.
//!
//! The script that takes hits of a single fixed window adds them, and checks whether the number is of the
//! current window. Where it is, all that the script did was `INCRBY`. So hits of a key that was seen in a
//! window that is still open are added by a plain `INCRBY`, many keys in one round trip, followed by one
//! `TIME`. The number that comes back names its window, and decides what happens:
//!
//! - **The window of that time, or the next one** (as after a clock stepped back): the script would have
//!   left the same number. The hits are counted, and decided by the number and the time. Where the script
//!   would also have moved the count into the current window, or cut one that is full, the script is
//!   called to do so without charging anything ([*settle*](super::batch::ChargeOp::Settle)).
//! - **A window that is over**: its number no longer affects any decision. The script charges the hits
//!   again, so they are in the current window once.
//! - **No window**: the key did not exist, and such a number affects no decision. The script charges the hits
//!   again, and writes a number with its window and its expiry.
//! - **Not a state**: the hits are subtracted again, and the charge fails.
//!
//! So no open window contains hits twice, unless the clock steps back into the old window just between
//! the two commands: then it has too many hits, never too few. In the last moments of a window another
//! replica may see hits that will be counted in the next one. None of this depends on what is recorded
//! here being right: it only decides whether to try. It is dropped with the connection, so that scripts
//! come first after a failover.
//!
//! A key that `INCRBY` created has no expiry until the script sets one, in a follow-up round trip. Where
//! no request waits for that charge any more, or the connection was lost in between, the key is settled:
//! a number of no window is deleted.

use std::hash::{BuildHasher, RandomState};

use tokio::time::Instant;

use weir_limit::Micros;

/// The most counters that are recorded. One replaces another in the same slot.
const SLOTS: usize = 1 << 16;

/// A window that ends sooner than this is left to the script.
const MIN_REMAINING: Micros = 10_000;

/// Counters and the windows in which they were seen.
#[derive(Debug, Default)]
pub(super) struct OpenWindows {
    hasher: RandomState,
    /// The hash of a key, and the end of its window; allocated for the first one.
    slots: Vec<(u64, Micros)>,
    /// The last reading of the server's clock, and when the reply came.
    clock: Option<(Micros, Instant)>,
}

impl OpenWindows {
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Estimates the current time of the server's clock.
    pub fn estimate_time(&self) -> Option<Micros> {
        let passed = |at: Instant| u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.clock.map(|(time, at)| time.saturating_add(passed(at)))
    }

    /// Records a reading of the server's clock.
    pub fn set_time(&mut self, now: Micros) {
        self.clock = Some((now, Instant::now()));
    }

    /// Returns whether the counter was seen in a window that is not about to end.
    pub fn is_open(&self, hash: u64, now: Micros) -> bool {
        let slot = self.slots.get(hash as usize % SLOTS);
        slot.is_some_and(|&(other, ends)| other == hash && now.saturating_add(MIN_REMAINING) < ends)
    }

    /// Records a counter in a window that ends then.
    pub fn insert(&mut self, hash: u64, ends: Micros) {
        if self.slots.is_empty() {
            self.slots = vec![(0, 0); SLOTS];
        }
        self.slots[hash as usize % SLOTS] = (hash, ends);
    }

    pub fn remove(&mut self, hash: u64) {
        if let Some(slot) = self.slots.get_mut(hash as usize % SLOTS)
            && slot.0 == hash
        {
            *slot = (0, 0);
        }
    }
}

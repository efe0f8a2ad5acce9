//! Which counters a connection has lately seen in which window: hits of those need no script.
//!
//! The script that takes hits of a lone fixed window adds them, and looks whether the number is of
//! the window of now. Where it is, all that the script did was `INCRBY`. So hits of a key that was
//! seen in a window that is not over are added by `INCRBY` itself, many in one trip, and after all
//! of them comes one `TIME`. The number that comes back names its window, and decides:
//!
//! - It is of the window of that time, or of the next, as after a clock stepped back: the script at
//!   that time would have left the same number. The hits are counted, and decided by the number
//!   and the time. Where the script would also have moved it into the window of now, or cut a count
//!   that is full, it is called to do so (*settle*), and charges nothing.
//! - It is of a window that is over: nobody whose time is not before that one counts by it. The hits
//!   are charged anew, by the script, and are in the window of now once.
//! - It is of no window: there was no key, and nobody counts by such a number. The hits are charged
//!   anew, by the script, which writes a number with its window and its expiry.
//! - It is no state: the hits are taken off again, and the charge fails.
//!
//! So no live window has hits twice, unless the clock steps back into the old window just between the
//! two: then it has more than it should, not less. In the last moments of a window another replica
//! may see hits that will be counted in the next. Nothing of this depends on what is known here being
//! right: that only says whether to try. It is forgotten with the connection, so after a failover
//! scripts come first.
//!
//! A key that `INCRBY` made has no expiry until the script gives it one, in the same trip. Where nobody
//! waits for that charge any more, or the connection was lost before, the key is settled: one of no
//! window goes.

use std::hash::{BuildHasher, RandomState};

use tokio::time::Instant;

use crate::limit::Micros;

/// So many counters are known at most. Another one in the same place pushes one out.
const SLOTS: usize = 1 << 16;

/// A window that ends within this is left to the script.
const MARGIN: Micros = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OpenWindows {
    hasher: RandomState,
    /// A key's hash, and when its window ends; empty until the first is seen.
    slots: Vec<(u64, Micros)>,
    /// What the server's clock said last, and when that was heard.
    heard: Option<(Micros, Instant)>,
}

impl OpenWindows {
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// What the server's clock says about now.
    pub fn estimate_time(&self) -> Option<Micros> {
        let passed = |at: Instant| u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard.map(|(told, at)| told.saturating_add(passed(at)))
    }

    pub fn set_time(&mut self, now: Micros) {
        self.heard = Some((now, Instant::now()));
    }

    /// Whether the counter was seen in a window that is not about to end.
    pub fn is_open(&self, hash: u64, now: Micros) -> bool {
        let slot = self.slots.get(hash as usize % SLOTS);
        slot.is_some_and(|&(other, ends)| other == hash && now.saturating_add(MARGIN) < ends)
    }

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

//! Counters: if a plan (the limits of a rule) is one fixed window aligned to the epoch, its state in Redis is one
//! number, with the window and its count. The packed formats of [`codec`](super::codec) have its layout.
//!
//! # Plain `INCRBY`s
//!
//! Hits of counters that a connection has recently seen in an open window need no script.
//!
//! The script that takes hits of a single fixed window adds them, and checks whether the number is of the current
//! window. Where it is, all that the script did was `INCRBY`. So hits of a key that was seen in a window that is still
//! open are added by a plain `INCRBY`, many keys in one round trip, followed by one `TIME`. The number that comes back
//! names its window, and decides what happens:
//!
//! - **The window of that time, or the next one** (as after a clock stepped back): the script would have left the same
//!   number. The hits are counted, and decided by the number and the time. Where the script would also have moved the
//!   count into the current window, or cut one that is full, the script is called to do so without charging anything
//!   (see [`repairs`](PendingCharge::repairs)).
//! - **A window that is over**: its number no longer affects any decision. The script charges the hits again, so they
//!   are in the current window once.
//! - **No window**: the key did not exist, and such a number affects no decision. The script charges the hits again,
//!   and writes a number with its window and its expiry.
//! - **Not a state**: the hits are subtracted again, and the charge fails.
//!
//! So no open window contains hits twice, unless the clock steps back into the old window just between the two
//! commands: then it has too many hits, never too few. In the last moments of a window another replica may see hits
//! that will be counted in the next one. None of this depends on what is recorded here being right: it only decides
//! whether to try. It is dropped with the connection, so that scripts come first after a failover.
//!
//! A key that `INCRBY` created has no expiry until the script sets one, in a follow-up round trip. Where no request
//! waits for that charge any more, or the connection was lost in between, the key is repaired: a number of no window is
//! deleted.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::pending_charge::{PendingCharge, Reply, fail_all};
use weir_limit::algorithms::fixed_window;
use weir_limit::{Algorithm, FixedWindow, Limit, LimitState, Micros, Op, Plan, State};
use weir_store::StoreError;

pub(super) const WINDOWS: u64 = (1 << 20) - 2;

/// The bits of the count. One more than a count needs: a full count may exceed the maximum until a script reads it, and
/// does not reach the next window.
const COUNT_BITS: u32 = 33;
pub(super) const COUNTS: u64 = 1 << COUNT_BITS;

/// Numbers from here on are not counters.
pub(super) const STATES: u64 = 1 << 53;

/// Returns how far the window of a counter is ahead of that of `now`; `None` if it is of no window.
fn windows_ahead(number: u64, period: Micros, now: Micros) -> Option<i64> {
    let window = (number >> COUNT_BITS).checked_sub(1)?;
    let ahead = (window + WINDOWS - now / period % WINDOWS) % WINDOWS;
    let ahead = ahead.cast_signed();
    Some(if ahead < WINDOWS.cast_signed() / 2 { ahead } else { ahead - WINDOWS.cast_signed() })
}

/// Returns whether a counter's count exceeds the maximum.
fn is_overfull(number: u64) -> bool {
    number % COUNTS > u32::MAX.into()
}

/// Returns a counter from a reply of Redis, if it is one.
pub(super) fn counter_number(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < STATES)
}

/// Returns the window if the plan is one fixed window aligned to the epoch: its state is one number.
pub(super) fn lone_window(plan: &Plan) -> Option<(&Limit, &FixedWindow)> {
    let [limit] = plan.limits() else { return None };
    let Algorithm::FixedWindow(window) = &limit.algorithm else { return None };
    (window.calendar.is_none() && plan.ban().is_none()).then_some((limit, window))
}

/// Returns the state of a counter at `now`; `None` if it is not a counter.
pub(super) fn read_counter(plan: &Plan, number: u64, now: Micros) -> Option<State> {
    let (_, window) = lone_window(plan)?;
    let state = match windows_ahead(number, window.period, now) {
        None => fixed_window::State::default(),
        Some(ahead) => {
            let index = (now / window.period).checked_add_signed(ahead)?;
            let count = u32::try_from(number % COUNTS).unwrap_or(u32::MAX);
            fixed_window::State { window: index * window.period, count }
        }
    };
    Some(State::new(Box::new([LimitState::FixedWindow(state)])))
}

/// The most hits of one `INCRBY`; more go by the script. A counter has room for 65,536 times as many above its maximum,
/// so it would take as many round trips at once to reach the next window.
const MAX_HITS: u32 = 1 << 16;

/// The most counters that are recorded: as many as a table of 1 MiB has room for.
const MAX_COUNTERS: usize = (1 << 16) / 8 * 7;

/// A window that ends sooner than this is left to the script.
const MIN_REMAINING: Micros = 10_000;

/// Counters and the windows in which they were seen.
#[derive(Debug, Default)]
pub(super) struct OpenWindows {
    hasher: RandomState,
    /// The end of a key's window, by the key's hash.
    ends: HashMap<u64, Micros, BuildHasherDefault<Hashed>>,
    /// The last reading of the server's clock, and when the reply came.
    clock: Option<(Micros, Instant)>,
}

/// Takes a hash as it is.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Not called: keys are `u64`.
    fn write(&mut self, _: &[u8]) {}
}

impl OpenWindows {
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub fn estimate_time(&self) -> Option<Micros> {
        self.clock.map(|(time, at)| time.saturating_add(at.elapsed().as_micros() as u64))
    }

    pub fn set_time(&mut self, now: Micros) {
        self.clock = Some((now, Instant::now()));
    }

    /// Returns whether the counter was seen in a window that is not about to end.
    pub fn is_open(&self, hash: u64, now: Micros) -> bool {
        self.ends.get(&hash).is_some_and(|&ends| now.saturating_add(MIN_REMAINING) < ends)
    }

    pub fn insert(&mut self, hash: u64, ends: Micros) {
        if self.ends.len() == self.ends.capacity() {
            self.make_room();
        }
        self.ends.insert(hash, ends);
    }

    /// Forgets windows that have ended. Grows if most are open; forgets all of them where that would be too many.
    fn make_room(&mut self) {
        let now = self.estimate_time().unwrap_or(0);
        self.ends.retain(|_, ends| *ends > now);
        let (open, room) = (self.ends.len(), self.ends.capacity());
        if open > MAX_COUNTERS / 2 {
            self.ends.clear();
        } else if open >= room / 2 {
            self.ends.reserve(room - open + 1);
        }
    }

    pub fn remove(&mut self, hash: u64) {
        self.ends.remove(&hash);
    }
}

/// Charges of one key that one `INCRBY` makes.
#[derive(Debug)]
pub(super) struct Increment {
    charges: SmallVec<[PendingCharge; 1]>,
    hits: u32,
    hash: u64,
}

impl Increment {
    /// Starts with a charge; returns it where it needs a script.
    pub fn new(charge: PendingCharge, hash: u64) -> Result<Increment, PendingCharge> {
        match increment_hits(&charge) {
            Some(hits @ 1..) => Ok(Increment { charges: smallvec![charge], hits, hash }),
            _ => Err(charge),
        }
    }

    /// Returns the key; empty where the charges were taken.
    pub fn key(&self) -> &[u8] {
        self.charges.first().map_or(&[], |charge| &charge.key)
    }

    /// Adds a charge of the same key; returns it where it needs a script.
    pub fn merge(&mut self, charge: PendingCharge) -> Result<(), PendingCharge> {
        match increment_hits(&charge).map(|hits| self.hits + hits) {
            Some(sum @ ..=MAX_HITS) => {
                self.hits = sum;
                self.charges.push(charge);
                Ok(())
            }
            _ => Err(charge),
        }
    }

    pub fn command(&self) -> redis::Cmd {
        let mut command = redis::Cmd::with_capacity(3, self.key().len() + 16);
        command.arg("INCRBY").arg(self.key()).arg(self.hits);
        command
    }

    pub fn len(&self) -> usize {
        self.charges.len()
    }

    pub fn take_charges(&mut self) -> SmallVec<[PendingCharge; 1]> {
        std::mem::take(&mut self.charges)
    }

    /// Answers its charges, which may have been made, with an error.
    pub fn fail(&self, error: StoreError) {
        self.charges.iter().for_each(|charge| charge.fail(error));
    }

    /// Returns the charge that repairs the key where no reply says whether the hits were added.
    pub fn into_repair(self) -> Option<PendingCharge> {
        self.charges.first().map(|charge| repair(charge, 0))
    }

    /// Answers what was counted: `new` is the reply to `INCRBY`, and `now` the time after it. Returns the charges left
    /// to the script, and the error of the key.
    pub fn answer(
        self,
        new: i64,
        now: Micros,
        open_windows: &mut OpenWindows,
    ) -> (SmallVec<[PendingCharge; 1]>, Option<StoreError>) {
        let Some(first) = self.charges.first() else { return (SmallVec::new(), None) };
        let period = lone_window(&first.plan).map_or(1, |(_, window)| window.period);
        let before = new.checked_sub(self.hits.into()).and_then(counter_number);
        let (Some(number), Some(after)) = (before, counter_number(new)) else {
            open_windows.remove(self.hash);
            let left = repair(first, self.hits);
            fail_all(self.charges, StoreError::Corrupt);
            return (smallvec![left], Some(StoreError::Corrupt));
        };
        let ahead = windows_ahead(number, period, now);
        if let Some(ahead @ 0..) = ahead
            && let Some(mut state) = read_counter(&first.plan, number, now)
        {
            let mut left = SmallVec::new();
            if ahead > 1 || is_overfull(after) {
                open_windows.remove(self.hash);
                left.push(repair(first, 0));
            }
            for charge in self.charges {
                charge.decide(&mut state, None, now);
            }
            return (left, None);
        }
        open_windows.remove(self.hash);
        let repair = repair(first, 0);
        let mut left = self.charges;
        let at = Instant::now();
        left.retain(|charge| charge.reply.is_awaited(at));
        if left.is_empty() && ahead.is_none() {
            left.push(repair);
        }
        (left, None)
    }
}

/// Returns the hits of a charge that `INCRBY` can make, 0 for a look.
pub(super) fn increment_hits(charge: &PendingCharge) -> Option<u32> {
    let Op::Take(hits) = charge.op else { return None };
    let plain = charge.group.is_none() && !charge.alone && !charge.asking;
    let counts_all = lone_window(&charge.plan).is_some_and(|(limit, _)| limit.charge_denied);
    u32::try_from(hits).ok().filter(|&hits| plain && counts_all && hits <= MAX_HITS)
}

/// Returns the charge that repairs the key of another one.
fn repair(charge: &PendingCharge, hits: u32) -> PendingCharge {
    PendingCharge {
        op: Op::Refund(hits.into()),
        repairs: true,
        reply: Reply::unawaited(1),
        index: 0,
        ..charge.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = 1_700_000_000_000_000;

    fn with_counters(count: u64, ends: Micros) -> OpenWindows {
        let mut windows = OpenWindows::default();
        windows.set_time(NOW);
        for key in 0..count {
            windows.insert(windows.hash(&key.to_le_bytes()), ends);
        }
        windows
    }

    #[test]
    fn the_table_follows_the_keys_in_open_windows() {
        let later = NOW + 3_600_000_000;
        assert_eq!(with_counters(0, later).ends.capacity(), 0);
        let some = with_counters(1_000, later);
        assert!((0..1_000_u64).all(|key| some.is_open(some.hash(&key.to_le_bytes()), NOW)));
        assert!(some.ends.capacity() < 4_000, "{}", some.ends.capacity());
        let ended = with_counters(100_000, NOW - 1);
        assert!(ended.ends.capacity() < 100, "{}", ended.ends.capacity());
        let flood = with_counters(1_000_000, later);
        assert!(flood.ends.capacity() <= MAX_COUNTERS, "{}", flood.ends.capacity());
    }

    #[test]
    fn a_window_about_to_end_and_a_removed_one_are_not_open() {
        let mut windows = with_counters(1, NOW + MIN_REMAINING + 1);
        let hash = windows.hash(&0_u64.to_le_bytes());
        assert!(windows.is_open(hash, NOW) && !windows.is_open(hash, NOW + 1));
        windows.remove(hash);
        assert!(!windows.is_open(hash, NOW));
    }
}

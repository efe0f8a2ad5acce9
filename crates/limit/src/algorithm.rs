//! The trait that every rate-limit algorithm implements. `Limit` calls it whenever a store decides hits of a request.

use std::fmt;

use crate::hit_log::HitLog;
use crate::numbers::{Numbers, NumbersChange, NumbersError};
use crate::plan::op::Undo;
use crate::saved::SavedNumbers;
use crate::time::Micros;

/// Hits to check, charge or refund.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hits {
    pub count: u32,
    /// For concurrency limits: the hash of the hold id, which names a request in flight; 0 without one.
    pub hold: u64,
}

/// One limit's answer to some hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the hits are allowed.
    pub allowed: bool,
    /// The wait until the same hits are allowed if nothing else happens; none if they are now, or never will be.
    pub retry_after: Option<Micros>,
}

impl Verdict {
    pub(crate) const ALLOWED: Verdict = Verdict { allowed: true, retry_after: None };

    /// A denial that no wait ends.
    pub(crate) const NEVER: Verdict = Verdict { allowed: false, retry_after: None };
}

/// How much of one limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Hits counted.
    pub used: u64,
    /// The largest number of hits allowed now.
    pub remaining: u64,
    /// Time until the limit, left alone, is back to its full allowance.
    pub reset_after: Micros,
    /// Whether the state means the same as no state.
    pub empty: bool,
}

impl Levels {
    /// The levels where the state is that of another algorithm than the limit's.
    pub(crate) const UNKNOWN: Levels =
        Levels { used: 0, remaining: 0, reset_after: 0, empty: true };
}

/// The hits in flight of a concurrency limit; a hold is those of one request, under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldLevels {
    /// The number of holds; none if the limit has no hold ids.
    pub ids: Option<u64>,
    /// The number of hits in flight.
    pub hits: u64,
    /// Time until the oldest hold expires, or without ids all hits; 0 if there are none.
    pub expires_after: Micros,
}

/// The hits that a limit counted over the last span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanCount {
    /// The index of the limit in the plan.
    pub limit: u8,
    /// The number of hits in the span.
    pub count: u64,
    /// The length of the intervals that hits are counted by; 0 if each is counted by its own time.
    pub resolution: Micros,
    /// A hit may be counted for up to this long after it has left the span; 0 if the count is exact.
    pub max_late: Micros,
    /// Whether earlier hits of the span may be missing, because the log of the rule is full and keeps no more.
    pub is_minimum: bool,
}

/// A state in 12 bytes, which the memory store keeps in place. All zeros is the default.
pub type Packed = [u32; 3];

/// Everything about one algorithm, implemented by its parameters.
///
/// A default is right, or safe, for every algorithm that does not override it.
///
/// A state is always advanced to `now` before it is read or changed. `log` is the log that all sliding_log limits of a
/// rule share; other algorithms ignore it.
pub(crate) trait LimitAlgorithm: Clone + Sized {
    /// The state of one limit for one key. The default is that of a key never seen.
    type State: Default;

    /// The name in rule files.
    const NAME: &'static str;

    /// Whether every state fits into [`Packed`].
    const PACKS: bool = false;

    /// Whether a limit of 0 hits counts denied hits that it charges. If they drained at its own rate, they would stay.
    const COUNTS_AT_ZERO: bool;

    /// Whether a limit of 0 hits that charges denied hits allows looks, as the reference does.
    const ANSWERS_LOOKS_IF_N_IS_ZERO: bool = false;

    /// Whether a denial of some hits holds as long for more hits, if no other limit is in the rule.
    const DENIAL_COVERS_MORE_HITS: bool = false;

    /// Whether a refund releases hits at the end of a request. In a rule with such a limit, it concerns only this limit.
    const COUNTS_IN_FLIGHT: bool = false;

    /// The bytes that a state keeps of each hit; 0 if it only counts them.
    const HIT_BYTES: u64;

    /// Whether `reset_after` is the end of a window by the clock, which recurs, also for hits that can never pass.
    const RESET_RECURS: bool = false;

    /// Whether no state means quite the same as none, so that one that has expired must not be used.
    const NEEDS_EXPIRY: bool;

    /// Whether callers read the tokens that a denial leaves. Otherwise a denied limit counts as used up.
    const REPORTS_TOKENS: bool = false;

    /// Advances the state to `now`: drops windows that have passed, adds tokens that have come.
    fn advance(&self, state: &mut Self::State, now: Micros);

    /// Returns whether the hits are allowed, and when if not.
    fn verdict(&self, state: &Self::State, log: &HitLog, now: Micros, hits: Hits) -> Verdict;

    fn levels(&self, state: &Self::State, log: &HitLog, now: Micros) -> Levels;

    /// Returns the largest number of hits that a hold may take.
    fn room(&self, state: &Self::State, log: &HitLog, now: Micros, _hold: u64) -> u64 {
        self.levels(state, log, now).remaining
    }

    /// Charges hits that were admitted or, with `charge_denied`, denied.
    fn charge(&self, state: &mut Self::State, now: Micros, hits: Hits, charge_denied: bool);

    /// Changes the state after a denial by this limit, whether it charges denied hits or not.
    fn deny(&self, _: &mut Self::State, _: Micros) {}

    /// Refunds hits, newest first.
    fn refund(&self, state: &mut Self::State, now: Micros, hits: Hits);

    /// Returns what undoes the charge between two advanced states; none if it changed nothing, and without windows.
    fn undo_of(&self, _: &Self::State, _: &Self::State, _now: Micros) -> Option<Undo> {
        None
    }

    /// Makes what a charge did as if it had not been made, in the window of its hits.
    fn undo(&self, _: &mut Self::State, _: &Undo) {}

    /// Returns whether a denial may be repeated until its wait is over without charging again: that would only deny
    /// again, and change nothing that anyone sees. `alone`: the rule has no other limit.
    fn repeats_denials(&self, _charge_denied: bool, _alone: bool) -> bool {
        false
    }

    /// Returns the start of the newest window or sub-window of an advanced state; 0 if it has none.
    fn newest_window(&self, _: &Self::State) -> Micros {
        0
    }

    /// Returns the end of the window or sub-window of `t`, within which it does not matter when hits are
    /// charged; none if it matters. Hits of limits that have one can be reserved and returned later.
    fn window_end(&self, _t: Micros) -> Option<Micros> {
        None
    }

    /// Returns the key of the descriptor's last entry, if that names a hold.
    fn hold_id(&self) -> Option<&str> {
        None
    }

    /// Returns the period of a limit that counts by the log; none if it does not.
    fn log_period(&self) -> Option<Micros> {
        None
    }

    /// Returns the longest span over which hits can be counted; none if their times are not kept.
    fn longest_span(&self) -> Option<Micros> {
        None
    }

    /// Counts the hits of the last `span`, for spans up to [`longest_span`](Self::longest_span).
    fn count(&self, _: &Self::State, _: &HitLog, _now: Micros, _span: Micros) -> Option<SpanCount> {
        None
    }

    /// Returns the hits in flight; none if the algorithm does not count these.
    fn holds(&self, _: &Self::State, _now: Micros) -> Option<HoldLevels> {
        None
    }

    /// Returns the most hits that a limit of `n`, which is not 0, can allow at once.
    fn capacity(&self, n: u32) -> u64 {
        n.into()
    }

    /// Returns the time in which its whole [`capacity`](Self::capacity) comes back; none if that is the period.
    fn refill_time(&self) -> Option<Micros> {
        None
    }

    /// Returns the bytes of a state in memory, besides those of hits that it keeps.
    fn state_bytes(&self) -> usize {
        size_of::<Self::State>()
    }

    /// Returns whether hits take [`HIT_BYTES`](Self::HIT_BYTES) each. Otherwise they are only counted.
    fn keeps_hits(&self) -> bool {
        true
    }

    /// Writes what follows the number and the period of a limit in its text.
    fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, ", {}", Self::NAME)
    }

    /// Appends what an old state would be misread without, as a part of keys: readable, no braces, periods in seconds.
    fn write_shape(&self, shape: &mut String) -> fmt::Result;

    /// Returns the share of one of `replicas` replicas of a limit of `n` hits, for when replicas cannot count together.
    ///
    /// The burst is divided and rounded up, so that no share is zero unless the whole is: all shares together allow
    /// the whole, and at most one hit more per replica. The refill rate is divided exactly, by a longer interval if
    /// necessary. The default is that of a limit whose only number is `n`.
    fn replica_share(&self, n: u32, replicas: u32) -> Self {
        let new = Numbers { n: n.div_ceil(replicas), burst: None };
        let share = self.with_numbers(NumbersChange { old: n, new });
        share.unwrap_or_else(|_| self.clone())
    }

    /// Returns the limit with other numbers, which continues the states of this one. Fails if the algorithm has no
    /// such number, or cannot compute with it.
    fn with_numbers(&self, change: NumbersChange) -> Result<Self, NumbersError>;

    /// Packs a state. Only called if [`PACKS`](Self::PACKS), as is `unpack`.
    fn pack(_: &Self::State) -> Packed {
        Packed::default()
    }

    fn unpack(&self, _: Packed, _now: Micros) -> Self::State {
        Self::State::default()
    }

    /// The number of the algorithm in saved states, for good.
    const TAG: u64;

    fn save(state: &Self::State, out: &mut Vec<u8>);

    /// Reads what [`save`](Self::save) has written; none if no state is written like that.
    fn restore(saved: &mut SavedNumbers<'_>) -> Option<Self::State>;
}

pub(crate) fn pack_wide(wide: u64, short: u32) -> Packed {
    [wide as u32, (wide >> 32) as u32, short]
}

pub(crate) fn unpack_wide([low, high, short]: Packed) -> (u64, u32) {
    (u64::from(low) | u64::from(high) << 32, short)
}

/// Returns a replica's share of a refill, and its interval: longer by the factor by which the rounded share
/// is too large. What a refill brings beyond a full bucket of `capacity` is not shared.
pub(crate) fn share_refill(amount: u32, capacity: u32, interval: u64, replicas: u32) -> (u32, u64) {
    let whole = amount.min(capacity).max(1);
    let share = whole.div_ceil(replicas);
    let rounded = u128::from(share) * u128::from(replicas);
    let interval = (u128::from(interval) * rounded).div_ceil(u128::from(whole));
    (share, u64::try_from(interval).unwrap_or(u64::MAX))
}

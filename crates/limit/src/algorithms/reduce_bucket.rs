//! The token bucket of `RL.REDUCE`, a command for clients of the Redis protocol. No rule file can name it.
//!
//! `max` tokens fill the bucket, `refill` come back each interval `T`, and a charge asks for `h`. With
//! `k = max(0, floor((now - last) / T))`: `before = min(max, tokens + k refill)` and `last += k T`, also if the bucket
//! is full. A charge is allowed iff `before >= h`; allowed or not, it leaves `max(0, before - h)`. A strict one
//! (`STRICT`) that leaves 0 sets `last = max(last, now)`: an older time must not let the same refills come twice. The
//! first charge finds `max` tokens and sets `last = now`.
//!
//! State: the missing tokens and `last`. Cost: a division. Guarantee: over any span `L` at most
//! `max + refill (floor(L / T) + 1)`. Source: `RL.REDUCE` of Smyte's rate limiter.
//!
//! **Expiry.** A full bucket remembers when its next refill is due, so no state ever means quite the same as none. It
//! is kept for `ceil(max / refill) T` after the last charge, by the store's clock: the bucket is full by then. One that
//! starts over is refilled less than `T` later than it would have been, never earlier. Only a caller whose own clock
//! runs slower than the store's gains tokens.

use std::fmt::{self, Write};

use crate::algorithm::{
    Hits, Levels, LimitAlgorithm, Packed, Verdict, pack_wide, share_refill, unpack_wide,
};
use crate::decision::Decision;
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::saved::{self, SavedNumbers};
use crate::time::Micros;

const MILLISECOND: Micros = 1_000;

/// `max` tokens, of which `refill` come back each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReduceBucket {
    /// The tokens of a full bucket; at least 1.
    pub max: u32,
    /// The tokens that come back each interval; at least 1.
    pub refill: u32,
    /// The interval in milliseconds; at least 1.
    pub interval: u64,
    /// Whether a charge that leaves no token restarts the interval. Not a part of the key.
    pub strict: bool,
    /// The caller's time in milliseconds, less than [`END`](Self::END); none for the store's. Not a part of the key.
    pub at: Option<u64>,
}

/// The missing tokens, and the last refill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// A stored state misses a token or more: it was charged. 0 is a bucket that never was.
    pub missing: u32,
    /// When the last refill came, or would have, in milliseconds.
    pub last: u64,
}

impl ReduceBucket {
    /// Times are below this, so that every store computes exactly.
    pub const END: u64 = 1 << 52;

    /// Returns the tokens before a charge of `hits`, by the decision on it. They are as many as `hits`
    /// or more iff it is allowed, also if a policy decided.
    pub fn tokens_before(&self, hits: u64, decision: &Decision) -> u64 {
        let max = u64::from(self.max);
        match decision.allowed {
            true => decision.remaining.saturating_add(hits).min(max),
            false => max.saturating_sub(decision.used_before),
        }
    }

    fn time(&self, now: Micros) -> u64 {
        self.at.unwrap_or(now / MILLISECOND)
    }

    /// Returns the time in which as many tokens come.
    fn time_of(&self, tokens: u32) -> Micros {
        let steps = u64::from(tokens.div_ceil(self.refill));
        steps.saturating_mul(self.interval).saturating_mul(MILLISECOND)
    }
}

impl LimitAlgorithm for ReduceBucket {
    type State = State;

    const NAME: &'static str = "reduce_bucket";
    const PACKS: bool = true;
    const COUNTS_AT_ZERO: bool = false;
    const HIT_BYTES: u64 = 0;
    const NEEDS_EXPIRY: bool = true;
    const REPORTS_TOKENS: bool = true;

    fn advance(&self, state: &mut State, now: Micros) {
        let now = self.time(now);
        if state.missing == 0 {
            state.last = now;
            return;
        }
        let steps = now.saturating_sub(state.last) / self.interval;
        let tokens = steps.saturating_mul(self.refill.into());
        state.missing = state.missing.saturating_sub(u32::try_from(tokens).unwrap_or(u32::MAX));
        state.last += steps * self.interval;
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let lacking = state.missing.saturating_sub(self.max.saturating_sub(hits.count));
        let allowed = u64::from(state.missing) + u64::from(hits.count) <= self.max.into();
        let retry = || {
            let last = state.last.saturating_mul(MILLISECOND);
            let now = self.time(now).saturating_mul(MILLISECOND);
            last.saturating_add(self.time_of(lacking)).saturating_sub(now)
        };
        Verdict { allowed, retry_after: (!allowed && hits.count <= self.max).then(retry) }
    }

    /// `reset_after` is how long a charged state is kept, which may be longer than it takes to fill the bucket.
    fn levels(&self, state: &State, _: &HitLog, _: Micros) -> Levels {
        let empty = state.missing == 0;
        Levels {
            used: state.missing.into(),
            remaining: self.max.saturating_sub(state.missing).into(),
            reset_after: if empty { 0 } else { self.time_of(self.max) },
            empty,
        }
    }

    fn charge(&self, state: &mut State, now: Micros, hits: Hits, _: bool) {
        state.missing = state.missing.saturating_add(hits.count).min(self.max);
        if self.strict && state.missing == self.max {
            state.last = state.last.max(self.time(now));
        }
    }

    fn refund(&self, state: &mut State, _: Micros, hits: Hits) {
        state.missing = state.missing.saturating_sub(hits.count);
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "r{}/{}/{}ms", self.max, self.refill, self.interval)
    }

    /// No rule has it, so no control changes its numbers.
    fn with_numbers(&self, _: NumbersChange) -> Result<ReduceBucket, NumbersError> {
        Err(NumbersError::NoBurst)
    }

    fn replica_share(&self, _: u32, replicas: u32) -> ReduceBucket {
        let (refill, interval) = share_refill(self.refill, self.max, self.interval, replicas);
        ReduceBucket { max: self.max.div_ceil(replicas), refill, interval, ..*self }
    }

    fn pack(state: &State) -> Packed {
        pack_wide(state.last, state.missing)
    }

    fn unpack(&self, packed: Packed, _: Micros) -> State {
        let (last, missing) = unpack_wide(packed);
        State { missing, last }
    }

    const TAG: u64 = 8;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.missing.into());
        saved::put(out, state.last);
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        Some(State { missing: saved.next()?.try_into().ok()?, last: saved.next()? })
    }
}

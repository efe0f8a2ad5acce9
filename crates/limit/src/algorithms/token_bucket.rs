//! Token bucket (`token_bucket` in rules): hits take tokens, and `amount` tokens come back at the end of each interval.
//!
//! At time `t`, with `k = floor((t - last) / interval)` steps since the last,
//! `tokens = min(capacity, tokens + k amount)` and `last += k interval`; a request of `h` hits is allowed iff
//! `tokens >= h`. A full bucket starts its clock at the charge. A strict one (`strict` in rules) restarts it at each
//! denial: nothing is refilled until the client has been quiet for one interval.
//!
//! State: the tokens that are missing, and the last step. Cost: a division. Guarantee: over any span `L` at most
//! `capacity + amount (floor(L / interval) + 1)`. Source: the refill amount, refill interval and strict mode of Smyte,
//! "High-performance rate limiting" (2016).

use std::fmt::{self, Write};

use crate::algorithm::{
    Hits, Levels, LimitAlgorithm, Packed, Verdict, pack_wide, share_refill, unpack_wide,
};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::saved::{self, SavedNumbers};
use crate::time::{MAX_PERIOD, MAX_WAIT, Micros};

/// Bits of a time in a state packed into 12 bytes. The bit above is bit 32 of the missing tokens (capacity, debt).
const TIME_BITS: u32 = 63;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// `capacity` tokens, of which `amount` come back each `interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The tokens of a full bucket.
    pub capacity: u32,
    /// Tokens that come back each `interval`; at least 1.
    pub amount: u32,
    /// The time between two amounts that come back.
    pub interval: Micros,
    /// Whether a denial restarts the wait.
    pub strict: bool,
    /// How many tokens may be owed, if denied hits are charged.
    pub max_debt: u32,
}

/// The missing tokens and the last refill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tokens that are missing; those beyond the capacity are owed. 0: full.
    pub missing: u64,
    /// When the last refill came, or would have.
    pub last: Micros,
}

impl TokenBucket {
    /// Returns how many tokens come within [`MAX_WAIT`]: the most that capacity and debt may be together.
    pub fn max_capacity_and_debt(&self) -> u64 {
        (MAX_WAIT / self.interval).saturating_mul(self.amount.into())
    }

    fn refilled(&self, state: &State, now: Micros) -> State {
        let steps = now.saturating_sub(state.last) / self.interval;
        let missing = state.missing.saturating_sub(steps.saturating_mul(self.amount.into()));
        let last = state.last + steps * self.interval;
        // A full bucket starts its clock at the charge.
        State { missing, last: if missing == 0 { last.max(now) } else { last } }
    }

    /// Returns the time until `tokens` more have come. A larger amount may have left behind more than comes
    /// within [`MAX_WAIT`], which bounds it.
    fn time_until(&self, state: &State, tokens: u64, now: Micros) -> Micros {
        let steps = tokens.div_ceil(self.amount.into());
        let come_at = state.last.saturating_add(steps.saturating_mul(self.interval));
        come_at.saturating_sub(now).min(MAX_WAIT)
    }
}

impl LimitAlgorithm for TokenBucket {
    type State = State;

    const NAME: &'static str = "token_bucket";
    const PACKS: bool = true;
    const COUNTS_AT_ZERO: bool = false;
    const HIT_BYTES: u64 = 0;
    const NEEDS_EXPIRY: bool = false;

    /// Refills nothing: another limit of the same states may refill less. Only what changes tokens stores a refill.
    fn advance(&self, state: &mut State, now: Micros) {
        if state.last > now.saturating_add(self.interval) {
            state.last = now;
        }
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let (state, hits) = (self.refilled(state, now), u64::from(hits.count));
        let (capacity, wanted) = (u64::from(self.capacity), state.missing + hits);
        let allowed = wanted <= capacity;
        let retry = || self.time_until(&state, wanted - capacity, now);
        Verdict { allowed, retry_after: (!allowed && hits <= capacity).then(retry) }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        let state = self.refilled(state, now);
        Levels {
            used: state.missing,
            remaining: u64::from(self.capacity).saturating_sub(state.missing),
            reset_after: match state.missing {
                0 => 0,
                missing => self.time_until(&state, missing, now),
            },
            empty: state.missing == 0,
        }
    }

    fn charge(&self, state: &mut State, now: Micros, hits: Hits, charge_denied: bool) {
        *state = self.refilled(state, now);
        let debt = if charge_denied { self.max_debt } else { 0 };
        let most = (u64::from(self.capacity) + u64::from(debt)).max(state.missing);
        state.missing = (state.missing + u64::from(hits.count)).min(most);
    }

    fn deny(&self, state: &mut State, now: Micros) {
        if self.strict {
            *state = self.refilled(state, now);
            state.last = state.last.max(now);
        }
    }

    fn refund(&self, state: &mut State, now: Micros, hits: Hits) {
        *state = self.refilled(state, now);
        state.missing = state.missing.saturating_sub(hits.count.into());
    }

    fn repeats_denials(&self, charge_denied: bool, _: bool) -> bool {
        !charge_denied && !self.strict
    }

    fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strict = if self.strict { "strict " } else { "" };
        write!(text, ", {strict}token_bucket of {}", self.capacity)
    }

    fn capacity(&self, _: u32) -> u64 {
        self.capacity.into()
    }

    fn refill_time(&self) -> Option<Micros> {
        Some(u64::from(self.capacity.div_ceil(self.amount.max(1))).saturating_mul(self.interval))
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "t{}us", self.interval)
    }

    /// The rate follows `n`; a capacity of its own stays.
    fn with_numbers(&self, change: NumbersChange) -> Result<TokenBucket, NumbersError> {
        let capacity = change.burst(self.capacity);
        let max_debt = if self.max_debt == self.capacity { capacity } else { self.max_debt };
        let amount = change.scale(self.amount);
        let bucket = TokenBucket { capacity, amount, max_debt, ..*self };
        match u64::from(capacity) + u64::from(max_debt) <= bucket.max_capacity_and_debt() {
            true => Ok(bucket),
            false => Err(NumbersError::TooSlow),
        }
    }

    /// One token a minute among ten replicas is one in ten minutes for each.
    fn replica_share(&self, _: u32, replicas: u32) -> TokenBucket {
        let most = self.capacity.saturating_add(self.max_debt);
        let (amount, interval) = share_refill(self.amount, most, self.interval, replicas);
        TokenBucket {
            capacity: self.capacity.div_ceil(replicas),
            amount,
            interval: interval.min(MAX_PERIOD),
            max_debt: self.max_debt.div_ceil(replicas),
            ..*self
        }
    }

    fn pack(state: &State) -> Packed {
        let high = (state.missing >> 32) << TIME_BITS;
        pack_wide(state.last & TIME_MASK | high, state.missing as u32)
    }

    fn unpack(&self, packed: Packed, _: Micros) -> State {
        let (wide, low) = unpack_wide(packed);
        State { missing: u64::from(low) | (wide >> TIME_BITS) << 32, last: wide & TIME_MASK }
    }

    const TAG: u64 = 5;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.missing);
        saved::put(out, state.last);
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        Some(State { missing: saved.next()?, last: saved.next()? })
    }
}

//! Token bucket: hits take tokens, and tokens come back in steps.
//!
//! With `k = floor((t - last) / interval)` steps since the last, `tokens = min(capacity, tokens +
//! k amount)` and `last += k interval`; allowed iff `tokens >= h`. A bucket found full starts its
//! clock at the charge. A strict one starts it anew at each denial, so that refilling waits until
//! the caller is quiet.
//!
//! State: the tokens that are missing, and the last step. Cost: a division. Guarantee: over any
//! span `L` at most `capacity + amount (floor(L / interval) + 1)`. Source: the refill amount, refill
//! interval and strict mode of Smyte, "High-performance rate limiting" (2016).

use super::{Levels, MAX_WAIT, Micros, Verdict, wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    pub capacity: u32,
    /// Tokens that come back each `interval`; at least 1.
    pub amount: u32,
    pub interval: Micros,
    /// Whether a denial starts the wait anew.
    pub strict: bool,
    /// How many tokens may be owed, where denied hits are charged.
    pub max_debt: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Tokens that are not there; past the capacity they are owed. 0: full.
    pub missing: u64,
    /// When the last step came, or would have.
    pub last: Micros,
}

impl TokenBucket {
    pub fn settle(&self, state: &mut State, now: Micros) {
        if state.last > now.saturating_add(self.interval) {
            state.last = now;
        }
        let steps = now.saturating_sub(state.last) / self.interval;
        state.missing = state.missing.saturating_sub(steps.saturating_mul(self.amount.into()));
        state.last += steps * self.interval;
        if state.missing == 0 {
            state.last = state.last.max(now);
        }
    }

    pub fn judge(&self, state: &State, now: Micros, hits: u64) -> Verdict {
        let (capacity, wanted) = (u64::from(self.capacity), state.missing + hits);
        let allowed = wanted <= capacity;
        let retry = || self.after(state, wanted - capacity, now);
        Verdict { allowed, retry_after: (!allowed && hits <= capacity).then(retry) }
    }

    /// Returns how many tokens come within [`MAX_WAIT`]: what capacity and debt may be together.
    pub fn comes_in_time(&self) -> u64 {
        (MAX_WAIT / self.interval).saturating_mul(self.amount.into())
    }

    /// Returns the time until `tokens` more have come. What a bucket of a larger amount left may take
    /// longer than the longest wait, which is then the answer.
    fn after(&self, state: &State, tokens: u64, now: Micros) -> Micros {
        let steps = tokens.div_ceil(self.amount.into());
        wait(state.last.saturating_add(steps.saturating_mul(self.interval)), now).min(MAX_WAIT)
    }

    pub fn levels(&self, state: &State, now: Micros) -> Levels {
        Levels {
            used: state.missing,
            remaining: u64::from(self.capacity).saturating_sub(state.missing),
            reset_after: match state.missing {
                0 => 0,
                missing => self.after(state, missing, now),
            },
            empty: state.missing == 0,
        }
    }

    /// Takes tokens; what is owed beyond the most that may be is forgotten.
    pub fn charge(&self, state: &mut State, hits: u32, denied: bool) {
        let debt = if denied { self.max_debt } else { 0 };
        let most = (u64::from(self.capacity) + u64::from(debt)).max(state.missing);
        state.missing = (state.missing + u64::from(hits)).min(most);
    }

    /// What a denial does to a strict bucket.
    pub fn deny(&self, state: &mut State, now: Micros) {
        if self.strict {
            state.last = state.last.max(now);
        }
    }

    pub fn give_back(&self, state: &mut State, hits: u32) {
        state.missing = state.missing.saturating_sub(hits.into());
    }
}

//! GCRA, the generic cell rate algorithm; the leaky bucket as a meter is the same under another
//! name, its level the distance of the theoretical arrival time.
//!
//! In whole numbers: `n'/p'` is `n` over the period in lowest terms, the period in ticks. The level
//! is `L = max(0, (tat - t) n' - rem)`; allowed iff `L + h p' <= b p'`. Then with the new level
//! `tat = t + ceil(L / n')`, `rem = (tat - t) n' - L`. (Doubles of microseconds would not do: their
//! step is a quarter of a microsecond today.)
//!
//! State: the theoretical arrival time and a remainder. Cost: a multiplication and two divisions.
//! Guarantee: after a burst of `b`, one hit every `period / n`; a burst of 1 spaces strictly.
//! Source: ITU-T I.371 and ATM Forum TM 4.0; Brandur Leach, "Rate limiting, cells, and GCRA".

use super::{Levels, MAX_WAIT, MAX_WAIT_YEARS, Micros, Verdict};

/// What stays exact in a double, and so in every store.
const EXACT: u128 = 1 << 52;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    burst: u64,
    /// The burst and what may be owed beyond it, where denied hits are charged.
    most: u64,
    /// `n'` and `p'`.
    n: u64,
    p: u64,
    /// In microseconds.
    tick: Micros,
    period: Micros,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Theoretical arrival time, in ticks since the epoch.
    pub tat: u64,
    /// What `tat` is too late by, in `1/n'` ticks.
    pub rem: u64,
}

/// Why the numbers of a limit are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcraError {
    #[error("its burst and period are too large for exact arithmetic")]
    TooLarge,
    /// With the largest burst and debt, added up, that are back in time.
    #[error("its burst and debt take more than {MAX_WAIT_YEARS} years to come back")]
    TooSlow(u64),
}

impl Gcra {
    /// Returns the limit of `n` hits a `period`, `burst` of them at once; `max_debt` more may be
    /// owed where denied hits are charged. The tick is the shortest of a microsecond, a millisecond
    /// and a second that keeps the arithmetic exact.
    ///
    /// # Errors
    ///
    /// Where no tick does, and where burst and debt take more than [`MAX_WAIT`] to come back.
    pub fn new(n: u32, period: Micros, burst: u32, max_debt: u32) -> Result<Gcra, GcraError> {
        if n == 0 {
            // It denies before any arithmetic, and keeps what there is until `n` is another.
            let most = (EXACT as u64 - 2) / period;
            return Ok(Gcra { burst: 0, most, n: 1, p: period, tick: 1, period });
        }
        let most = u64::from(burst) + u64::from(max_debt);
        let in_time = u128::from(MAX_WAIT) * u128::from(n) / u128::from(period);
        if u128::from(most) > in_time {
            return Err(GcraError::TooSlow(in_time as u64));
        }
        for tick in [1, 1_000, 1_000_000] {
            let (n, p) = (u64::from(n), period / tick);
            let common = gcd(n, p);
            let (n, p) = (n / common, p / common);
            if u128::from(most) * u128::from(p) + u128::from(n) < EXACT {
                return Ok(Gcra { burst: burst.into(), most, n, p, tick, period });
            }
        }
        Err(GcraError::TooLarge)
    }

    /// How many hits may come at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The burst, `n'`, `p'`, the tick, the burst with what may be owed.
    pub(super) fn numbers(&self) -> [u64; 5] {
        [self.burst, self.n, self.p, self.tick, self.most]
    }

    /// How many hits may be owed beyond the burst.
    pub fn max_debt(&self) -> u64 {
        self.most - self.burst
    }

    pub fn period(&self) -> Micros {
        self.period
    }

    /// The length of a tick, in microseconds.
    pub fn tick(&self) -> Micros {
        self.tick
    }

    /// The level at `now`, in `1/n'` ticks. A clock that stepped back raises it, at most to the
    /// top.
    fn level(&self, state: &State, now: Micros) -> u64 {
        let ahead = state.tat.saturating_sub(now / self.tick);
        ahead.saturating_mul(self.n).saturating_sub(state.rem).min(self.most * self.p)
    }

    /// Returns the time until `ticks` have passed. The first has begun already.
    fn after(&self, ticks: u64, now: Micros) -> Micros {
        (ticks * self.tick).saturating_sub(now % self.tick)
    }

    fn set(&self, state: &mut State, now: Micros, level: u64) {
        if level == 0 {
            // Or it would be owed again after a step back of the clock.
            *state = State::default();
            return;
        }
        let ahead = level.div_ceil(self.n);
        *state = State { tat: now / self.tick + ahead, rem: ahead * self.n - level };
    }

    /// The state as of `now`: where the clock stepped back so far that the level is beyond the top,
    /// it is at the top.
    pub fn settle(&self, state: &mut State, now: Micros) {
        let ahead = state.tat.saturating_sub(now / self.tick);
        let top = self.most * self.p;
        if ahead.saturating_mul(self.n).saturating_sub(state.rem) > top {
            self.set(state, now, top);
        }
    }

    pub fn judge(&self, state: &State, now: Micros, hits: u64) -> Verdict {
        if hits > self.burst {
            return Verdict { allowed: false, retry_after: None };
        }
        let (wanted, room) = (self.level(state, now) + hits * self.p, self.burst * self.p);
        let retry = || self.after((wanted - room).div_ceil(self.n), now);
        Verdict { allowed: wanted <= room, retry_after: (wanted > room).then(retry) }
    }

    pub fn levels(&self, state: &State, now: Micros) -> Levels {
        let level = self.level(state, now);
        Levels {
            used: level.div_ceil(self.p),
            remaining: (self.burst * self.p).saturating_sub(level) / self.p,
            reset_after: self.after(level.div_ceil(self.n), now),
            empty: level == 0,
        }
    }

    pub fn charge(&self, state: &mut State, now: Micros, hits: u32, denied: bool) {
        let most = if denied { self.most } else { self.burst };
        let level = self.level(state, now);
        let raised = level + u64::from(hits).min(self.most) * self.p;
        self.set(state, now, raised.min((most * self.p).max(level)));
    }

    pub fn give_back(&self, state: &mut State, now: Micros, hits: u32) {
        let level = self.level(state, now);
        let lowered = level.saturating_sub(u64::from(hits).min(self.most) * self.p);
        self.set(state, now, lowered);
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{MAX_PERIOD_SECONDS, SECOND};

    #[test]
    fn the_tick_is_the_shortest_that_stays_exact() {
        let tick = |n, seconds, burst| Gcra::new(n, seconds * SECOND, burst, 0).map(|g| g.tick());
        assert_eq!(tick(1_000_000, 1, 1_000_000), Ok(1));
        assert_eq!(tick(1, 1, u32::MAX), Ok(1));
        assert_eq!(tick(7, 365 * 86_400, 1_000), Ok(1_000));
        assert_eq!(tick(1_000_003, 365 * 86_400, 1_000_000), Ok(1_000_000));
        assert_eq!(tick(u32::MAX, MAX_PERIOD_SECONDS, u32::MAX), Err(GcraError::TooLarge));
        // In lowest terms, one a second is one a second however it is said.
        assert_eq!(tick(u32::MAX, u64::from(u32::MAX).min(MAX_PERIOD_SECONDS), 1), Ok(1));
    }

    #[test]
    fn burst_and_debt_are_back_within_a_thousand_years() {
        let year = 365 * 86_400 * SECOND;
        for (n, burst, debt, expected) in [
            (1, 1_000, 0, None),
            (1, 1_001, 0, Some(1_000)),
            (1, 1, 1_000, Some(1_000)),
            (3, 3_000, 0, None),
            (3, 3_001, 0, Some(3_000)),
            (0, u32::MAX, u32::MAX, None),
        ] {
            let made = Gcra::new(n, year, burst, debt);
            assert_eq!(made.err(), expected.map(GcraError::TooSlow), "{n}, {burst}, {debt}");
        }
    }
}

//! GCRA, the generic cell rate algorithm (`gcra` in rules): after a burst of `b` hits, `n` evenly spaced hits per
//! period. The leaky bucket as a meter is the same: its level is the time until the theoretical arrival time, `tat`.
//!
//! All numbers are whole: today, doubles of microseconds have a step of a quarter of a microsecond. Times are in ticks
//! (of a microsecond; coarser where numbers would get too large). `n'/p'` is `n` over the period, in lowest terms. At
//! time `t` the level is `L = max(0, (tat - t) n' - rem)`, where `rem` is a remainder in the state. A request of `h`
//! hits is allowed iff `L + h p' <= b p'`. Then with the new level `tat = t + ceil(L / n')`, `rem = (tat - t) n' - L`.
//!
//! Replicas that have other numbers for the limit share its `tat`. So `tat` may be far beyond the top of this limit:
//! its burst, and the debt that denied hits may add. It is not cut there: hits that another replica admitted would be
//! allowed again. Beyond the top, every hit is denied and none is charged. Only two things lower `tat`: a refund, by
//! `h p' / n'` ticks, and a clock that stepped back by more than a period. Then `tat` is as far ahead of the clock as
//! when it was written: see [`State`].
//!
//! State: the theoretical arrival time, a remainder, and how far ahead the time was. Cost: a multiplication and a
//! division. Guarantee: after a burst of `b`, one hit every `period / n`; a burst of 1 spaces strictly. Source: ITU-T
//! I.371 and ATM Forum TM 4.0; Brandur Leach, "Rate limiting, cells, and GCRA".

mod state;

use std::fmt::{self, Write};

pub use self::state::State;
use crate::algorithm::{Hits, Levels, LimitAlgorithm, Packed, Verdict, pack_wide, unpack_wide};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::saved::{self, SavedNumbers};
use crate::time::{MAX_PERIOD, MAX_WAIT, MAX_WAIT_YEARS, Micros, SECOND};

/// Integers below this are exact in doubles, and so in every store.
const EXACT: u128 = 1 << 52;

/// `n` hits per period, `burst` of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    burst: u64,
    /// The burst and what may be owed beyond it, if denied hits are charged.
    burst_and_debt: u64,
    /// `n'` and `p'`.
    n: u64,
    p: u64,
    tick: Micros,
    period: Micros,
}

/// Why a limit is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GcraError {
    /// No tick keeps the arithmetic exact.
    #[error("its burst and period are too large for exact arithmetic")]
    TooLarge,
    /// The burst and the debt come back too slowly; this is the largest sum that comes back in time.
    #[error("its burst and debt take more than {MAX_WAIT_YEARS} years to come back")]
    TooSlow(u64),
}

impl Gcra {
    /// Returns the limit of `n` hits a `period`, `burst` of them at once; `max_debt` more may be
    /// owed if denied hits are charged. The tick is the shortest of a microsecond, a millisecond
    /// and a second that keeps the arithmetic exact.
    ///
    /// # Errors
    /// If no tick keeps it exact, and if burst and debt take more than [`MAX_WAIT`] to come back.
    pub fn new(n: u32, period: Micros, burst: u32, max_debt: u32) -> Result<Gcra, GcraError> {
        Gcra::with_ticks(n, period, burst, max_debt, &[1, 1_000, 1_000_000])
    }

    /// Returns a limit whose states every other limit made by this function continues, whatever its numbers. Its tick
    /// is a microsecond. Where that is not exact, `n` over the period is the nearest ratio for which it is.
    ///
    /// # Errors
    /// If the burst takes more than 142 years to come back.
    pub fn continuing(n: u32, period: Micros, burst: u32) -> Result<Gcra, GcraError> {
        let (wanted_n, wanted_p, whole) = (u128::from(n), u128::from(period), u128::from(burst));
        let (mut exact_n, mut exact_p) = (wanted_n, wanted_p);
        let common = gcd(n.into(), period);
        if common > 0 && whole * (wanted_p / u128::from(common)) + wanted_n >= EXACT {
            exact_n = (EXACT - 2 - whole) * wanted_n / (whole * wanted_p + wanted_n);
            exact_p = (exact_n * wanted_p + wanted_n / 2) / wanted_n.max(1);
        }
        // Neither is larger than what was wanted.
        let (n, p) = (exact_n as u64, exact_p as u64);
        if n == 0 || p == 0 {
            return Err(GcraError::TooLarge);
        }
        let common = gcd(n, p);
        let (n, p) = (n / common, p / common);
        let burst = burst.into();
        Ok(Gcra { burst, burst_and_debt: burst, n, p, tick: 1, period })
    }

    /// Returns a replica's share that [continues](Self::continuing) others' states. Numbers that do not fit stay whole.
    pub(crate) fn continuing_share(&self, n: u32, replicas: u32) -> Gcra {
        let period = self.period.saturating_mul(replicas.into());
        let burst = u32::try_from(self.burst).unwrap_or(u32::MAX).div_ceil(replicas);
        Gcra::continuing(n, period.min(MAX_PERIOD.max(self.period)), burst).unwrap_or(*self)
    }

    /// Returns the limit as [`new`](Self::new) does, with one of these ticks.
    fn with_ticks(
        n: u32,
        period: Micros,
        burst: u32,
        max_debt: u32,
        ticks: &[Micros],
    ) -> Result<Gcra, GcraError> {
        if n == 0 {
            // Denied before any arithmetic; old states are kept until `n` is changed back.
            let tick = ticks.first().copied().unwrap_or(1);
            let p = period / tick;
            return Ok(Gcra { burst: 0, burst_and_debt: 0, n: 1, p, tick, period });
        }
        let burst_and_debt = u64::from(burst) + u64::from(max_debt);
        let in_time = u128::from(MAX_WAIT) * u128::from(n) / u128::from(period);
        if u128::from(burst_and_debt) > in_time {
            return Err(GcraError::TooSlow(in_time as u64));
        }
        for &tick in ticks {
            let (n, p) = (u64::from(n), period / tick);
            let common = gcd(n, p);
            let (n, p) = (n / common, p / common);
            if u128::from(burst_and_debt) * u128::from(p) + u128::from(n) < EXACT {
                return Ok(Gcra { burst: burst.into(), burst_and_debt, n, p, tick, period });
            }
        }
        Err(GcraError::TooLarge)
    }

    /// Returns how many hits may come at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the burst, `n'`, `p'`, the tick, and the sum of burst and debt.
    pub fn numbers(&self) -> [u64; 5] {
        [self.burst, self.n, self.p, self.tick, self.burst_and_debt]
    }

    /// Returns how many hits may be owed beyond the burst.
    pub fn max_debt(&self) -> u64 {
        self.burst_and_debt - self.burst
    }

    /// Returns the period of n hits.
    pub fn period(&self) -> Micros {
        self.period
    }

    /// Returns the time in which the whole burst comes back.
    pub fn burst_period(&self) -> Micros {
        divide_up(self.burst * self.p, self.n) * self.tick
    }

    /// Returns the hits that are still allowed if the limit has its full allowance again after a time.
    pub fn remaining_at(&self, reset_after: Micros) -> u64 {
        // The time is rounded up to a tick.
        let level =
            divide(reset_after, self.tick).saturating_mul(self.n).saturating_sub(self.n - 1);
        (self.burst * self.p).saturating_sub(level) / self.p
    }

    /// Returns the unit of time that the limit computes in.
    pub fn tick(&self) -> Micros {
        self.tick
    }

    /// Returns by how many ticks the arrival time is ahead of now.
    fn ahead(&self, state: &State, now: Micros) -> u64 {
        state.tat.saturating_sub(divide(now, self.tick))
    }

    /// Returns the level, in `1/n'` ticks, of a state that is `ahead`. It saturates far beyond the top.
    fn level(&self, state: &State, ahead: u64) -> u64 {
        ahead.saturating_mul(self.n).saturating_sub(state.rem(self.n))
    }

    /// Returns the time until `ticks` have passed, counting the current one.
    fn time_until(&self, ticks: u64, now: Micros) -> Micros {
        ticks.saturating_mul(self.tick).saturating_sub(now - divide(now, self.tick) * self.tick)
    }

    fn set_level(&self, state: &mut State, now: Micros, level: u64) {
        let ahead = divide_up(level, self.n);
        *state = State::new(divide(now, self.tick), ahead, ahead * self.n - level, self.n);
    }
}

impl LimitAlgorithm for Gcra {
    type State = State;

    const NAME: &'static str = "gcra";
    const PACKS: bool = true;
    const COUNTS_AT_ZERO: bool = false;
    const HIT_BYTES: u64 = 0;
    const NEEDS_EXPIRY: bool = false;

    /// After the clock stepped back by more than a period, the state is as far ahead as when it was written.
    fn advance(&self, state: &mut State, now: Micros) {
        let ahead = self.ahead(state, now);
        let period = divide(self.period, self.tick);
        if ahead > period {
            state.step_back(divide(now, self.tick), ahead, self.n, period);
        }
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let Some(others) = self.burst.checked_sub(hits.count.into()) else { return Verdict::NEVER };
        let (ahead, room) = (self.ahead(state, now), others * self.p);
        let allowed = self.level(state, ahead) <= room;
        // Without the level, which may have saturated.
        let retry = || {
            let fits = divide(room + state.rem(self.n), self.n);
            self.time_until(ahead.saturating_sub(fits), now)
        };
        Verdict { allowed, retry_after: (!allowed).then(retry) }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        let ahead = self.ahead(state, now);
        let level = self.level(state, ahead);
        Levels {
            used: level.div_ceil(self.p),
            remaining: (self.burst * self.p).saturating_sub(level) / self.p,
            reset_after: self.time_until(ahead, now),
            empty: ahead == 0,
        }
    }

    fn charge(&self, state: &mut State, now: Micros, hits: Hits, charge_denied: bool) {
        let most = if charge_denied { self.burst_and_debt } else { self.burst } * self.p;
        let level = self.level(state, self.ahead(state, now));
        if level < most {
            let raised = level + u64::from(hits.count).min(self.burst_and_debt) * self.p;
            self.set_level(state, now, raised.min(most));
        }
    }

    /// Lowers the level by what the hits raised it. A limit that admits none has raised nothing.
    fn refund(&self, state: &mut State, now: Micros, hits: Hits) {
        if self.burst_and_debt == 0 {
            return;
        }
        // In ticks, as far as that is exact: the level itself may be beyond it.
        let lower_by = u64::from(hits.count).min((EXACT as u64 - 1) / self.p) * self.p;
        let back = state.rem(self.n) + lower_by;
        let ticks = divide(back, self.n);
        let left = self.ahead(state, now).saturating_sub(ticks);
        *state = State::new(divide(now, self.tick), left, back - ticks * self.n, self.n);
    }

    fn repeats_denials(&self, charge_denied: bool, _: bool) -> bool {
        !charge_denied
    }

    fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, ", gcra with a burst of {}", self.burst)
    }

    fn capacity(&self, _: u32) -> u64 {
        self.burst
    }

    fn refill_time(&self) -> Option<Micros> {
        Some(self.burst_period())
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "g{}/{}", self.period / SECOND, self.tick)
    }

    /// Keeps the tick, which old states are in.
    fn with_numbers(&self, change: NumbersChange) -> Result<Gcra, NumbersError> {
        let narrow = |whole: u64| u32::try_from(whole).unwrap_or(u32::MAX);
        // A limit of 0 has forgotten its burst.
        let old = if change.old == 0 { 0 } else { narrow(self.burst) };
        let burst = change.burst(old);
        let owed = if change.old == 0 { 0 } else { narrow(self.max_debt()) };
        let max_debt = if owed > 0 && owed == old { burst } else { owed };
        let gcra = Gcra::with_ticks(change.new.n, self.period, burst, max_debt, &[self.tick]);
        gcra.map_err(|error| match error {
            GcraError::TooLarge => NumbersError::TooLarge,
            GcraError::TooSlow(_) => NumbersError::TooSlow,
        })
    }

    /// Spaces hits over a longer period. Numbers that do not fit into exact arithmetic stay whole.
    fn replica_share(&self, n: u32, replicas: u32) -> Gcra {
        let period = self.period.saturating_mul(replicas.into()).min(MAX_PERIOD);
        let divide = |whole: u64| u32::try_from(whole).unwrap_or(u32::MAX).div_ceil(replicas);
        let (burst, max_debt) = (divide(self.burst), divide(self.max_debt()));
        let share = match Gcra::new(n, period, burst, max_debt) {
            // Rounded up, it takes longer to come back than the whole may.
            Err(GcraError::TooSlow(most)) => {
                let most = u32::try_from(most).unwrap_or(u32::MAX);
                let burst = burst.min(most);
                Gcra::new(n, period, burst, max_debt.min(most - burst))
            }
            share => share,
        };
        share.unwrap_or(*self)
    }

    fn pack(state: &State) -> Packed {
        pack_wide(state.tat, state.tail)
    }

    fn unpack(&self, packed: Packed, _: Micros) -> State {
        let (tat, tail) = unpack_wide(packed);
        State { tat, tail }
    }

    const TAG: u64 = 6;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.tat);
        saved::put(out, state.tail.into());
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        Some(State { tat: saved.next()?, tail: saved.next_u32()? })
    }
}

/// Most divisors are 1: ticks of a microsecond, and one hit every few of them. A division takes longer than
/// the rest of a decision's arithmetic.
#[inline]
fn divide(value: u64, by: u64) -> u64 {
    if by == 1 { value } else { value / by }
}

#[inline]
fn divide_up(value: u64, by: u64) -> u64 {
    if by == 1 { value } else { value.div_ceil(by) }
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
    use crate::{MAX_PERIOD_SECONDS, SECOND};

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
    fn continuing_limits_share_a_tick() {
        let year = 365 * 86_400 * SECOND;
        for (n, period, burst) in [
            (1, SECOND, 1),
            (3, SECOND, 15),
            (u32::MAX, SECOND, u32::MAX),
            (u32::MAX - 4, 86_400 * SECOND, u32::MAX),
            (1_000_003, 365 * 86_400 * SECOND, 1_000_000),
            (1, year, 142),
        ] {
            let gcra = Gcra::continuing(n, period, burst).unwrap();
            let [_, n1, p1, tick, most] = gcra.numbers();
            assert_eq!(tick, 1);
            // With less than a microsecond for a hit, times do not tell hits apart.
            for taken in [0, 1, burst / 2, burst].into_iter().filter(|_| n1 <= p1) {
                let reset_after = divide_up(u64::from(taken) * p1, n1);
                assert_eq!(gcra.remaining_at(reset_after), u64::from(burst - taken));
            }
            assert!(
                u128::from(most) * u128::from(p1) + u128::from(n1) < EXACT && most >= burst.into()
            );
            let (wanted, got) = (f64::from(n) / period as f64, n1 as f64 / p1 as f64);
            assert!((wanted / got - 1.0).abs() < 1e-6, "{n} {period} {burst}: {wanted} {got}");
        }
        for (n, period, burst) in [(0, SECOND, 1), (1, year, 143), (1, year, u32::MAX)] {
            assert_eq!(Gcra::continuing(n, period, burst), Err(GcraError::TooLarge));
        }
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

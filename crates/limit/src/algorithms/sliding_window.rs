//! Sliding window of two counters (`sliding_window` in rules): the previous window counts in proportion to its part
//! that is within one period.
//!
//! At time `t`, with period `p`, `i = floor(t / p)` and `e = t - i p`, a request of `h` hits is allowed iff
//! `previous (p - e) / p <= n - current - h`, in doubles and in this order, so that every store decides alike; the left
//! side is at most `previous`.
//!
//! State: the window's index and two counts. Cost: a multiplication and a division. Guarantee: near `n` in any period,
//! exact if traffic in the previous window was even. Source: Cloudflare, "Counting things, a lot of different things",
//! which found 0.003 % wrong decisions over 400 million requests.

use std::fmt::{self, Write};

use crate::algorithm::{Hits, Levels, LimitAlgorithm, Packed, Verdict};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::plan::op::Undo;
use crate::saved::{self, SavedNumbers};
use crate::time::{Micros, SECOND};

/// The last instant for which states packed into 12 bytes are exact: about the year 2112.
const LAST_INSTANT: Micros = 1 << 52;

/// About `n` hits in any span of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The hits that one period allows.
    pub n: u32,
    /// The length of the period.
    pub period: Micros,
}

/// The counts of two windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number of the current window since the epoch.
    pub index: u64,
    /// Hits counted in the window before.
    pub previous: u32,
    /// Hits counted in the current window.
    pub current: u32,
}

impl SlidingWindow {
    /// Returns the time since the current window started; 0 if the clock stepped back out of it.
    fn elapsed(&self, state: &State, now: Micros) -> Micros {
        now.saturating_sub(state.index.saturating_mul(self.period))
    }

    /// Returns how many hits of the previous window still count, `elapsed` into the current one.
    fn weighted(&self, previous: u32, elapsed: Micros) -> f64 {
        let previous = f64::from(previous);
        // Rounding may yield more than the whole.
        (previous * (self.period - elapsed) as f64 / self.period as f64).min(previous)
    }

    /// Returns from when in a window `previous` hits of the one before weigh no more than `room`.
    fn fits_from(&self, previous: u32, room: i64) -> Micros {
        let fits = |elapsed| self.weighted(previous, elapsed) <= room as f64;
        if previous == 0 || fits(0) {
            return 0;
        }
        // The closed form, then corrected for rounding.
        let guess = room as f64 * self.period as f64 / f64::from(previous);
        let mut elapsed = self.period - (guess as Micros).min(self.period);
        while elapsed > 0 && fits(elapsed - 1) {
            elapsed -= 1;
        }
        while elapsed < self.period && !fits(elapsed) {
            elapsed += 1;
        }
        elapsed
    }
}

impl LimitAlgorithm for SlidingWindow {
    type State = State;

    const NAME: &'static str = "sliding_window";
    const PACKS: bool = true;
    const COUNTS_AT_ZERO: bool = true;
    const HIT_BYTES: u64 = 0;
    const NEEDS_EXPIRY: bool = false;

    fn advance(&self, state: &mut State, now: Micros) {
        let newest = state.index.saturating_mul(self.period);
        if newest > now.saturating_add(self.period) {
            // Into the next window: how much of its own had passed is unknown, and only a start
            // that is not before now admits nothing extra. Without hits it is as no state.
            let has_hits = state.previous > 0 || state.current > 0;
            state.index = if has_hits { now.div_ceil(self.period) } else { now / self.period };
        }
        let index = now / self.period;
        match index.saturating_sub(state.index) {
            0 => {}
            1 => *state = State { index, previous: state.current, current: 0 },
            _ => *state = State { index, previous: 0, current: 0 },
        }
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let (n, hits) = (i64::from(self.n), i64::from(hits.count));
        let elapsed = self.elapsed(state, now);
        let room = n - i64::from(state.current) - hits;
        if self.weighted(state.previous, elapsed) <= room as f64 {
            return Verdict::ALLOWED;
        }
        let start = state.index.saturating_mul(self.period);
        let at = if room >= 0 {
            Some(start.saturating_add(self.fits_from(state.previous, room)))
        } else if hits <= n {
            let next = start.saturating_add(self.period);
            Some(next.saturating_add(self.fits_from(state.current, n - hits)))
        } else {
            None
        };
        Verdict { allowed: false, retry_after: at.map(|at| at.saturating_sub(now)) }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        let start = state.index.saturating_mul(self.period);
        let weighted = self.weighted(state.previous, self.elapsed(state, now)).ceil() as u64;
        let used = u64::from(state.current) + weighted;
        let windows = match (state.previous, state.current) {
            (0, 0) => 0,
            (_, 0) => 1,
            _ => 2,
        };
        let reset = start.saturating_add(self.period.saturating_mul(windows));
        Levels {
            used,
            remaining: u64::from(self.n).saturating_sub(used),
            reset_after: if windows == 0 { 0 } else { reset.saturating_sub(now) },
            empty: windows == 0,
        }
    }

    fn charge(&self, state: &mut State, _: Micros, hits: Hits, _: bool) {
        state.current = state.current.saturating_add(hits.count);
    }

    fn refund(&self, state: &mut State, _: Micros, hits: Hits) {
        let rest = hits.count.saturating_sub(state.current);
        state.current = state.current.saturating_sub(hits.count);
        state.previous = state.previous.saturating_sub(rest);
    }

    fn newest_window(&self, state: &State) -> Micros {
        state.index.saturating_mul(self.period)
    }

    fn window_end(&self, t: Micros) -> Option<Micros> {
        Some((t / self.period + 1).saturating_mul(self.period))
    }

    fn undo_of(&self, before: &State, after: &State, now: Micros) -> Option<Undo> {
        let hits = after.current - before.current;
        Undo::new(hits.into(), now.max(self.newest_window(after)))
    }

    fn undo(&self, state: &mut State, undo: &Undo) {
        let count = match state.index.saturating_sub(undo.taken / self.period) {
            0 => &mut state.current,
            1 => &mut state.previous,
            _ => return,
        };
        *count = count.saturating_sub(undo.hits);
    }

    fn repeats_denials(&self, charge_denied: bool, _: bool) -> bool {
        !charge_denied
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "s{}", self.period / SECOND)
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<SlidingWindow, NumbersError> {
        Ok(SlidingWindow { n: change.without_burst()?, ..*self })
    }

    /// Keeps the low 32 bits of the index.
    fn pack(state: &State) -> Packed {
        [state.index as u32, state.previous, state.current]
    }

    fn unpack(&self, [index, previous, current]: Packed, now: Micros) -> State {
        if (previous, current) == (0, 0) {
            return State::default();
        }
        let index = nearest_index(index, now / self.period, LAST_INSTANT / self.period);
        State { index, previous, current }
    }

    const TAG: u64 = 2;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.index);
        saved::put(out, state.previous.into());
        saved::put(out, state.current.into());
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        let (index, previous) = (saved.next()?, saved.next_u32()?);
        Some(State { index, previous, current: saved.next_u32()? })
    }
}

/// Returns the index of a window from its low 32 bits: the one nearest to `near`, up to `last`.
///
/// With a period of two seconds or more, only one such window starts before [`LAST_INSTANT`]. With
/// one second, the result is right while the state is less than 68 years away.
fn nearest_index(low: u32, near: u64, last: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32);
    match near.checked_add_signed(i64::from(ahead.cast_signed())) {
        None => near + u64::from(ahead),
        Some(index) if index > last => index.saturating_sub(1 << 32),
        Some(index) => index,
    }
}

//! Fixed window (`fixed_window` in rules): at most `n` hits between two boundaries.
//!
//! A request of `h` hits is allowed iff `c + h <= n`, where `c` counts the hits since the window started. Windows start
//! at multiples of the period since the epoch or, if the rule names a time zone, by its calendar.
//!
//! State: the window's start and its count. Cost: a comparison. Guarantee: at most `n` in a window, so up to `2n`
//! within one period across a boundary, by design. Source: envoyproxy/ratelimit.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::algorithm::{Hits, Levels, LimitAlgorithm, Packed, Verdict, pack_wide, unpack_wide};
use crate::calendar::Calendar;
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::plan::op::Undo;
use crate::saved::{self, SavedNumbers};
use crate::time::{Micros, SECOND};

/// `n` hits in each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// The hits that one period allows.
    pub n: u32,
    /// The window's length; with a calendar, about that.
    pub period: Micros,
    /// The calendar of the windows; without one they start at multiples of the period since the epoch.
    pub calendar: Option<Arc<Calendar>>,
}

/// The newest window and its count. A window that has passed counts as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The start of the window.
    pub window: Micros,
    /// Hits counted in it; may exceed `n` if denied hits are charged. Saturates.
    pub count: u32,
}

impl FixedWindow {
    /// Returns the start and the end of the window of `t`.
    fn window(&self, t: Micros) -> (Micros, Micros) {
        match &self.calendar {
            None => {
                let start = t - t % self.period;
                (start, start.saturating_add(self.period))
            }
            Some(calendar) => calendar.window(t),
        }
    }
}

impl LimitAlgorithm for FixedWindow {
    type State = State;

    const NAME: &'static str = "fixed_window";
    const PACKS: bool = true;
    const COUNTS_AT_ZERO: bool = true;
    const ANSWERS_LOOKS_IF_N_IS_ZERO: bool = true;
    // A window that denies some hits denies more until it ends.
    const DENIAL_COVERS_MORE_HITS: bool = true;
    const HIT_BYTES: u64 = 0;
    const RESET_RECURS: bool = true;
    const NEEDS_EXPIRY: bool = false;

    /// A clock that stepped back stays in the newest window, unless that is more than a period
    /// ahead: then its count moves into the window of now.
    fn advance(&self, state: &mut State, now: Micros) {
        let ahead = state.window > now.saturating_add(self.period);
        let (start, _) = self.window(if ahead { now } else { now.max(state.window) });
        if start != state.window {
            *state = State { window: start, count: if ahead { state.count } else { 0 } };
        }
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let (n, hits) = (u64::from(self.n), u64::from(hits.count));
        let allowed = u64::from(state.count) + hits <= n;
        let wait = || self.window(state.window).1.saturating_sub(now);
        Verdict { allowed, retry_after: (!allowed && hits <= n).then(wait) }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        Levels {
            used: state.count.into(),
            remaining: self.n.saturating_sub(state.count).into(),
            reset_after: self.window(state.window).1.saturating_sub(now),
            empty: state.count == 0,
        }
    }

    fn charge(&self, state: &mut State, _: Micros, hits: Hits, _: bool) {
        state.count = state.count.saturating_add(hits.count);
    }

    fn refund(&self, state: &mut State, _: Micros, hits: Hits) {
        state.count = state.count.saturating_sub(hits.count);
    }

    fn newest_window(&self, state: &State) -> Micros {
        state.window
    }

    fn window_end(&self, t: Micros) -> Option<Micros> {
        Some(self.window(t).1)
    }

    fn undo_of(&self, before: &State, after: &State, now: Micros) -> Option<Undo> {
        Undo::new((after.count - before.count).into(), now.max(after.window))
    }

    fn undo(&self, state: &mut State, undo: &Undo) {
        if state.window <= undo.taken {
            state.count = state.count.saturating_sub(undo.hits);
        }
    }

    /// With `charge_denied`, denials are repeated only if the rule has no other limit: this one stays
    /// over its limit all the same, but other limits would miss the uncharged hits.
    fn repeats_denials(&self, charge_denied: bool, alone: bool) -> bool {
        !charge_denied || alone
    }

    fn write_text(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(calendar) = &self.calendar else { return Ok(()) };
        write!(text, " of the calendar, {}", calendar.zone())?;
        match calendar.starts() {
            "" => Ok(()),
            starts => write!(text, ", from {starts}"),
        }
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "f{}", self.period / SECOND)?;
        let Some(calendar) = &self.calendar else { return Ok(()) };
        write!(shape, "@{}", calendar.zone())?;
        match calendar.starts() {
            "" => Ok(()),
            starts => write!(shape, "@{starts}"),
        }
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<FixedWindow, NumbersError> {
        Ok(FixedWindow { n: change.without_burst()?, ..self.clone() })
    }

    fn pack(state: &State) -> Packed {
        pack_wide(state.window, state.count)
    }

    fn unpack(&self, packed: Packed, _: Micros) -> State {
        let (window, count) = unpack_wide(packed);
        State { window, count }
    }

    const TAG: u64 = 1;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.window);
        saved::put(out, state.count.into());
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        Some(State { window: saved.next()?, count: saved.next_u32()? })
    }
}

//! Fixed window: at most `n` hits between two boundaries.
//!
//! Allowed iff `c + h <= n`, where `c` counts the hits since the window began. Windows begin at
//! multiples of the period since the epoch, or where the calendar says.
//!
//! State: the window's beginning and its count. Cost: a comparison. Guarantee: at most `n` in a
//! window; so up to `2n` within one period across a boundary, by design. Source: what
//! envoyproxy/ratelimit does.

use std::sync::Arc;

use super::{Calendar, Levels, Micros, Verdict, wait};

/// `n` hits in each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub n: u32,
    /// The window's length; by the calendar about that.
    pub period: Micros,
    /// None: windows begin at multiples of the period since the epoch.
    pub calendar: Option<Arc<Calendar>>,
}

/// The window counted and its count. A window that has passed counts as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Where the window begins.
    pub window: Micros,
    /// Hits counted in it; may pass `n` where denied hits are charged. Saturates.
    pub count: u32,
}

impl FixedWindow {
    /// The beginning and the end of the window that `t` is in.
    fn window(&self, t: Micros) -> (Micros, Micros) {
        match &self.calendar {
            None => {
                let start = t - t % self.period;
                (start, start.saturating_add(self.period))
            }
            Some(calendar) => calendar.window(t),
        }
    }

    /// The state as of `now`. A clock that stepped back stays in the newest window, unless that
    /// is more than a period ahead: then its count goes into the window of now.
    pub fn settle(&self, state: &mut State, now: Micros) {
        let ahead = state.window > now.saturating_add(self.period);
        let (start, _) = self.window(if ahead { now } else { now.max(state.window) });
        if start != state.window {
            *state = State { window: start, count: if ahead { state.count } else { 0 } };
        }
    }

    pub fn judge(&self, state: &State, now: Micros, hits: u64) -> Verdict {
        let n = u64::from(self.n);
        let allowed = u64::from(state.count) + hits <= n;
        let end = || wait(self.window(state.window).1, now);
        Verdict { allowed, retry_after: (!allowed && hits <= n).then(end) }
    }

    pub fn levels(&self, state: &State, now: Micros) -> Levels {
        Levels {
            used: state.count.into(),
            remaining: self.n.saturating_sub(state.count).into(),
            reset_after: wait(self.window(state.window).1, now),
            empty: state.count == 0,
        }
    }

    pub fn charge(&self, state: &mut State, hits: u32) {
        state.count = state.count.saturating_add(hits);
    }

    pub fn give_back(&self, state: &mut State, hits: u32) {
        state.count = state.count.saturating_sub(hits);
    }
}

//! Fixed window: at most `n` hits between two multiples of the period.

use super::Micros;
use super::Verdict;

/// `n` hits in each window of `period`, windows beginning at multiples of it since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub n: u32,
    pub period: Micros,
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
    /// The state as of `now`: a window that has passed is empty. A clock that stepped back stays
    /// in the newest window, unless that is more than a period ahead of it.
    pub fn settle(&self, state: &mut State, now: Micros) {
        let window = now - now % self.period;
        if state.count == 0 || window > state.window || state.window > now + self.period {
            let count = if state.window > now + self.period { state.count } else { 0 };
            *state = State { window, count };
        }
    }

    /// What a settled state says of `hits`, without charging them.
    pub fn judge(&self, state: &State, now: Micros, hits: u64) -> Verdict {
        let (n, count) = (u64::from(self.n), u64::from(state.count));
        let t = now.max(state.window);
        let end = state.window + self.period - t;
        let allowed = count.saturating_add(hits) <= n;
        Verdict {
            allowed,
            used_before: count,
            remaining: n.saturating_sub(count),
            reset_after: end,
            retry_after: (!allowed && hits <= n).then_some(end),
        }
    }

    /// Counts `hits`.
    pub fn charge(&self, state: &mut State, hits: u64) {
        state.count = u32::try_from(hits).map_or(u32::MAX, |hits| state.count.saturating_add(hits));
    }
}

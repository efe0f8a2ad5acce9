//! When a grant has to end: before its window does, by the clock of the store. Pure.

use std::num::NonZeroU64;

use weir_limit::{Micros, Plan, SECOND};

/// By how much a clock may run faster than the store's: one in this number.
const DRIFT: Micros = 1_000;

/// How late a client may apply what it is sent. A grant ends this long before its window, where all take their time.
const LATE: Micros = SECOND;

/// The end of a window in which nothing is granted any more.
const TOO_LATE: Micros = 2 * SECOND;

/// The longest time that a client may use a grant.
const LONGEST: Micros = 20 * SECOND;

/// When a window ends, by the clock of this process: the store's is known only from its answers, which take some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    /// The end, in the store's time.
    pub end: NonZeroU64,
    /// Before this instant the window has not ended.
    pub earliest: Micros,
    /// From this instant on the window has ended.
    pub latest: Micros,
}

impl WindowEnd {
    /// Returns the end of the window of a charge, which the store made at `store_now` between two instants.
    pub fn new(plan: &Plan, store_now: Micros, sent: Micros, answered: Micros) -> WindowEnd {
        let end = plan.window_end(store_now);
        let left = end.saturating_sub(store_now);
        let drift = left.div_ceil(DRIFT);
        WindowEnd {
            end: NonZeroU64::new(end).unwrap_or(NonZeroU64::MIN),
            earliest: sent.saturating_add(left - drift.min(left)),
            latest: answered.saturating_add(left).saturating_add(drift),
        }
    }

    /// Returns the time that the window lasts at least.
    pub fn left(&self, now: Micros) -> Micros {
        self.earliest.saturating_sub(now)
    }

    /// Returns for how long a grant may be used that is sent now, in whole seconds; none if it is too late for one.
    pub fn grant_for(&self, now: Micros) -> Option<Micros> {
        let left = self.left(now);
        let lasts = left.saturating_sub(LATE).min(LONGEST) / SECOND * SECOND;
        (left >= TOO_LATE && lasts > 0).then_some(lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_limit::{Limit, Unit};

    #[test]
    fn a_grant_ends_a_second_before_its_window_and_in_whole_seconds() {
        let plan = Plan::new(vec![Limit::fixed_window(5, Unit::Minute, 1).unwrap()]);
        let at = |second: Micros| 600 * SECOND + second * SECOND;
        let window = WindowEnd::new(&plan, at(0), 1_000, 3_000);
        assert_eq!(window.end.get(), at(60));
        assert_eq!(window.earliest, 1_000 + 59_940_000);
        assert_eq!(window.latest, 3_000 + 60_060_000);
        let lasts = |left: Micros| window.grant_for(window.earliest - left);
        assert_eq!(lasts(59 * SECOND), Some(20 * SECOND));
        assert_eq!(lasts(9 * SECOND), Some(8 * SECOND));
        assert_eq!(lasts(9 * SECOND - 1), Some(7 * SECOND));
        assert_eq!(lasts(2 * SECOND), Some(SECOND));
        assert_eq!(lasts(2 * SECOND - 1), None);
        assert_eq!(lasts(0), None);
        assert_eq!(window.grant_for(window.latest), None);
    }
}

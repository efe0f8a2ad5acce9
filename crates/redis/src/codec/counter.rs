//! Counters: if a plan (the limits of a rule) is one fixed window aligned to the epoch, its state in Redis is one
//! number, with the window and its count. The packed formats of [`codec`](super) have its layout.

use super::format::{FIXED_WINDOW, LuaModule};
use super::numbers;
use weir_limit::algorithms::fixed_window;
use weir_limit::{Algorithm, FixedWindow, Limit, LimitState, Micros, Plan, State};
use weir_store::StoreError;

pub(super) const MODULE: LuaModule =
    LuaModule { borrows: true, ..LuaModule::new(10, include_str!("../lua/lone_window.lua")) };

/// The bits of the Lua modules by which charge.lua charges a counter, as in one call with other keys.
pub(crate) const COUNTERS: u16 = 1 << MODULE.number | 1 << FIXED_WINDOW;

pub(super) const WINDOWS: u64 = (1 << 20) - 2;

/// The bits of the count. One more than a count needs: a full count may exceed the maximum until a script reads it, and
/// does not reach the next window.
const COUNT_BITS: u32 = 33;
pub(super) const COUNTS: u64 = 1 << COUNT_BITS;

/// Numbers from here on are not counters.
pub(super) const STATES: u64 = 1 << 53;

/// The counters from here on are failures instead, in steps that doubles of this size can represent.
pub(super) const COUNTER_FAILURES: u64 = 1 << 54;
pub(super) const COUNTER_FAILURE_STEP: u64 = 4;

/// Returns the failure that the script of counters replies in place of a number, if it is one.
pub(crate) fn counter_failure(number: u64) -> Option<StoreError> {
    number.checked_sub(COUNTER_FAILURES).map(|code| numbers::error(code / COUNTER_FAILURE_STEP))
}

/// Returns how far the window of a counter is ahead of that of `now`; `None` if it is of no window.
pub(crate) fn windows_ahead(number: u64, period: Micros, now: Micros) -> Option<i64> {
    let window = (number >> COUNT_BITS).checked_sub(1)?;
    let ahead = (window + WINDOWS - now / period % WINDOWS) % WINDOWS;
    let ahead = ahead.cast_signed();
    Some(if ahead < WINDOWS.cast_signed() / 2 { ahead } else { ahead - WINDOWS.cast_signed() })
}

/// Returns whether a counter's count exceeds the maximum.
pub(crate) fn is_overfull(number: u64) -> bool {
    number % COUNTS > u32::MAX.into()
}

/// Returns a counter from a reply of Redis, if it is one.
pub(crate) fn counter_number(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < STATES)
}

/// Returns the window if the plan is one fixed window aligned to the epoch: its state is one number.
pub(crate) fn lone_window(plan: &Plan) -> Option<(&Limit, &FixedWindow)> {
    let [limit] = plan.limits() else { return None };
    let Algorithm::FixedWindow(window) = &limit.algorithm else { return None };
    (window.calendar.is_none() && plan.ban().is_none()).then_some((limit, window))
}

/// Returns the state of a counter at `now`; `None` if it is not a counter.
pub(crate) fn read_counter(plan: &Plan, number: u64, now: Micros) -> Option<State> {
    let (_, window) = lone_window(plan)?;
    let state = match windows_ahead(number, window.period, now) {
        None => fixed_window::State::default(),
        Some(ahead) => {
            let index = (now / window.period).checked_add_signed(ahead)?;
            let count = u32::try_from(number % COUNTS).unwrap_or(u32::MAX);
            fixed_window::State { window: index * window.period, count }
        }
    };
    Some(State::new(Box::new([LimitState::FixedWindow(state)])))
}

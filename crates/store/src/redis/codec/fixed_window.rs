//! Fixed windows: those aligned to the epoch, and those that follow the calendar.

use super::{Codec, LuaModule, Reader, counter, put_all};
use weir_limit::algorithms::fixed_window::State;
use weir_limit::{FixedWindow, LimitState, Micros};

pub(super) const MODULE: LuaModule = LuaModule {
    number: super::FIXED_WINDOW,
    borrows_from: None,
    text: include_str!("../lua/fixed_window.lua"),
};

pub(super) const CALENDAR_MODULE: LuaModule = LuaModule {
    number: 2,
    borrows_from: Some(MODULE.number),
    text: include_str!("../lua/calendar.lua"),
};

impl Codec for FixedWindow {
    const MODULES: &'static [&'static LuaModule] = &[&MODULE, &CALENDAR_MODULE, &counter::MODULE];

    fn module(&self) -> &'static LuaModule {
        if self.calendar.is_none() { &MODULE } else { &CALENDAR_MODULE }
    }

    fn write_numbers(&self, now: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
        if let Some(calendar) = &self.calendar {
            put_all(out, &calendar.boundaries(now));
        }
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State { window: numbers.wide()?, count: numbers.short()? };
        Some(LimitState::FixedWindow(state))
    }
}

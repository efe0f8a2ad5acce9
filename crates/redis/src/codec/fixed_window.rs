//! Fixed windows: those aligned to the epoch, and those that follow the calendar.

use super::counter;
use super::format::{Codec, FIXED_WINDOW, LuaModule, Reader, put_all};
use weir_limit::algorithms::fixed_window::State;
use weir_limit::{FixedWindow, LimitState, Micros};

const CALENDAR_MODULE: LuaModule =
    LuaModule { borrows: true, ..LuaModule::new(2, include_str!("../lua/calendar.lua")) };

impl Codec for FixedWindow {
    const MODULE: &'static LuaModule =
        &LuaModule::new(FIXED_WINDOW, include_str!("../lua/fixed_window.lua"));
    const MODULES: &'static [&'static LuaModule] =
        &[Self::MODULE, &CALENDAR_MODULE, &counter::MODULE];

    fn module(&self) -> &'static LuaModule {
        if self.calendar.is_none() { Self::MODULE } else { &CALENDAR_MODULE }
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

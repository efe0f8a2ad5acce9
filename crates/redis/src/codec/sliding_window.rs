//! Sliding windows of two counters.

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::sliding_window::State;
use weir_limit::{LimitState, Micros, SlidingWindow};

impl Codec for SlidingWindow {
    const MODULE: &'static LuaModule =
        &LuaModule::new(3, include_str!("../lua/sliding_window.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let (index, previous, current) = (numbers.wide()?, numbers.short()?, numbers.short()?);
        Some(LimitState::SlidingWindow(State { index, previous, current }))
    }
}

//! GCRA.

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::gcra::State;
use weir_limit::{Gcra, LimitState, Micros};

impl Codec for Gcra {
    const MODULE: &'static LuaModule = &LuaModule::new(7, include_str!("../lua/gcra.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &self.numbers());
        put_all(out, &[self.period() / self.tick()]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State { tat: numbers.wide()?, tail: numbers.short()? };
        Some(LimitState::Gcra(state))
    }
}

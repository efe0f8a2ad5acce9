//! GCRA.

use super::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::gcra::State;
use weir_limit::{Gcra, LimitState, Micros};

pub(super) const MODULE: LuaModule =
    LuaModule { number: 7, borrows_from: None, text: include_str!("../lua/gcra.lua") };

impl Codec for Gcra {
    const MODULES: &'static [&'static LuaModule] = &[&MODULE];

    fn module(&self) -> &'static LuaModule {
        &MODULE
    }

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &self.numbers());
        put_all(out, &[self.period() / self.tick()]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State { tat: numbers.wide()?, tail: numbers.short()? };
        Some(LimitState::Gcra(state))
    }
}

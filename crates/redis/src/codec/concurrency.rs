//! Concurrency: a count, or with hold ids the holds under a key of their own.

use std::collections::VecDeque;

use super::format::{Codec, LuaModule, Reader, put_all};
use super::numbers::LAYOUT;
use weir_limit::algorithms::concurrency::{Hold, State};
use weir_limit::{Concurrency, LimitState, Micros};

const HOLDS_MODULE: LuaModule = LuaModule::new(9, include_str!("../lua/holds.lua"));

impl Codec for Concurrency {
    const MODULE: &'static LuaModule = &LuaModule::new(8, include_str!("../lua/concurrency.lua"));
    const MODULES: &'static [&'static LuaModule] = &[Self::MODULE, &HOLDS_MODULE];

    fn module(&self) -> &'static LuaModule {
        if self.hold_id.is_none() { Self::MODULE } else { &HOLDS_MODULE }
    }

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.timeout]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State::from_count(numbers.wide()?, numbers.wide()?);
        Some(LimitState::Concurrency(Box::new(state)))
    }

    fn read_own_key(&self, text: &[u8]) -> Option<Option<LimitState>> {
        if self.hold_id.is_none() {
            return Some(None);
        }
        let state = if text.is_empty() { State::default() } else { read_holds(Reader(text))? };
        Some(Some(LimitState::Concurrency(Box::new(state))))
    }
}

fn read_holds(mut text: Reader<'_>) -> Option<State> {
    if text.bytes(1)? != [LAYOUT] {
        return None;
    }
    let last = text.wide()?;
    let mut holds = VecDeque::new();
    while !text.0.is_empty() {
        let id = u64::from_le_bytes(text.bytes(8)?.try_into().ok()?);
        holds.push_back(Hold { id, start: text.wide()?, hits: text.short()? });
    }
    Some(State::from_holds(holds, last))
}

//! The bucket of `RL.REDUCE`.

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::reduce_bucket::State;
use weir_limit::{LimitState, Micros, ReduceBucket};

impl Codec for ReduceBucket {
    const MODULE: &'static LuaModule =
        &LuaModule::new(11, include_str!("../lua/reduce_bucket.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        let at = self.at.map_or(0, |at| at + 1);
        let numbers = [self.max.into(), self.refill.into(), self.interval, at, self.strict.into()];
        put_all(out, &numbers);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State { missing: numbers.short()?, last: numbers.wide()? };
        Some(LimitState::ReduceBucket(state))
    }
}

//! Token buckets.

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::token_bucket::State;
use weir_limit::{LimitState, Micros, TokenBucket};

impl Codec for TokenBucket {
    const MODULE: &'static LuaModule = &LuaModule::new(6, include_str!("../lua/token_bucket.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        let capacity = u64::from(self.capacity);
        let capacity_and_debt = capacity + u64::from(self.max_debt);
        put_all(out, &[capacity, self.interval, self.amount.into(), capacity_and_debt]);
    }

    fn is_strict(&self) -> bool {
        self.strict
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = State { missing: numbers.wide()?, last: numbers.wide()? };
        Some(LimitState::TokenBucket(state))
    }
}

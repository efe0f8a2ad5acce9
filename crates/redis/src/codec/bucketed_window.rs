//! Bucketed windows. Their rings come after the numbers of all limits.

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::algorithms::bucketed_window::State;
use weir_limit::{BucketedWindow, LimitState, Micros};

impl Codec for BucketedWindow {
    const MODULE: &'static LuaModule =
        &LuaModule::new(5, include_str!("../lua/bucketed_window.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period, self.slots().into(), self.span()]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let (index, _sum) = (numbers.wide()?, numbers.wide()?);
        let state = State::from_ring(index, Box::default());
        Some(LimitState::BucketedWindow(Box::new(state)))
    }

    fn read_rest(&self, state: &mut LimitState, rest: &mut Reader<'_>) -> Option<()> {
        let LimitState::BucketedWindow(state) = state else { return None };
        let ring: Option<Box<[u32]>> = (0..self.slots()).map(|_| rest.short()).collect();
        **state = State::from_ring(state.index, ring?);
        Some(())
    }
}

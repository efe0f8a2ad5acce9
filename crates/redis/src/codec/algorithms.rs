//! How limits and bans, and their states, are packed for Redis; `sliding_log` and some variants have their own files.

use std::collections::VecDeque;

use super::format::{Codec, FIXED_WINDOW, LuaModule, Reader, put, put_all};
use super::numbers::LAYOUT;
use weir_limit::algorithms::concurrency::{self, Hold};
use weir_limit::algorithms::{
    bucketed_window, fixed_window, gcra, reduce_bucket, sliding_window, token_bucket,
};
use weir_limit::{
    Ban, BanState, BucketedWindow, Concurrency, FixedWindow, Gcra, LimitState, Micros,
    ReduceBucket, SlidingWindow, TokenBucket,
};

/// The module of counters: if a plan is one fixed window aligned to the epoch, its state is one number.
pub(super) const COUNTER_MODULE: LuaModule =
    LuaModule { borrows: true, ..LuaModule::new(10, include_str!("../lua/lone_window.lua")) };

/// The bits of the Lua modules by which charge.lua charges a counter, as in one call with other keys.
pub(crate) const COUNTERS: u16 = 1 << COUNTER_MODULE.number | 1 << FIXED_WINDOW;

const CALENDAR_MODULE: LuaModule =
    LuaModule { borrows: true, ..LuaModule::new(2, include_str!("../lua/calendar.lua")) };

/// Fixed windows: those aligned to the epoch, and those that follow the calendar.
impl Codec for FixedWindow {
    const MODULE: LuaModule = LuaModule::new(FIXED_WINDOW, include_str!("../lua/fixed_window.lua"));
    const MODULES: &'static [LuaModule] = &[Self::MODULE, CALENDAR_MODULE, COUNTER_MODULE];

    fn module(&self) -> LuaModule {
        if self.calendar.is_none() { Self::MODULE } else { CALENDAR_MODULE }
    }

    fn write_numbers(&self, now: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
        if let Some(calendar) = &self.calendar {
            put_all(out, &calendar.boundaries(now));
        }
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = fixed_window::State { window: numbers.wide()?, count: numbers.short()? };
        Some(LimitState::FixedWindow(state))
    }
}

impl Codec for SlidingWindow {
    const MODULE: LuaModule = LuaModule::new(3, include_str!("../lua/sliding_window.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let (index, previous, current) = (numbers.wide()?, numbers.short()?, numbers.short()?);
        Some(LimitState::SlidingWindow(sliding_window::State { index, previous, current }))
    }
}

/// Bucketed windows. Their rings come after the numbers of all limits.
impl Codec for BucketedWindow {
    const MODULE: LuaModule = LuaModule::new(5, include_str!("../lua/bucketed_window.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period, self.slots().into(), self.span()]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let (index, _sum) = (numbers.wide()?, numbers.wide()?);
        let state = bucketed_window::State::from_ring(index, Box::default());
        Some(LimitState::BucketedWindow(Box::new(state)))
    }

    fn read_rest(&self, state: &mut LimitState, rest: &mut Reader<'_>) -> Option<()> {
        let LimitState::BucketedWindow(state) = state else { return None };
        let ring: Option<Box<[u32]>> = (0..self.slots()).map(|_| rest.short()).collect();
        **state = bucketed_window::State::from_ring(state.index, ring?);
        Some(())
    }
}

impl Codec for TokenBucket {
    const MODULE: LuaModule = LuaModule::new(6, include_str!("../lua/token_bucket.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        let capacity = u64::from(self.capacity);
        let capacity_and_debt = capacity + u64::from(self.max_debt);
        put_all(out, &[capacity, self.interval, self.amount.into(), capacity_and_debt]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = token_bucket::State { missing: numbers.wide()?, last: numbers.wide()? };
        Some(LimitState::TokenBucket(state))
    }
}

impl Codec for Gcra {
    const MODULE: LuaModule = LuaModule::new(7, include_str!("../lua/gcra.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &self.numbers());
        put_all(out, &[self.period() / self.tick()]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = gcra::State { tat: numbers.wide()?, tail: numbers.short()? };
        Some(LimitState::Gcra(state))
    }
}

const HOLDS_MODULE: LuaModule = LuaModule::new(9, include_str!("../lua/holds.lua"));

/// Concurrency: a count, or with hold ids the holds under a key of their own.
impl Codec for Concurrency {
    const MODULE: LuaModule = LuaModule::new(8, include_str!("../lua/concurrency.lua"));
    const MODULES: &'static [LuaModule] = &[Self::MODULE, HOLDS_MODULE];

    fn module(&self) -> LuaModule {
        if self.hold_id.is_none() { Self::MODULE } else { HOLDS_MODULE }
    }

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.timeout]);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = concurrency::State::from_count(numbers.wide()?, numbers.wide()?);
        Some(LimitState::Concurrency(Box::new(state)))
    }

    fn read_own_key(&self, text: &[u8]) -> Option<Option<LimitState>> {
        if self.hold_id.is_none() {
            return Some(None);
        }
        let state = if text.is_empty() { Default::default() } else { read_holds(Reader(text))? };
        Some(Some(LimitState::Concurrency(Box::new(state))))
    }
}

fn read_holds(mut text: Reader<'_>) -> Option<concurrency::State> {
    if text.bytes(1)? != [LAYOUT] {
        return None;
    }
    let last = text.wide()?;
    let mut holds = VecDeque::new();
    while !text.0.is_empty() {
        let id = u64::from_le_bytes(text.bytes(8)?.try_into().ok()?);
        holds.push_back(Hold { id, start: text.wide()?, hits: text.short()? });
    }
    Some(concurrency::State::from_holds(holds, last))
}

/// The bucket of `RL.REDUCE`.
impl Codec for ReduceBucket {
    const MODULE: LuaModule = LuaModule::new(11, include_str!("../lua/reduce_bucket.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        let at = self.at.map_or(0, |at| at + 1);
        let numbers = [self.max.into(), self.refill.into(), self.interval, at, self.strict.into()];
        put_all(out, &numbers);
    }

    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState> {
        let state = reduce_bucket::State { missing: numbers.short()?, last: numbers.wide()? };
        Some(LimitState::ReduceBucket(state))
    }
}

pub(super) const BAN_MODULE: LuaModule = LuaModule::new(12, include_str!("../lua/ban.lua"));

/// Appends a ban, which denies a key for a while after several denials, its strikes. It is the last limit of its rule
/// to the scripts. `counts_strikes`: denials are strikes.
pub(super) fn write_ban(ban: &Ban, counts_strikes: bool, out: &mut Vec<u8>) {
    let after = if counts_strikes { ban.after } else { 0 };
    out.extend_from_slice(&[BAN_MODULE.number, 0]);
    put_all(out, &[after.into(), ban.within, ban.forgets_after()]);
    out.push(ban.lengths.len() as u8);
    ban.lengths.iter().for_each(|&length| put(out, length));
}

/// Reads the state of a ban behind those of the limits.
pub(super) fn read_ban(numbers: &mut Reader<'_>) -> Option<BanState> {
    let &[strikes, bans] = numbers.bytes(2)? else { return None };
    let (since, began, until) = (numbers.wide()?, numbers.wide()?, numbers.wide()?);
    (began <= until).then_some(BanState { strikes, bans, since, began, until })
}

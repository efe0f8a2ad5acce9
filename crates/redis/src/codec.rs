//! Packs rules for the Lua scripts, and reads states and replies in the packed form that the scripts use.
//!
//! Each algorithm has an implementation of [`Codec`] with its number and its Lua file. States in Redis outlive weir, so
//! layouts never change: a new one gets a new number. An entry is what a call does with one key, a run one operation of
//! it. A hold is the hits in flight of one id, a record what was reserved under an id, `lean` a shorter form.
//!
//! # Packed formats
//!
//! All numbers are little-endian: `B` has one byte, `I7` seven. Limits that a number names have one bit each. Names in
//! capitals are in `numbers.rs`, those of counters in `counter.rs`.
//!
//! | Format | Layout |
//! | --- | --- |
//! | call | `I7` now in µs since the epoch, 0 for the server's clock; `I4` milliseconds to keep states for longer than they need; rules; entries |
//! | rules | `I4` how many; for each `B` how many limits, and for each of these `B` the number of its algorithm, `B` flags, its numbers. Behind them `B` how entries are charged: 0, or TOGETHER, plus QUOTA_PASSES if a quota outside the call passes |
//! | entry | `I4` the index of its rule, `B` its role plus ROLES times what its failure means, `B` how many runs; the runs |
//! | run | `B` the operation, `I4` hits, `I4` times, the 8 bytes of a hold id if the rule has hold ids; what the operation adds |
//! | run: UNDO | `I7` the time for which the hits were taken, `I2` the limits that took them |
//! | run: ADD | `I2` the limits that are charged |
//! | run: UPTO | `I4` the most of hits beyond those of the run, `I4` a share: these are at most what is left divided by it, and 0 if that is less than the share |
//! | run: RESERVE and later | the only one of its entry; its hits are those used, or to cancel, or the tag of a request, 0 for none. `B` what is done where the id has no reservation, `I4` the least hits to reserve, `I4` the most of further ones, `I4` the seconds within which they can be settled |
//! | lean rules | of `lone_gcra.lua` and `windows.lua`. `B` how many; for each its limits, with several windows `B` how many before them; for each limit its numbers, `B` flags |
//! | lean entries | for consecutive ones of one rule `B` its index, `B` how many, and for each `I4` hits, `I4` times |
//! | counter entries | for consecutive ones of one period and one operation `I7` the period, `B` the operation, `B` how many, and for each: LOOK nothing; TAKE, REFUND, REPAIR `I4` hits; ADMIT `I4` hits, `I4` times, `I4` n; UNDO `I4` hits, `I7` the time for which they were taken |
//! | reply | `I7` now; for each entry `I4` the length of its state before the call, and the state; the same for its holds, and for its record; for each limit of its log `I7` the hits counted, `I7` the time of the hit that must leave before the same hits are allowed again, or after a refund of the newest hit left. A first length from FAILURES on is a failure, and nothing follows it. Behind all entries, if any failed as OTHER, Redis's message for one of them |
//! | counter reply | `I7` now; for each entry `I7` the number before the call, 0 for none. From COUNTER_FAILURES on it is a failure, in units of COUNTER_FAILURE_STEP. A message as above |
//! | state | `B` LAYOUT, the states of all limits, the head of the log, the rings, the ring of the log |
//! | counter | a decimal number, the state of a lone fixed window aligned to the epoch: 1 + its window modulo WINDOWS, times COUNTS, plus its count. Below COUNTS it is of no window and counts nothing: a plain `INCRBY` found no key. A count above 2^32 - 1 means that; there are never enough plain hits in flight to overflow the rest. Half of WINDOWS can be distinguished: a state farther away, possible only after a step of a clock, is taken for a past or a future one |
//! | holds | `B` LAYOUT, `I7` the newest start; for each hold, in the order of their starts, the 8 bytes of its id, `I7` its start, `I4` its hits |
//! | record | `B` LAYOUT, `I4` the hits that are reserved, `I2` of how many reservations they are the sum, `I2` the limits that charged all of them, `I7` the time for which they count (in a reply 0 if that was before a reset), `I5` when they lapse, in seconds since the epoch, `I2` the tag of the request that made it, or 0 |
//! | reset | a decimal number: the time of a reset, in µs since the epoch |
//!
//! | Module | Numbers of a limit | State |
//! | --- | --- | --- |
//! | `fixed_window` | `I7` n, `I7` period | `I7` the start of the window, `I4` its count |
//! | `calendar` | `I7` n, `I7` period, and `I7` each four boundaries of windows: by the caller's clock, now is between the second and the third | as `fixed_window` |
//! | `lone_window` | as `fixed_window` | a counter |
//! | `sliding_window` | `I7` n, `I7` period | `I7` the window's index, `I4` the count of the window before, `I4` its own |
//! | `sliding_log` | `I7` n, `I7` period | nothing. The head of the log: `I4` the position of the oldest time in the ring, `I4` how many there are, `I4` the capacity of the ring, `I7` the newest time, `I7` by how much all are too late (after a clock stepped back); its ring: `I7` each |
//! | `bucketed_window` | `I7` n, `I7` period, `I7` slots of the ring, `I7` the length of a slot | `I7` the newest slot since the epoch, `I7` the sum of all slots; its ring: `I4` per slot, each at its number modulo the number of slots |
//! | `token_bucket` | `I7` capacity, `I7` interval, `I7` amount, `I7` the most tokens that may be missing | `I7` missing tokens, `I7` the time of the last refill |
//! | `gcra` | `I7` burst, `I7` n', `I7` p', `I7` tick in µs, `I7` burst plus the largest debt, `I7` period in ticks | `I7` theoretical arrival time in ticks; `I4` what it is too late by, in 1/n' ticks, and where n' is below 2^21 in the upper 11 bits how far ahead it was when it was written |
//! | `concurrency` | `I7` n, `I7` timeout | `I7` hits in flight, at most 2^52, `I7` the last time that hits were taken or released |
//! | `holds` | `I7` n, `I7` timeout | nothing: its holds have a key of their own |
//! | `ban` | `I7` the strikes with which a ban begins, 0 where denials are none; `I7` the time within which they count, `I7` the time after which a ban is forgotten, `B` how many lengths; `I7` each | `B` strikes, `B` bans in a row, `I7` the time of the first strike, `I7` when the last ban began, `I7` when it ends |
//! | `reduce_bucket` | `I7` max, `I7` refill, `I7` interval, `I7` 1 + the caller's time, or 0 for that of the call, `I7` 1 if the charge is strict. Times are in milliseconds | `I4` missing tokens, `I7` the time of the last refill |

pub(super) mod algorithms;
pub(super) mod format;
pub(super) mod numbers;
pub(super) mod reservation;
mod sliding_log;
#[cfg(test)]
mod tests;

use self::algorithms::{BAN_MODULE, COUNTER_MODULE, COUNTERS, read_ban, write_ban};
use self::format::{Codec, LuaModule, Reader};
use self::numbers::{LAYOUT, flags};
use self::sliding_log::LogHead;
use super::counter::{counter_number, lone_window, read_counter};
use weir_limit::hit_log::HitLog;
use weir_limit::{
    Algorithm, BanState, BucketedWindow, Concurrency, FixedWindow, Gcra, Limit, Micros, Plan,
    ReduceBucket, SlidingLog, SlidingWindow, State, TokenBucket, each,
};

const MODULES: [&[LuaModule]; Algorithm::COUNT] = [
    FixedWindow::MODULES,
    SlidingWindow::MODULES,
    SlidingLog::MODULES,
    BucketedWindow::MODULES,
    TokenBucket::MODULES,
    Gcra::MODULES,
    Concurrency::MODULES,
    ReduceBucket::MODULES,
];

/// Returns all modules in the order in which a script defines them: a module comes after that it borrows from.
pub(super) fn modules() -> impl Iterator<Item = LuaModule> {
    MODULES.into_iter().flatten().copied().chain([BAN_MODULE, reservation::MODULE])
}

/// A plan in the form that the scripts read, and the states of its keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanCodec<'p>(pub &'p Plan);

impl<'p> PlanCodec<'p> {
    /// Returns the modules that a script needs for this plan, as bits by their numbers.
    pub(super) fn algorithms(self) -> u16 {
        if lone_window(self.0).is_some() {
            return COUNTERS;
        }
        let bits = |limit: &Limit| each!(&limit.algorithm, codec => codec.module().bits());
        let ban = self.0.ban().map_or(0, |_| BAN_MODULE.bits());
        self.0.limits().iter().fold(ban, |all, limit| all | bits(limit))
    }

    pub(super) fn is_lone_gcra(self) -> bool {
        let gcra = |limit: &Limit| matches!(limit.algorithm, Algorithm::Gcra(_));
        matches!(self.0.limits(), [limit] if gcra(limit)) && self.0.ban().is_none()
    }

    /// Returns whether all limits are fixed windows aligned to the epoch.
    pub(super) fn is_windows(self) -> bool {
        let is_window = |limit: &Limit| match &limit.algorithm {
            Algorithm::FixedWindow(window) => window.calendar.is_none(),
            _ => false,
        };
        self.0.ban().is_none() && self.0.limits().iter().all(is_window)
    }

    /// Returns whether equal charges of one key may be sent as one and decided separately afterwards. Not if each names
    /// a hold, and not if the reply is about certain hits.
    pub(super) fn merges(self) -> bool {
        self.0.hold_id().is_none() && !self.has_log()
    }

    fn has_log(self) -> bool {
        self.0.limits().iter().any(|limit| matches!(limit.algorithm, Algorithm::SlidingLog(_)))
    }

    /// Appends the rule for the scripts that charge only gcra, or only fixed windows.
    pub(super) fn write_numbers(self, out: &mut Vec<u8>) {
        if self.is_windows() {
            out.push(self.0.limits().len() as u8);
        }
        for limit in self.0.limits() {
            each!(&limit.algorithm, codec => codec.write_numbers(0, out));
            out.push(flags(limit));
        }
    }

    /// Appends the rule for the script that charges any rule. `now` is the caller's time.
    pub(super) fn write_rule(self, now: Micros, out: &mut Vec<u8>) {
        out.push((self.0.limits().len() + usize::from(self.0.ban().is_some())) as u8);
        let is_counter = lone_window(self.0).is_some();
        for limit in self.0.limits() {
            let module = each!(&limit.algorithm, codec => codec.module());
            out.push(if is_counter { COUNTER_MODULE.number } else { module.number });
            out.push(flags(limit));
            each!(&limit.algorithm, codec => codec.write_numbers(now, out));
        }
        if let Some(ban) = self.0.ban() {
            write_ban(ban, self.0.counts_strikes(), out);
        }
    }

    /// Reads the state of a key from a reply; `None` if it is invalid.
    pub(super) fn read_state(self, len: u32, reply: &mut Reader<'_>, now: Micros) -> Option<State> {
        let text = reply.bytes(len as usize)?;
        if lone_window(self.0).is_some() {
            let number = if text.is_empty() { "0" } else { std::str::from_utf8(text).ok()? };
            return read_counter(self.0, number.parse().ok()?, now);
        }
        let own_key = match self.0.hold_id() {
            None => &[][..],
            Some(_) => {
                let len = reply.short()?;
                reply.bytes(len as usize)?
            }
        };
        let (state, head, rest) = self.read_states(text, own_key)?;
        let mut log = match head {
            Some(head) => head.summary()?,
            None => HitLog::default(),
        };
        if self.has_log() {
            sliding_log::read_summaries(&mut log, self.0.limits(), reply)?;
        }
        rest.0.is_empty().then(|| state.with_log(log))
    }

    /// Reads the values of a key and of its holds in Redis, none for a missing key; `None` if they are invalid.
    pub(super) fn read_stored(
        self,
        text: Option<&[u8]>,
        holds: Option<&[u8]>,
        now: Micros,
    ) -> Option<State> {
        if lone_window(self.0).is_some() {
            let number = std::str::from_utf8(text.unwrap_or(b"0")).ok()?.parse().ok()?;
            return read_counter(self.0, counter_number(number)?, now);
        }
        let (text, holds) = (text.unwrap_or_default(), holds.unwrap_or_default());
        let (state, head, rest) = self.read_states(text, holds)?;
        let log = match head {
            Some(head) => head.stamps(rest)?,
            None if rest.0.is_empty() => HitLog::default(),
            None => return None,
        };
        Some(state.with_log(log))
    }

    /// Returns whether the whole state is under the key of its holds.
    pub(super) fn has_only_holds(self) -> bool {
        self.0.limits().len() == 1 && self.0.hold_id().is_some()
    }

    /// Reads the states of limits and ban of a key that may not exist, the head of the log, and what follows.
    fn read_states<'t>(
        self,
        text: &'t [u8],
        own_key: &[u8],
    ) -> Option<(State, Option<LogHead>, Reader<'t>)> {
        let exists = !text.is_empty();
        if !exists && own_key.is_empty() {
            return Some((State::default(), None, Reader(text)));
        }
        let mut text = Reader(text);
        if exists && text.bytes(1)? != [LAYOUT] {
            return None;
        }
        let mut states = Vec::with_capacity(self.0.limits().len());
        for Limit { algorithm, .. } in self.0.limits() {
            states.push(match each!(algorithm, codec => codec.read_own_key(own_key))? {
                Some(state) => state,
                None if exists => each!(algorithm, codec => codec.read_state(&mut text))?,
                None => algorithm.new_state(),
            });
        }
        let (mut head, mut ban) = (None, BanState::default());
        if exists {
            if self.0.ban().is_some() {
                ban = read_ban(&mut text)?;
            }
            if self.has_log() {
                head = Some(LogHead::read(&mut text)?);
            }
            for (Limit { algorithm, .. }, state) in self.0.limits().iter().zip(&mut states) {
                each!(algorithm, codec => codec.read_rest(state, &mut text))?;
            }
        }
        Some((State::new(states.into()).with_ban(ban), head, text))
    }
}

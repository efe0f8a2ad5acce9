//! What Redis scripts are told of a plan, and what they tell of its states: packed, little-endian, as
//! the headers of the scripts say.

use std::sync::Arc;

use super::concurrency::{self, Hold};
use super::part::Part;
use super::plan::State;
use super::sliding_log::{Glimpse, Log, View};
use super::{
    Algorithm, Calendar, FixedWindow, Limit, Micros, Plan, bucketed_window, fixed_window, gcra,
    sliding_window, token_bucket,
};

/// The layout of states that is written and read.
const LAYOUT: u8 = 1;

/// Counters tell so many windows apart.
const WINDOWS: u64 = (1 << 20) - 2;

/// Where a counter's window is in its number. There is one bit more than a count needs: a count that
/// is full may stand above that until it is seen, and does not reach the next window.
const COUNT_BITS: u32 = 33;

/// Numbers from here on are no counter's.
const COUNTERS: u64 = 1 << 53;

/// An algorithm as the scripts number it.
fn kind(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow(FixedWindow { calendar: None, .. }) => 1,
        Algorithm::FixedWindow(_) => 2,
        Algorithm::SlidingWindow(_) => 3,
        Algorithm::SlidingLog(_) => 4,
        Algorithm::BucketedWindow(_) => 5,
        Algorithm::TokenBucket(_) => 6,
        Algorithm::Gcra(_) => 7,
        Algorithm::Concurrency(concurrency) if concurrency.hold_id.is_none() => 8,
        Algorithm::Concurrency(_) => 9,
    }
}

/// A fixed window aligned to the epoch that is all of its plan, as the scripts number it.
const LONE_WINDOW: u8 = 10;

/// Adds a number as the scripts read it: 7 bytes, below 2^52.
pub(crate) fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.min(1 << 52).to_le_bytes()[..7]);
}

/// How far ahead of the window of `now` that is which a counter's number is of. None where it is of
/// no window.
pub(crate) fn windows_ahead(number: u64, period: Micros, now: Micros) -> Option<i64> {
    let window = (number >> COUNT_BITS).checked_sub(1)?;
    let ahead = (window + WINDOWS - now / period % WINDOWS) % WINDOWS;
    let ahead = ahead.cast_signed();
    Some(if ahead < WINDOWS.cast_signed() / 2 { ahead } else { ahead - WINDOWS.cast_signed() })
}

/// Whether a counter's count is beyond what is counted.
pub(crate) fn is_overfull(number: u64) -> bool {
    number % (1 << COUNT_BITS) > u32::MAX.into()
}

/// A counter's number, where it may be one.
pub(crate) fn counter_number(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < COUNTERS)
}

/// Reads on in a reply.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A number of 7 bytes.
    pub fn wide(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        wide[..7].copy_from_slice(self.bytes(7)?);
        Some(u64::from_le_bytes(wide))
    }

    /// A number of 4 bytes.
    pub fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }
}

impl Plan {
    /// The algorithms that a script needs for this plan: bit 1 for that numbered 1, and so on.
    pub(crate) fn algorithms(&self) -> u16 {
        match self.counter() {
            Some(_) => 1 << LONE_WINDOW,
            None => self.limits.iter().fold(0, |bits, limit| bits | 1 << kind(&limit.algorithm)),
        }
    }

    /// The window, where the plan is one fixed window aligned to the epoch: its state is one number.
    pub(crate) fn counter(&self) -> Option<(&Limit, &FixedWindow)> {
        match &*self.limits {
            [limit] => match &limit.algorithm {
                Algorithm::FixedWindow(window) if window.calendar.is_none() => {
                    Some((limit, window))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the plan is one gcra.
    pub(crate) fn is_lone_gcra(&self) -> bool {
        matches!(&*self.limits, [limit] if matches!(limit.algorithm, Algorithm::Gcra(_)))
    }

    /// Whether all limits are fixed windows aligned to the epoch.
    pub(crate) fn is_windows(&self) -> bool {
        let epoch = |window: &FixedWindow| window.calendar.is_none();
        self.limits.iter().all(
            |limit| matches!(&limit.algorithm, Algorithm::FixedWindow(window) if epoch(window)),
        )
    }

    /// Adds what the scripts of only gcra, or only fixed windows, are told of the rule.
    pub(crate) fn write_numbers(&self, out: &mut Vec<u8>) {
        if self.is_windows() {
            out.push(self.limits.len() as u8);
        }
        for limit in &self.limits {
            match &limit.algorithm {
                Algorithm::Gcra(gcra) => {
                    gcra.numbers().iter().for_each(|&number| put(out, number));
                }
                Algorithm::FixedWindow(window) => {
                    put(out, window.n.into());
                    put(out, window.period);
                }
                _ => {}
            }
            out.push(flags(limit));
        }
    }

    /// Whether the same hits of one key may be charged as one, and told apart afterwards: not where
    /// each names a hold, and not where the reply is about certain hits.
    pub(crate) fn merges(&self) -> bool {
        self.hold_id().is_none() && !self.has_log()
    }

    fn has_log(&self) -> bool {
        self.limits.iter().any(|limit| matches!(limit.algorithm, Algorithm::SlidingLog(_)))
    }

    /// Adds what a script is told of the rule; `now` is the caller's. `in_key`: the windows of lone
    /// ones are part of their keys, and then that clock counts for them.
    pub(crate) fn write_rule(&self, now: Micros, in_key: bool, out: &mut Vec<u8>) {
        out.push(self.limits.len() as u8);
        let lone = self.counter().is_some();
        for limit in &self.limits {
            out.push(if lone { LONE_WINDOW } else { kind(&limit.algorithm) });
            out.push(flags(limit));
            let mut all = |numbers: &[u64]| numbers.iter().for_each(|&number| put(out, number));
            match &limit.algorithm {
                Algorithm::FixedWindow(window) => {
                    all(&[window.n.into(), window.period]);
                    if lone {
                        all(&[if in_key { now } else { 0 }]);
                    }
                    if let Some(calendar) = &window.calendar {
                        all(&boundaries(calendar, now));
                    }
                }
                Algorithm::SlidingWindow(window) => all(&[window.n.into(), window.period]),
                Algorithm::SlidingLog(log) => all(&[log.n.into(), log.period]),
                Algorithm::BucketedWindow(window) => all(&[
                    window.n.into(),
                    window.period,
                    u64::from(window.buckets) + 1,
                    window.span(),
                ]),
                Algorithm::TokenBucket(bucket) => all(&[
                    bucket.capacity.into(),
                    bucket.interval,
                    bucket.amount.into(),
                    u64::from(bucket.capacity) + u64::from(bucket.max_debt),
                ]),
                Algorithm::Gcra(gcra) => all(&gcra.numbers()),
                Algorithm::Concurrency(concurrency) => {
                    all(&[concurrency.n.into(), concurrency.timeout]);
                }
            }
        }
    }

    /// The state that a counter's number stands for, at `now`. None where it is no such number.
    /// `in_key`: the window is part of the key, and the number is the count alone.
    pub(crate) fn read_counter(&self, number: u64, now: Micros, in_key: bool) -> Option<State> {
        let (_, window) = self.counter()?;
        let state = match number {
            0 => fixed_window::State::default(),
            _ if in_key => fixed_window::State {
                window: now - now % window.period,
                count: u32::try_from(number).unwrap_or(u32::MAX),
            },
            _ => match windows_ahead(number, window.period, now) {
                None => fixed_window::State::default(),
                Some(ahead) => {
                    let index = (now / window.period).checked_add_signed(ahead)?;
                    let count = number % (1 << COUNT_BITS);
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    fixed_window::State { window: index * window.period, count }
                }
            },
        };
        Some(State { parts: Box::new([Part::Fixed(state)]), log: Log::default() })
    }

    /// Reads a state as a script tells it, from the reply. None where it is not one.
    pub(crate) fn read_state(
        &self,
        len: u32,
        reply: &mut Reader<'_>,
        now: Micros,
        in_key: bool,
    ) -> Option<State> {
        let text = reply.bytes(len as usize)?;
        if self.counter().is_some() {
            let number = if text.is_empty() { "0" } else { std::str::from_utf8(text).ok()? };
            return self.read_counter(number.parse().ok()?, now, in_key);
        }
        let holds = match self.hold_id() {
            None => &[][..],
            Some(_) => {
                let len = reply.short()?;
                reply.bytes(len as usize)?
            }
        };
        let mut state = State::default();
        if !text.is_empty() || !holds.is_empty() {
            state = self.read_parts(text, holds)?;
        }
        if self.has_log() {
            let glimpse = match &mut state.log {
                Log::Glimpsed(glimpse) => glimpse,
                log => {
                    *log = Log::Glimpsed(Box::default());
                    let Log::Glimpsed(glimpse) = log else { return None };
                    glimpse
                }
            };
            for limit in &self.limits {
                if let Algorithm::SlidingLog(limit) = limit.algorithm {
                    let (used, blocks) = (reply.wide()?, reply.wide()?);
                    glimpse.next = blocks;
                    glimpse.views.push(View { limit, used, blocks });
                }
            }
        }
        Some(state)
    }

    fn read_parts(&self, text: &[u8], holds: &[u8]) -> Option<State> {
        let mut text = Reader(text);
        let empty = text.0.is_empty();
        if !empty && text.bytes(1)? != [LAYOUT] {
            return None;
        }
        let mut parts = Vec::with_capacity(self.limits.len());
        for limit in &self.limits {
            parts.push(match &limit.algorithm {
                Algorithm::Concurrency(it) if it.hold_id.is_some() => read_holds(holds)?,
                algorithm if empty => algorithm.part(),
                Algorithm::FixedWindow(_) => {
                    Part::Fixed(fixed_window::State { window: text.wide()?, count: text.short()? })
                }
                Algorithm::SlidingWindow(_) => Part::Sliding(sliding_window::State {
                    index: text.wide()?,
                    prev: text.short()?,
                    cur: text.short()?,
                }),
                Algorithm::SlidingLog(_) => Part::Log,
                // The ring comes after the numbers of all limits.
                Algorithm::BucketedWindow(_) => {
                    let index = text.wide()?;
                    text.wide()?;
                    Part::Bucketed(Box::new(bucketed_window::State::from_ring(
                        index,
                        Box::default(),
                    )))
                }
                Algorithm::TokenBucket(_) => {
                    Part::Token(token_bucket::State { missing: text.wide()?, last: text.wide()? })
                }
                Algorithm::Gcra(_) => {
                    Part::Gcra(gcra::State { tat: text.wide()?, rem: text.short()?.into() })
                }
                Algorithm::Concurrency(_) => Part::Concurrency(Box::new(
                    concurrency::State::of_count(text.wide()?, text.wide()?),
                )),
            });
        }
        let mut log = Log::default();
        if self.has_log() && !empty {
            let (_head, len, _room) = (text.short()?, text.short()?, text.short()?);
            let (newest, late) = (text.wide()?, text.wide()?);
            let newest = if len > 0 { newest.checked_sub(late)? } else { 0 };
            log = Log::Glimpsed(Box::new(Glimpse { newest, ..Glimpse::default() }));
        }
        for (limit, part) in self.limits.iter().zip(&mut parts) {
            if let (Algorithm::BucketedWindow(window), Part::Bucketed(state)) =
                (&limit.algorithm, part)
                && !empty
            {
                let ring: Option<Box<[u32]>> = (0..=window.buckets).map(|_| text.short()).collect();
                **state = bucketed_window::State::from_ring(state.index(), ring?);
            }
        }
        text.0.is_empty().then(|| State { parts: parts.into(), log })
    }
}

fn flags(limit: &Limit) -> u8 {
    let strict = matches!(&limit.algorithm, Algorithm::TokenBucket(bucket) if bucket.strict);
    u8::from(limit.charge_denied)
        | u8::from(limit.shadow_mode) << 1
        | u8::from(strict) << 2
        | u8::from(limit.requests_per_unit == 0) << 3
}

fn read_holds(holds: &[u8]) -> Option<Part> {
    let mut holds = Reader(holds);
    let mut state = concurrency::State::default();
    if !holds.0.is_empty() {
        if holds.bytes(1)? != [LAYOUT] {
            return None;
        }
        let last = holds.wide()?;
        let mut all = std::collections::VecDeque::new();
        while !holds.0.is_empty() {
            let id = u64::from_le_bytes(holds.bytes(8)?.try_into().ok()?);
            all.push_back(Hold { id, start: holds.wide()?, hits: holds.short()? });
        }
        state = concurrency::State::of_holds(all, last);
    }
    Some(Part::Concurrency(Box::new(state)))
}

/// Where windows begin: the one before the one of `now`, that, and the two after it.
fn boundaries(calendar: &Arc<Calendar>, now: Micros) -> [Micros; 4] {
    let (start, end) = calendar.window(now);
    let before = calendar.window(start.saturating_sub(1)).0;
    let after = calendar.window(end).1;
    // What was asked for last is kept at hand.
    calendar.window(now);
    [before, start, end, after]
}

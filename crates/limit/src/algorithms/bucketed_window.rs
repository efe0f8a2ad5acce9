//! Bucketed window (`bucketed_window` in rules): counts hits in short sub-windows, and sums those of the last period.
//!
//! The period `p` is cut into `B` sub-windows of `s = ceil(p / B)`; the current one and the `B` before it count,
//! `B + 1` in all. A request of `h` hits is allowed iff their sum `+ h <= n`. Sub-windows without traffic count zero.
//!
//! State: a ring of counts, 4 bytes a sub-window. Cost: constant, plus sub-windows that have passed. Guarantee: never
//! more than `n` in any span of the period; stricter than the exact log (`sliding_log`) by at most about a sub-window.
//! Source: Chris O'Hara, "Rate limiting with Redis" (2011) and Redback.

use std::fmt::{self, Write};

use crate::algorithm::{Hits, Levels, LimitAlgorithm, SpanCount, Verdict};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::plan::op::Undo;
use crate::saved::{self, SavedNumbers};
use crate::time::{Micros, SECOND};

/// `n` hits in any span of `period`, counted in sub-windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketedWindow {
    /// The hits that one period allows.
    pub n: u32,
    /// The length of the period.
    pub period: Micros,
    /// `B`, the number of sub-windows: 2 to 3600.
    pub buckets: u32,
}

/// The counts of the newest sub-windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number of the newest sub-window since the epoch.
    pub index: u64,
    /// The slot of the newest bucket in the ring.
    head: u32,
    sum: u64,
    ring: Box<[u32]>,
}

impl State {
    /// Returns the state of a ring with each count in the slot of its index modulo the slots.
    pub fn from_ring(index: u64, ring: Box<[u32]>) -> State {
        let head = (index % ring.len().max(1) as u64) as u32;
        State { index, head, sum: ring.iter().map(|&count| u64::from(count)).sum(), ring }
    }
}

impl BucketedWindow {
    /// Returns the number of counts that a state has: one more than sub-windows.
    pub fn slots(&self) -> u32 {
        self.buckets + 1
    }

    /// Returns the length of a sub-window.
    pub fn span(&self) -> Micros {
        self.period.div_ceil(self.buckets.into())
    }

    /// Returns the ring's counts with the index of each, newest first.
    fn newest_first(&self, state: &State) -> impl DoubleEndedIterator<Item = (u64, u32)> {
        let (slots, head) = (state.ring.len(), state.head as usize);
        (0..slots).map(move |age| {
            (state.index.wrapping_sub(age as u64), state.ring[(head + slots - age) % slots])
        })
    }

    fn expires(&self, index: u64) -> Micros {
        index.saturating_add(u64::from(self.buckets) + 1).saturating_mul(self.span())
    }

    /// Returns the hits of all sub-windows that reach into the last `span`, up to the period.
    fn recent(&self, state: &State, now: Micros, span: Micros) -> u64 {
        let t = now.max(state.index.saturating_mul(self.span()));
        let first = (t + 1).saturating_sub(span.min(self.period)) / self.span();
        let reaching = self.newest_first(state).take_while(|&(index, _)| index >= first);
        reaching.map(|(_, count)| u64::from(count)).sum()
    }
}

impl LimitAlgorithm for BucketedWindow {
    type State = State;

    const NAME: &'static str = "bucketed_window";
    const COUNTS_AT_ZERO: bool = true;
    const HIT_BYTES: u64 = 0;
    const NEEDS_EXPIRY: bool = false;

    fn advance(&self, state: &mut State, now: Micros) {
        let slots = self.slots() as usize;
        let span = self.span();
        let newest = now / span;
        if state.ring.len() != slots {
            *state =
                State { index: newest, head: 0, sum: 0, ring: vec![0; slots].into_boxed_slice() };
        }
        if state.index.saturating_mul(span) > now.saturating_add(self.period) {
            state.index = newest;
        }
        for _ in 0..newest.saturating_sub(state.index).min(slots as u64) {
            state.head = (state.head + 1) % slots as u32;
            let oldest = &mut state.ring[state.head as usize];
            state.sum -= u64::from(*oldest);
            *oldest = 0;
        }
        state.index = state.index.max(newest);
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let (n, hits) = (u64::from(self.n), u64::from(hits.count));
        if hits > n || state.sum + hits <= n {
            return Verdict { allowed: hits <= n, retry_after: None };
        }
        let mut over = state.sum + hits - n;
        let last_needed = self.newest_first(state).rev().find(|&(_, count)| {
            over = over.saturating_sub(count.into());
            over == 0
        });
        let retry_after = last_needed.map(|(index, _)| self.expires(index).saturating_sub(now));
        Verdict { allowed: false, retry_after }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        let newest = self.newest_first(state).find(|&(_, count)| count > 0);
        Levels {
            used: state.sum,
            remaining: u64::from(self.n).saturating_sub(state.sum),
            reset_after: newest.map_or(0, |(index, _)| self.expires(index).saturating_sub(now)),
            empty: state.sum == 0,
        }
    }

    fn charge(&self, state: &mut State, _: Micros, hits: Hits, _: bool) {
        let Some(newest) = state.ring.get_mut(state.head as usize) else { return };
        let before = *newest;
        *newest = newest.saturating_add(hits.count);
        state.sum += u64::from(*newest - before);
    }

    fn refund(&self, state: &mut State, _: Micros, hits: Hits) {
        let mut left = hits.count;
        let (slots, head) = (state.ring.len(), state.head as usize);
        for age in 0..slots {
            let count = &mut state.ring[(head + slots - age) % slots];
            let back = left.min(*count);
            *count -= back;
            left -= back;
            state.sum -= u64::from(back);
        }
    }

    fn newest_window(&self, state: &State) -> Micros {
        state.index.saturating_mul(self.span())
    }

    fn window_end(&self, t: Micros) -> Option<Micros> {
        Some((t / self.span() + 1).saturating_mul(self.span()))
    }

    fn undo_of(&self, before: &State, after: &State, now: Micros) -> Option<Undo> {
        Undo::new(after.sum - before.sum, now.max(self.newest_window(after)))
    }

    fn undo(&self, state: &mut State, undo: &Undo) {
        let slots = state.ring.len() as u64;
        let age = state.index.saturating_sub(undo.taken / self.span());
        if age < slots {
            let slot = (u64::from(state.head) + slots - age) % slots;
            let count = &mut state.ring[slot as usize];
            let back = undo.hits.min(*count);
            *count -= back;
            state.sum -= u64::from(back);
        }
    }

    fn repeats_denials(&self, charge_denied: bool, _: bool) -> bool {
        !charge_denied
    }

    fn longest_span(&self) -> Option<Micros> {
        Some(self.period)
    }

    fn count(&self, state: &State, _: &HitLog, now: Micros, span: Micros) -> Option<SpanCount> {
        let (count, resolution) = (self.recent(state, now, span), self.span());
        // A sub-window leaves as a whole, when its last instant does.
        let max_late = resolution - 1;
        Some(SpanCount { limit: 0, count, resolution, max_late, is_minimum: false })
    }

    fn state_bytes(&self) -> usize {
        size_of::<State>() + self.slots() as usize * size_of::<u32>()
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "b{}/{}", self.period / SECOND, self.buckets)
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<BucketedWindow, NumbersError> {
        Ok(BucketedWindow { n: change.without_burst()?, ..*self })
    }

    const TAG: u64 = 4;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.index);
        saved::put(out, state.head.into());
        saved::put(out, state.ring.len() as u64);
        for &count in &state.ring {
            saved::put(out, count.into());
        }
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        let (index, head) = (saved.next()?, saved.next_u32()?);
        let len = saved.next_len()?;
        let ring = (0..len).map(|_| saved.next_u32()).collect::<Option<Box<[u32]>>>()?;
        let sum = ring.iter().map(|&count| u64::from(count)).sum();
        ((head as usize) < len.max(1)).then_some(State { index, head, sum, ring })
    }
}

//! Bucketed window: a ring of counts of short spans, summed.
//!
//! The period is cut into `B` sub-windows of `s = ceil(p / B)`; the current one and the `B` before it
//! count, `B + 1` in all. Allowed iff their sum `+ h <= n`. Sub-windows that passed while nobody
//! asked count zero.
//!
//! State: the ring, 4 bytes a sub-window. Cost: constant, but for sub-windows that have passed.
//! Guarantee: never more than `n` in any span of the period; stricter than the exact log by at most
//! about a sub-window. Source: Chris O'Hara, "Rate limiting with Redis" (2011), where idle laps
//! must count as zero, and Redback.

use super::{Levels, Micros, Verdict, wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketedWindow {
    pub n: u32,
    pub period: Micros,
    /// `B`, 2 to 3600.
    pub buckets: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Which sub-window since the epoch is the newest.
    index: u64,
    /// Where in the ring it is.
    head: u32,
    sum: u64,
    ring: Box<[u32]>,
}

impl State {
    /// From the newest sub-window's index and the ring, each count at its index modulo their number.
    pub(super) fn from_ring(index: u64, ring: Box<[u32]>) -> State {
        let head = (index % ring.len().max(1) as u64) as u32;
        State { index, head, sum: ring.iter().map(|&count| u64::from(count)).sum(), ring }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }
}

impl BucketedWindow {
    /// The length of a sub-window.
    pub(super) fn span(&self) -> Micros {
        self.period.div_ceil(self.buckets.into())
    }

    pub fn settle(&self, state: &mut State, now: Micros) {
        let slots = self.buckets as usize + 1;
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

    /// The ring's counts with the index of each, newest first.
    fn newest_first<'s>(
        &self,
        state: &'s State,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + 's {
        let (slots, head) = (state.ring.len(), state.head as usize);
        (0..slots).map(move |age| {
            (state.index.wrapping_sub(age as u64), state.ring[(head + slots - age) % slots])
        })
    }

    /// When a sub-window no longer counts.
    fn leaves(&self, index: u64) -> Micros {
        index.saturating_add(u64::from(self.buckets) + 1).saturating_mul(self.span())
    }

    pub fn judge(&self, state: &State, now: Micros, hits: u64) -> Verdict {
        let n = u64::from(self.n);
        if hits > n || state.sum + hits <= n {
            return Verdict { allowed: hits <= n, retry_after: None };
        }
        let mut over = state.sum + hits - n;
        for (index, count) in self.newest_first(state).rev() {
            over = over.saturating_sub(count.into());
            if over == 0 {
                return Verdict {
                    allowed: false,
                    retry_after: Some(wait(self.leaves(index), now)),
                };
            }
        }
        Verdict { allowed: false, retry_after: None }
    }

    pub fn levels(&self, state: &State, now: Micros) -> Levels {
        let newest = self.newest_first(state).find(|&(_, count)| count > 0);
        Levels {
            used: state.sum,
            remaining: u64::from(self.n).saturating_sub(state.sum),
            reset_after: newest.map_or(0, |(index, _)| wait(self.leaves(index), now)),
            empty: state.sum == 0,
        }
    }

    /// Hits counted over the last `span`, up to the period, and up to a sub-window more.
    pub fn recent(&self, state: &State, span: Micros) -> u64 {
        let spans = span.min(self.period).div_ceil(self.span()) as usize + 1;
        self.newest_first(state).take(spans).map(|(_, count)| u64::from(count)).sum()
    }

    pub fn charge(&self, state: &mut State, hits: u32) {
        let Some(newest) = state.ring.get_mut(state.head as usize) else { return };
        let before = *newest;
        *newest = newest.saturating_add(hits);
        state.sum += u64::from(*newest - before);
    }

    pub fn give_back(&self, state: &mut State, mut hits: u32) {
        let (slots, head) = (state.ring.len(), state.head as usize);
        for age in 0..slots {
            let count = &mut state.ring[(head + slots - age) % slots];
            let back = hits.min(*count);
            *count -= back;
            hits -= back;
            state.sum -= u64::from(back);
        }
    }
}

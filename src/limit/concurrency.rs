//! Concurrency: at most `n` in flight. Hits are taken at the start and given back at the end.
//!
//! With a hold id, each start is held under its id: only that id gives it back, an unknown one
//! gives back nothing, and a hold whose end never comes lapses after the time-out. An id has one
//! hold: taking it again replaces the hold, which starts anew with the hits of the last time. Without, there
//! is only a level: whoever calls at the end of denied requests too (as Envoy does) must have been
//! charged for them, so denials are charged, and ends that are lost clear once there was no traffic
//! for the time-out.
//!
//! State: with ids 24 bytes a hold, else a count and the last time. Cost: with ids a walk over the
//! holds, else constant. Guarantee: never more than `n` admitted and not yet given
//! back. Source: Stripe, "Scaling your API with rate limiters".

use std::collections::VecDeque;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::{Levels, Micros, Verdict, wait};

/// The most hits in flight that are counted: what stays exact in a double, and so in every store.
const MAX_IN_FLIGHT: u64 = 1 << 52;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub n: u32,
    /// How long a hold lasts whose end does not come.
    pub timeout: Micros,
    /// The key of the descriptor's last entry, whose value names the hold.
    pub hold_id: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    count: u64,
    /// When something was last taken or given back.
    last: Micros,
    /// In the order of their starts; empty without ids.
    holds: VecDeque<Hold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// A hash of the id: ids may be long.
    pub id: u64,
    pub start: Micros,
    pub hits: u32,
}

impl State {
    pub(super) fn of_count(count: u64, last: Micros) -> State {
        State { count, last, holds: VecDeque::new() }
    }

    /// Hits held under an id, which taking it again replaces.
    fn held(&self, id: u64) -> u64 {
        let of_id = self.holds.iter().filter(|hold| hold.id == id);
        of_id.map(|hold| u64::from(hold.hits)).sum()
    }

    /// Of holds in the order of their starts.
    pub(super) fn of_holds(holds: VecDeque<Hold>, last: Micros) -> State {
        State { count: holds.iter().map(|hold| u64::from(hold.hits)).sum(), last, holds }
    }
}

/// What stands for a hold's id; the same in every replica.
pub(crate) fn hash(id: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.finish()
}

impl Concurrency {
    pub fn settle(&self, state: &mut State, now: Micros) {
        if state.last > now.saturating_add(self.timeout) {
            let back = state.last - now;
            state.last = now;
            state.holds.iter_mut().for_each(|hold| hold.start = hold.start.saturating_sub(back));
        }
        let t = now.max(state.last);
        if self.hold_id.is_none() {
            if state.last.saturating_add(self.timeout) <= t {
                state.count = 0;
            }
            return;
        }
        while let Some(hold) = state.holds.front()
            && hold.start.saturating_add(self.timeout) <= t
        {
            state.count = state.count.saturating_sub(hold.hits.into());
            state.holds.pop_front();
        }
    }

    pub fn judge(&self, state: &State, now: Micros, hits: u64, hold: u64) -> Verdict {
        let n = u64::from(self.n);
        let others = state.count - state.held(hold);
        let allowed = others + hits <= n;
        if allowed || hits > n {
            return Verdict { allowed, retry_after: None };
        }
        let mut over = others + hits - n;
        let lapses = match self.hold_id {
            None => Some(state.last),
            Some(_) => state
                .holds
                .iter()
                .filter(|other| other.id != hold)
                .find(|hold| {
                    over = over.saturating_sub(hold.hits.into());
                    over == 0
                })
                .map(|hold| hold.start),
        };
        let retry = |start: Micros| wait(start.saturating_add(self.timeout), now);
        Verdict { allowed, retry_after: lapses.map(retry) }
    }

    pub fn levels(&self, state: &State, now: Micros) -> Levels {
        let newest = match self.hold_id {
            None => state.last,
            Some(_) => state.holds.back().map_or(0, |hold| hold.start),
        };
        Levels {
            used: state.count,
            remaining: u64::from(self.n).saturating_sub(state.count),
            reset_after: match state.count {
                0 => 0,
                _ => wait(newest.saturating_add(self.timeout), now),
            },
            empty: state.count == 0,
        }
    }

    pub fn charge(&self, state: &mut State, now: Micros, hits: u32, hold: u64) {
        let t = now.max(state.last);
        state.last = t;
        if self.hold_id.is_some() {
            let replaced = state.held(hold);
            if replaced > 0 {
                state.count -= replaced;
                state.holds.retain(|other| other.id != hold);
            }
            state.holds.push_back(Hold { id: hold, start: t, hits });
        }
        state.count += u64::from(hits);
        if self.hold_id.is_none() {
            state.count = state.count.min(MAX_IN_FLIGHT);
        }
    }

    pub fn give_back(&self, state: &mut State, now: Micros, hits: u32, hold: u64) {
        if self.hold_id.is_none() {
            state.last = now.max(state.last);
            state.count = state.count.saturating_sub(hits.into());
            return;
        }
        let (id, mut left) = (hold, hits);
        for held in state.holds.iter_mut().rev().filter(|held| held.id == id) {
            let back = left.min(held.hits);
            held.hits -= back;
            left -= back;
            state.count -= u64::from(back);
        }
        if left < hits {
            state.holds.retain(|held| held.hits > 0);
        }
    }
}

//! Concurrency: at most `n` in flight. Hits are taken at the start and released at the end.
//!
//! With a hold id, each start is held under its id: only that id releases it, an unknown id releases
//! nothing, and a hold that never ends expires after the timeout. An id has one hold: taking it
//! again replaces the hold. Without ids there is only a count. Envoy also releases
//! at the end of denied requests, so denials are charged. The count of lost ends is cleared after the
//! timeout without traffic.
//!
//! State: with ids 24 bytes a hold, else a count and the last time. Cost: with ids a walk over the
//! holds, else constant. Guarantee: never more than `n` admitted and not yet released. Source:
//! Stripe, "Scaling your API with rate limiters".

use std::collections::VecDeque;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::hit_log::HitLog;
use crate::{
    Hits, HoldLevels, Levels, LimitAlgorithm, Micros, NumbersChange, NumbersError, Packed,
    SavedNumbers, Verdict, saved, wait,
};

/// The largest count of hits in flight: integers up to it are exact in every store.
const MAX_IN_FLIGHT: u64 = 1 << 52;

/// At most `n` hits in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    pub n: u32,
    /// When hits expire that are not released.
    pub timeout: Micros,
    /// The key of the descriptor's last entry, whose value names the hold.
    pub hold_id: Option<Box<str>>,
}

impl Concurrency {
    /// The bytes of a hold.
    pub const HOLD_BYTES: u64 = 24;
}

/// The hits in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    count: u64,
    /// When something was last taken or released.
    last: Micros,
    /// The holds with ids, in the order of their starts.
    holds: VecDeque<Hold>,
}

/// The hits held under one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The hash of the id: ids may be long.
    pub id: u64,
    pub start: Micros,
    pub hits: u32,
}

impl State {
    /// Returns the state of `count` hits in flight without ids, the last one taken or released at `last`.
    pub fn from_count(count: u64, last: Micros) -> State {
        State { count, last, holds: VecDeque::new() }
    }

    /// Returns the hits held under an id.
    fn held(&self, id: u64) -> u64 {
        let of_id = self.holds.iter().filter(|hold| hold.id == id);
        of_id.map(|hold| u64::from(hold.hits)).sum()
    }

    /// Returns the state of holds in order of their starts.
    pub fn from_holds(holds: VecDeque<Hold>, last: Micros) -> State {
        State { count: holds.iter().map(|hold| u64::from(hold.hits)).sum(), last, holds }
    }
}

/// Returns the hash of a hold's id; the same in every replica.
pub fn hash_hold_id(id: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.finish()
}

impl LimitAlgorithm for Concurrency {
    type State = State;

    const NAME: &'static str = "concurrency";
    const PACKS: bool = false;
    const COUNTS_AT_ZERO: bool = true;
    const COUNTS_IN_FLIGHT: bool = true;
    const HIT_BYTES: u64 = Concurrency::HOLD_BYTES;
    const RESET_RECURS: bool = false;
    const NEEDS_EXPIRY: bool = false;

    fn advance(&self, state: &mut State, now: Micros) {
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

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let Hits { count, hold } = hits;
        let (n, hits) = (u64::from(self.n), u64::from(count));
        let others = state.count - state.held(hold);
        let allowed = others + hits <= n;
        if allowed || hits > n {
            return Verdict { allowed, retry_after: None };
        }
        let mut over = others + hits - n;
        let oldest = match self.hold_id {
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
        Verdict { allowed, retry_after: oldest.map(retry) }
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
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

    /// Taking the same id again replaces its hold.
    fn room(&self, state: &State, _: &HitLog, _: Micros, hold: u64) -> u64 {
        u64::from(self.n).saturating_sub(state.count - state.held(hold))
    }

    fn charge(&self, state: &mut State, now: Micros, hits: Hits, _: bool) {
        let Hits { count: hits, hold } = hits;
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

    fn refund(&self, state: &mut State, now: Micros, hits: Hits) {
        let Hits { count: hits, hold } = hits;
        if self.hold_id.is_none() {
            state.last = now.max(state.last);
            state.count = state.count.saturating_sub(hits.into());
            return;
        }
        let mut left = hits;
        for held in state.holds.iter_mut().rev().filter(|held| held.id == hold) {
            let back = left.min(held.hits);
            held.hits -= back;
            left -= back;
            state.count -= u64::from(back);
        }
        if left < hits {
            state.holds.retain(|held| held.hits > 0);
        }
    }

    /// Hits in flight end at any time, so a denial is never repeated.
    fn repeats_denials(&self, _: bool, _: bool) -> bool {
        false
    }

    fn hold_id(&self) -> Option<&str> {
        self.hold_id.as_deref()
    }

    fn holds(&self, state: &State, now: Micros) -> Option<HoldLevels> {
        let (ids, oldest) = match self.hold_id {
            None => (None, state.last),
            Some(_) => {
                let oldest = state.holds.front().map_or(0, |hold| hold.start);
                (Some(state.holds.len() as u64), oldest)
            }
        };
        let expires_after = match state.count {
            0 => 0,
            _ => wait(oldest.saturating_add(self.timeout), now),
        };
        Some(HoldLevels { ids, hits: state.count, expires_after })
    }

    fn keeps_hits(&self) -> bool {
        self.hold_id.is_some()
    }

    fn write_shape(&self, shape: &mut String) {
        shape.push(if self.hold_id.is_some() { 'h' } else { 'c' });
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<Concurrency, NumbersError> {
        Ok(Concurrency { n: change.without_burst()?, ..self.clone() })
    }

    fn replica_share(&self, n: u32, replicas: u32) -> Concurrency {
        Concurrency { n: n.div_ceil(replicas), ..self.clone() }
    }

    fn pack(_: &State) -> Packed {
        Packed::default()
    }

    fn unpack(&self, _: Packed, _: Micros) -> State {
        State::default()
    }

    const TAG: u64 = 7;

    fn save(state: &State, out: &mut Vec<u8>) {
        saved::put(out, state.last);
        saved::put(out, state.holds.len() as u64);
        if state.holds.is_empty() {
            saved::put(out, state.count);
        }
        for hold in &state.holds {
            saved::put(out, hold.id);
            saved::put(out, hold.start);
            saved::put(out, hold.hits.into());
        }
    }

    fn restore(saved: &mut SavedNumbers<'_>) -> Option<State> {
        let last = saved.next()?;
        let len = saved.next_len()?;
        if len == 0 {
            return Some(State::from_count(saved.next()?.min(MAX_IN_FLIGHT), last));
        }
        let hold = |_| {
            let (id, start) = (saved.next()?, saved.next()?);
            Some(Hold { id, start, hits: saved.next_u32()? })
        };
        Some(State::from_holds((0..len).map(hold).collect::<Option<_>>()?, last))
    }
}

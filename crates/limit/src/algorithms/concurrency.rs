//! Concurrency (`concurrency` in rules): at most `n` hits in flight. A request charges hits when it starts, and a
//! refund from Envoy releases them when it ends.
//!
//! A hold is the hits of one request under a hold id, which a descriptor entry names. Only that id releases it, an
//! unknown id releases nothing, and a hold that is never released expires after the timeout. An id has one hold: taking
//! it again replaces the hold. Without ids there is only a count. Envoy also releases at the end of denied requests, so
//! the count includes denied hits. Hits whose release is lost are cleared after the timeout without traffic.
//!
//! State: with ids 24 bytes a hold, else a count and the last time. Cost: with ids a walk over the holds, else
//! constant. Guarantee: never more than `n` admitted and not yet released. Source: Stripe, "Scaling your API with rate
//! limiters".

mod in_flight;

use std::collections::VecDeque;
use std::fmt::{self, Write};

use siphasher::sip::SipHasher13;

pub use self::in_flight::{Concurrency, Hold};
use self::in_flight::{Counted, Held, InFlight, MAX_IN_FLIGHT};
use crate::algorithm::{Hits, HoldLevels, Levels, LimitAlgorithm, Verdict};
use crate::hit_log::HitLog;
use crate::numbers::{NumbersChange, NumbersError};
use crate::saved::SavedNumbers;
use crate::time::Micros;

/// The hits in flight for one key, with hold ids or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Hits without ids.
    Counted(Counted),
    /// Hits with ids.
    Held(Held),
}

impl Default for State {
    fn default() -> State {
        State::Counted(Counted::default())
    }
}

impl State {
    /// Returns the state of `count` hits in flight without ids, the last one taken or released at `last`.
    pub fn from_count(count: u64, last: Micros) -> State {
        State::Counted(Counted { count, last })
    }

    /// Returns the state of holds in order of their starts.
    pub fn from_holds(holds: VecDeque<Hold>, last: Micros) -> State {
        State::Held(Held::new(holds, last))
    }

    fn in_flight(&self) -> &dyn InFlight {
        match self {
            State::Counted(counted) => counted,
            State::Held(held) => held,
        }
    }

    fn in_flight_mut(&mut self) -> &mut dyn InFlight {
        match self {
            State::Counted(counted) => counted,
            State::Held(held) => held,
        }
    }
}

/// Returns the hash of a hold's id; the same in every replica.
pub fn hash_hold_id(id: &str) -> u64 {
    SipHasher13::new().hash(id.as_bytes())
}

impl LimitAlgorithm for Concurrency {
    type State = State;

    const NAME: &'static str = "concurrency";
    const COUNTS_AT_ZERO: bool = true;
    const COUNTS_IN_FLIGHT: bool = true;
    const HIT_BYTES: u64 = Concurrency::HOLD_BYTES;
    const NEEDS_EXPIRY: bool = false;

    fn advance(&self, state: &mut State, now: Micros) {
        // A state without holds looks like a count.
        if let (Some(_), State::Counted(counted)) = (&self.hold_id, &*state) {
            *state = State::from_holds(VecDeque::new(), counted.last);
        }
        state.in_flight_mut().advance(self, now);
    }

    fn verdict(&self, state: &State, _: &HitLog, now: Micros, hits: Hits) -> Verdict {
        state.in_flight().verdict(self, now, hits)
    }

    fn levels(&self, state: &State, _: &HitLog, now: Micros) -> Levels {
        state.in_flight().levels(self, now)
    }

    fn room(&self, state: &State, _: &HitLog, _: Micros, hold: u64) -> u64 {
        state.in_flight().room(self, hold)
    }

    fn charge(&self, state: &mut State, now: Micros, hits: Hits, _: bool) {
        state.in_flight_mut().charge(now, hits);
    }

    fn refund(&self, state: &mut State, now: Micros, hits: Hits) {
        state.in_flight_mut().refund(now, hits);
    }

    fn hold_id(&self) -> Option<&str> {
        self.hold_id.as_deref()
    }

    fn holds(&self, state: &State, now: Micros) -> Option<HoldLevels> {
        Some(state.in_flight().holds(self, now))
    }

    fn keeps_hits(&self) -> bool {
        self.hold_id.is_some()
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        shape.write_char(if self.hold_id.is_some() { 'h' } else { 'c' })
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<Concurrency, NumbersError> {
        Ok(Concurrency { n: change.without_burst()?, ..self.clone() })
    }

    const TAG: u64 = 7;

    fn save(state: &State, out: &mut Vec<u8>) {
        state.in_flight().save(out);
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

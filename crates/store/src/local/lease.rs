//! The lease of one key: hits that the store grants ahead of requests, and a copy of the state to answer from.
//!
//! Times are this process's, unless they are said to be the store's.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::hot_keys::{Admitted, HOT, Recent};
use crate::charge::{Charge, Key, Role};
use weir_common::entry::Entry;
use weir_limit::{Decision, Limit, LimitState, Micros, Op, Plan, Source, State, Undo};

/// By how much a clock may run faster than the store's: one in this number.
const DRIFT: Micros = 1_000;

#[derive(Debug)]
pub(super) struct Lease {
    pub key: Arc<LeasedKey>,
    pub plan: Arc<Plan>,
    pub recent: Recent,
    /// Whether the state was reset while a grant was in flight: it may be of the state before.
    pub is_reset: bool,
    /// The lease asks for more hits only once these have their answers.
    pub flights: Flights,
    /// What is left of grants, oldest first: each has hits left. Ended ones are returned with the next call.
    parts: SmallVec<[GrantPart; 3]>,
    /// The hits left when the newest grant came.
    full: u64,
    /// How long the newest grant was in flight.
    trip: Micros,
    /// The copy to answer from; none before the first grant.
    copy: Option<StateCopy>,
}

/// The charges of a lease that are in flight.
#[derive(Debug, Default)]
pub(super) struct Flights {
    count: u32,
    /// When the first charge was due.
    since: Micros,
    /// Requests are freed when this is dropped.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What is left of one grant.
#[derive(Clone, Copy, Debug)]
struct GrantPart {
    /// Undoes the hits of the grant that are left.
    undo: Undo,
    /// The instant until which hits of the grant count in their window.
    ends: Micros,
}

/// The state that the store would have if it had charged the hits that were served, and no others since.
#[derive(Debug, Default)]
pub(super) struct StateCopy {
    pub state: State,
    pub at: StoreTime,
}

/// The time of the store when it answered a charge.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoreTime {
    pub sent: Micros,
    /// The store's time in its reply.
    pub now: Micros,
}

impl StoreTime {
    /// Returns the store's time at `now`, if its clock runs as this process's.
    fn at(self, now: Micros) -> Micros {
        self.now.saturating_add(now.saturating_sub(self.sent))
    }

    /// Returns the time from which on the store's time may be `end` or later.
    fn local_end(self, end: Micros) -> Micros {
        let left = end.saturating_sub(self.now);
        self.sent.saturating_add(left - left.div_ceil(DRIFT).min(left))
    }
}

impl Lease {
    pub fn new(key: Arc<LeasedKey>, plan: Arc<Plan>, recent: Recent) -> Lease {
        let (is_reset, flights, parts, full, trip, copy) = Default::default();
        Lease { key, plan, recent, is_reset, flights, parts, full, trip, copy }
    }

    /// The hits left at `now`, and for how long.
    pub fn left(&self, now: Micros) -> (u64, Micros) {
        let parts = || self.parts.iter().filter(|part| part.ends > now);
        let left = parts().map(|part| u64::from(part.undo.hits)).sum();
        (left, parts().map(|part| part.ends - now).max().unwrap_or(0))
    }

    /// Adds a grant of at most `length`: the state before, and what undoes it. Returns the latter if it came too late.
    pub fn add(
        &mut self,
        before: StateCopy,
        undo: Undo,
        now: Micros,
        length: Micros,
    ) -> Option<Undo> {
        let StateCopy { mut state, at } = before;
        // What is left of older grants was charged, but to nobody.
        for part in &self.parts {
            self.plan.charge_hashed(&mut state, at.now, Op::Undo(part.undo), 0);
        }
        self.trip = now.saturating_sub(at.sent);
        let ends = at.sent.saturating_add(length).min(at.local_end(self.plan.window_end(at.now)));
        if ends <= now {
            return Some(undo);
        }
        self.copy = Some(StateCopy { state, at });
        self.parts.push(GrantPart { undo, ends });
        self.full = self.left(now).0;
        None
    }

    /// Serves hits, or a look, at `now`; none if the store is to answer.
    pub fn serve(&mut self, hits: u64, now: Micros) -> Option<Decision> {
        let (left, _) = self.left(now);
        let fits = (1..=left).contains(&hits.max(1));
        let StateCopy { state, at } = self.copy.as_mut().filter(|_| fits)?;
        let outcome = self.plan.charge_hashed(state, at.at(now), Op::Take(hits), 0);
        // Never denied: more than these hits were left when they were granted.
        let decision = Some(outcome.decision).filter(|decision| decision.allowed)?;
        self.take(hits, now);
        Some(Decision { source: Source::Leased, ..decision })
    }

    fn take(&mut self, mut hits: u64, now: Micros) {
        for part in self.parts.iter_mut().filter(|part| part.ends > now) {
            let taken = hits.min(part.undo.hits.into());
            // At most the hits of the part.
            part.undo.hits -= taken as u32;
            hits -= taken;
        }
        self.parts.retain(|part| part.undo.hits > 0);
    }

    /// Returns the hits to ask for: if a sixteenth is left, or what is left may be used up or end before more can come;
    /// if the key is hot, and nothing is in flight. With what is left, they are those that were admitted within
    /// `length`, a little less: what is granted beyond that would end unused.
    pub fn ask(&self, now: Micros, length: Micros) -> Option<u32> {
        if !self.flights.is_empty() {
            return None;
        }
        let (left, ends_in) = self.left(now);
        let Admitted { requests, hits } = self.recent.within(now, length);
        let in_a_trip = u128::from(hits) * u128::from(self.trip) / u128::from(length.max(1));
        let is_low = left <= self.full / 16 || u128::from(left) <= 2 * in_a_trip;
        let ends = ends_in <= self.trip.saturating_mul(5) / 4;
        if requests < HOT || !(is_low || ends) {
            return None;
        }
        let more = hits - hits / 32 - if ends { 0 } else { left.min(hits - hits / 32) };
        Some(u32::try_from(more).unwrap_or(u32::MAX))
    }

    /// Removes the grants that have ended. Returns the undos of their unused hits.
    pub fn end_parts(&mut self, now: Micros) -> Vec<Undo> {
        let mut returned = Vec::new();
        self.parts.retain(|part| {
            let ended = part.ends <= now;
            returned.extend(ended.then_some(part.undo));
            !ended
        });
        returned
    }

    pub fn end(&mut self) -> Vec<Undo> {
        self.copy = None;
        self.parts.drain(..).map(|part| part.undo).collect()
    }

    pub fn is_idle(&self) -> bool {
        self.parts.is_empty() && self.flights.is_empty()
    }
}

impl Flights {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn start(&mut self, now: Micros) {
        if self.is_empty() {
            self.since = now;
        }
        self.count += 1;
    }

    /// Counts an answer, or that there will be none. Frees the requests that wait, once there is nothing to wait for.
    pub fn end(&mut self, now: Micros, length: Micros) {
        self.count = self.count.saturating_sub(1);
        if !self.are_awaited(now, length) {
            self.waiting.clear();
        }
    }

    /// Returns what completes once all have an answer; none if there is nothing to wait for.
    pub fn wait(&mut self, now: Micros, length: Micros) -> Option<oneshot::Receiver<()>> {
        self.are_awaited(now, length).then(|| {
            let (sender, receiver) = oneshot::channel();
            self.waiting.push(sender);
            receiver
        })
    }

    /// Whether there is an answer to wait for: a grant that takes longer than a lease is returned.
    fn are_awaited(&self, now: Micros, length: Micros) -> bool {
        !self.is_empty() && now < self.since.saturating_add(length)
    }
}

#[derive(Debug)]
pub(super) struct LeasedKey {
    domain: Box<str>,
    entries: Box<[(Box<str>, Box<str>)]>,
    role: Role,
    /// The place of the key in the filter of the table.
    pub bucket: usize,
    /// About what the lease takes in memory.
    pub bytes: usize,
}

/// The bytes of a lease without its key and its state, and of its place in a table.
const LEASE_BYTES: usize = 512;

impl LeasedKey {
    pub fn new(charge: &Charge<'_>, bucket: usize) -> LeasedKey {
        let own = |(name, value): &Entry<'_>| (Box::from(*name), Box::from(*value));
        let texts = charge.key.entries.iter().map(|(name, value)| name.len() + value.len() + 32);
        let state_bytes = |limit: &Limit| size_of::<LimitState>() + limit.algorithm.state_bytes();
        let states = charge.plan.limits().iter().map(state_bytes);
        let Key { domain, entries } = charge.key;
        let bytes = LEASE_BYTES + domain.len() + texts.sum::<usize>() + states.sum::<usize>();
        let entries = entries.iter().map(own).collect();
        LeasedKey { domain: domain.into(), entries, role: charge.role, bucket, bytes }
    }

    pub fn charge<T>(&self, plan: &Arc<Plan>, op: Op, then: impl FnOnce(&Charge<'_>) -> T) -> T {
        let entries: Vec<Entry<'_>> =
            self.entries.iter().map(|(name, value)| (&**name, &**value)).collect();
        let key = Key { domain: &self.domain, entries: &entries };
        then(&Charge { key, plan, op, hold: None, role: self.role })
    }
}

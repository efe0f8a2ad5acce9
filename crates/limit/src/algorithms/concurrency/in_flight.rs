//! The two forms of the state of a concurrency limit: `Held`, holds (the hits of one request in flight, under an id),
//! and `Counted`, a number of hits.
//!
//! Only its id releases a hold, and each hold expires after the timeout. A number is cleared after the timeout without
//! traffic.

use std::collections::VecDeque;

use crate::algorithm::{Hits, HoldLevels, Levels, Verdict};
use crate::saved;
use crate::time::Micros;

/// The largest count of hits in flight: integers up to it are exact in every store.
pub(super) const MAX_IN_FLIGHT: u64 = 1 << 52;

/// At most `n` hits in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The hits that may be in flight.
    pub n: u32,
    /// When hits expire that are not released.
    pub timeout: Micros,
    /// The key of the descriptor's last entry, whose value is the id of the hold; none without ids.
    pub hold_id: Option<Box<str>>,
}

impl Concurrency {
    /// The bytes of a hold.
    pub const HOLD_BYTES: u64 = 24;
}

/// What `Held` and `Counted` do differently, with the names of the trait `LimitAlgorithm`.
pub(super) trait InFlight {
    fn advance(&mut self, limit: &Concurrency, now: Micros);
    fn verdict(&self, limit: &Concurrency, now: Micros, hits: Hits) -> Verdict;
    fn levels(&self, limit: &Concurrency, now: Micros) -> Levels;
    fn room(&self, limit: &Concurrency, hold: u64) -> u64;
    fn charge(&mut self, now: Micros, hits: Hits);
    fn refund(&mut self, now: Micros, hits: Hits);
    fn holds(&self, limit: &Concurrency, now: Micros) -> HoldLevels;
    fn save(&self, out: &mut Vec<u8>);
}

/// The number of hits in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub(super) count: u64,
    /// When something was last taken or released.
    pub(super) last: Micros,
}

impl Counted {
    fn expires(&self, limit: &Concurrency) -> Micros {
        self.last.saturating_add(limit.timeout)
    }
}

impl InFlight for Counted {
    fn advance(&mut self, limit: &Concurrency, now: Micros) {
        if self.last > now.saturating_add(limit.timeout) {
            self.last = now;
        }
        if self.expires(limit) <= now.max(self.last) {
            self.count = 0;
        }
    }

    fn verdict(&self, limit: &Concurrency, now: Micros, hits: Hits) -> Verdict {
        let (n, hits) = (u64::from(limit.n), u64::from(hits.count));
        let allowed = self.count + hits <= n;
        let retry_after = (!allowed && hits <= n).then(|| self.expires(limit).saturating_sub(now));
        Verdict { allowed, retry_after }
    }

    fn levels(&self, limit: &Concurrency, now: Micros) -> Levels {
        Levels {
            used: self.count,
            remaining: u64::from(limit.n).saturating_sub(self.count),
            reset_after: if self.count == 0 { 0 } else { self.expires(limit).saturating_sub(now) },
            empty: self.count == 0,
        }
    }

    fn room(&self, limit: &Concurrency, _hold: u64) -> u64 {
        u64::from(limit.n).saturating_sub(self.count)
    }

    fn charge(&mut self, now: Micros, hits: Hits) {
        self.last = now.max(self.last);
        self.count = (self.count + u64::from(hits.count)).min(MAX_IN_FLIGHT);
    }

    fn refund(&mut self, now: Micros, hits: Hits) {
        self.last = now.max(self.last);
        self.count = self.count.saturating_sub(hits.count.into());
    }

    fn holds(&self, limit: &Concurrency, now: Micros) -> HoldLevels {
        let expires_after = self.levels(limit, now).reset_after;
        HoldLevels { ids: None, hits: self.count, expires_after }
    }

    fn save(&self, out: &mut Vec<u8>) {
        saved::put(out, self.last);
        saved::put(out, 0);
        saved::put(out, self.count);
    }
}

/// The holds, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    count: u64,
    /// When something was last taken.
    last: Micros,
    /// In the order of their starts.
    holds: VecDeque<Hold>,
}

/// The hits held under one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The hash of the id: ids may be long.
    pub id: u64,
    /// When it was taken.
    pub start: Micros,
    /// The number of hits that it has.
    pub hits: u32,
}

impl Held {
    pub(super) fn new(holds: VecDeque<Hold>, last: Micros) -> Held {
        Held { count: holds.iter().map(|hold| u64::from(hold.hits)).sum(), last, holds }
    }

    /// Returns the hits held under other ids.
    fn others(&self, id: u64) -> u64 {
        let others = self.holds.iter().filter(|hold| hold.id != id);
        others.map(|hold| u64::from(hold.hits)).sum()
    }
}

impl Hold {
    fn expires(&self, limit: &Concurrency) -> Micros {
        self.start.saturating_add(limit.timeout)
    }
}

impl InFlight for Held {
    fn advance(&mut self, limit: &Concurrency, now: Micros) {
        if self.last > now.saturating_add(limit.timeout) {
            let back = self.last - now;
            self.last = now;
            self.holds.iter_mut().for_each(|hold| hold.start = hold.start.saturating_sub(back));
        }
        let t = now.max(self.last);
        while let Some(hold) = self.holds.pop_front_if(|hold| hold.expires(limit) <= t) {
            self.count = self.count.saturating_sub(hold.hits.into());
        }
    }

    /// A denial lasts until as many of the oldest holds expire as the hits need.
    fn verdict(&self, limit: &Concurrency, now: Micros, hits: Hits) -> Verdict {
        let Hits { count, hold: id } = hits;
        let (n, hits) = (u64::from(limit.n), u64::from(count));
        let others = self.others(id);
        let allowed = others + hits <= n;
        if allowed || hits > n {
            return Verdict { allowed, retry_after: None };
        }
        let mut over = others + hits - n;
        let last_needed = self.holds.iter().filter(|hold| hold.id != id).find(|hold| {
            over = over.saturating_sub(hold.hits.into());
            over == 0
        });
        let retry_after = last_needed.map(|hold| hold.expires(limit).saturating_sub(now));
        Verdict { allowed, retry_after }
    }

    fn levels(&self, limit: &Concurrency, now: Micros) -> Levels {
        let newest = self.holds.back().filter(|_| self.count > 0);
        Levels {
            used: self.count,
            remaining: u64::from(limit.n).saturating_sub(self.count),
            reset_after: newest.map_or(0, |hold| hold.expires(limit).saturating_sub(now)),
            empty: self.count == 0,
        }
    }

    /// Taking the same id again replaces its hold.
    fn room(&self, limit: &Concurrency, hold: u64) -> u64 {
        u64::from(limit.n).saturating_sub(self.others(hold))
    }

    fn charge(&mut self, now: Micros, hits: Hits) {
        let Hits { count, hold: id } = hits;
        self.last = now.max(self.last);
        let others = self.others(id);
        if others < self.count {
            self.holds.retain(|other| other.id != id);
        }
        self.count = others + u64::from(count);
        self.holds.push_back(Hold { id, start: self.last, hits: count });
    }

    fn refund(&mut self, _: Micros, hits: Hits) {
        let Hits { count, hold: id } = hits;
        let mut left = count;
        for held in self.holds.iter_mut().rev().filter(|held| held.id == id) {
            let back = left.min(held.hits);
            held.hits -= back;
            left -= back;
            self.count -= u64::from(back);
        }
        if left < count {
            self.holds.retain(|held| held.hits > 0);
        }
    }

    fn holds(&self, limit: &Concurrency, now: Micros) -> HoldLevels {
        let oldest = self.holds.front().filter(|_| self.count > 0);
        HoldLevels {
            ids: Some(self.holds.len() as u64),
            hits: self.count,
            expires_after: oldest.map_or(0, |hold| hold.expires(limit).saturating_sub(now)),
        }
    }

    fn save(&self, out: &mut Vec<u8>) {
        saved::put(out, self.last);
        saved::put(out, self.holds.len() as u64);
        if self.holds.is_empty() {
            saved::put(out, self.count);
        }
        for hold in &self.holds {
            saved::put(out, hold.id);
            saved::put(out, hold.start);
            saved::put(out, hold.hits.into());
        }
    }
}

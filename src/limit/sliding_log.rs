//! Sliding log: the time of every admitted hit.
//!
//! Allowed iff the stamps in `(t - p, t]` and `h` come to at most `n`; a stamp exactly `p` old no
//! longer counts. All sliding_log limits of a rule read one log, as long as the largest `n`.
//!
//! State: a stamp of 8 bytes for each of the newest `n` admitted hits. Cost: one look at the stamp
//! that must have left, and a binary search for what remains. Guarantee: never more than `n` in any
//! span of the period. Denied hits leave no trace, so memory is bounded and a flood cannot starve its
//! sender. Source: DomainTools, "Rate limiting with Redis", and its rate-limit package.

use std::collections::VecDeque;

use super::{Asked, Levels, Micros, wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    pub n: u32,
    pub period: Micros,
}

/// Stamps in order, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log(VecDeque<Micros>);

/// What the logs of one rule share: the longest and the shortest of their periods, and how many
/// stamps are kept.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub longest: Micros,
    pub shortest: Micros,
    pub stamps: usize,
}

impl Log {
    /// Drops stamps that no limit counts any more. Where the clock stepped back by more than the
    /// shortest period, all stamps move so that the newest is now.
    pub fn settle(&mut self, shared: &Shared, now: Micros) {
        let newest = self.0.back().copied().unwrap_or(0);
        if newest > now.saturating_add(shared.shortest) {
            let back = newest - now;
            self.0.iter_mut().for_each(|stamp| *stamp = stamp.saturating_sub(back));
        }
        let t = self.latest(now);
        let gone = |stamp: &Micros| stamp.saturating_add(shared.longest) <= t;
        // Mostly few leave. A long log that lapsed while nobody asked is not emptied one by one.
        let few = self.0.iter().take(8).take_while(|stamp| gone(stamp)).count();
        let kept_from = if few < 8 { few } else { self.0.partition_point(gone) };
        self.0.drain(..kept_from);
    }

    /// `now`, or the newest stamp where the clock stepped back behind it.
    fn latest(&self, now: Micros) -> Micros {
        self.0.back().map_or(now, |&newest| newest.max(now))
    }

    /// Adds a stamp for each hit and keeps the newest.
    pub fn charge(&mut self, shared: &Shared, now: Micros, hits: u32) {
        let t = self.latest(now);
        let hits = (hits as usize).min(shared.stamps);
        let surplus = (self.0.len() + hits).saturating_sub(shared.stamps);
        self.0.drain(..surplus);
        if self.0.capacity() < self.0.len() + hits {
            // Grows by an eighth, not twofold: a log is most of what its key weighs.
            let room = (self.0.len() / 8).max(8).min(shared.stamps - self.0.len() - hits);
            self.0.reserve_exact(hits + room);
        }
        self.0.extend(std::iter::repeat_n(t, hits));
    }

    /// Takes the newest stamps back.
    pub fn give_back(&mut self, hits: u32) {
        self.0.truncate(self.0.len().saturating_sub(hits as usize));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SlidingLog {
    pub fn judge(&self, log: &Log, now: Micros, hits: u64) -> Asked {
        let Some(others) = u64::from(self.n).checked_sub(hits) else {
            return Asked { allowed: false, retry_after: None };
        };
        // So many others may be in the span: the one before them must have left.
        let Some(before) = (log.0.len() as u64).checked_sub(others + 1) else {
            return Asked { allowed: true, retry_after: None };
        };
        let leaves = log.0[before as usize].saturating_add(self.period);
        let allowed = leaves <= log.latest(now);
        Asked { allowed, retry_after: (!allowed).then(|| wait(leaves, now)) }
    }

    pub fn levels(&self, log: &Log, now: Micros) -> Levels {
        let t = log.latest(now);
        let gone = log.0.partition_point(|stamp| stamp.saturating_add(self.period) <= t);
        let used = (log.0.len() - gone) as u64;
        let newest = log.0.back().copied().unwrap_or(0);
        Levels {
            used,
            remaining: u64::from(self.n).saturating_sub(used),
            reset_after: if used == 0 { 0 } else { wait(newest + self.period, now) },
            empty: used == 0,
        }
    }
}

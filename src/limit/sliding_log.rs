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

use super::{Levels, Micros, Verdict, wait};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    pub n: u32,
    pub period: Micros,
}

/// The log of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// Stamps in order, the newest last.
    Whole(VecDeque<Micros>),
    /// What a store told of a log that it keeps elsewhere.
    Glimpsed(Box<Glimpse>),
}

impl Default for Log {
    fn default() -> Self {
        Log::Whole(VecDeque::new())
    }
}

/// What there is to know of a log to judge the same hits again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// The newest stamp; 0 for none.
    pub newest: Micros,
    /// What remains as the newest where hits are given back.
    pub next: Micros,
    pub views: Vec<View>,
}

/// A log as one limit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub limit: SlidingLog,
    /// Hits that count.
    pub used: u64,
    /// The stamp that must leave before the hits are allowed that were asked for.
    pub blocks: Micros,
}

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
    /// shortest period, all stamps move so that the newest is now. A glimpse is of now already.
    pub fn settle(&mut self, shared: &Shared, now: Micros) {
        let t = self.latest(now);
        let stamps = match self {
            Log::Whole(stamps) => stamps,
            Log::Glimpsed(glimpse) => {
                // All else that was told is as of now.
                if glimpse.newest > now.saturating_add(shared.shortest) {
                    glimpse.newest = now;
                }
                return;
            }
        };
        let newest = stamps.back().copied().unwrap_or(0);
        let mut t = t;
        if newest > now.saturating_add(shared.shortest) {
            let back = newest - now;
            stamps.iter_mut().for_each(|stamp| *stamp = stamp.saturating_sub(back));
            t = now;
        }
        let gone = |stamp: &Micros| stamp.saturating_add(shared.longest) <= t;
        // Mostly few leave. A long log that lapsed while nobody asked is not emptied one by one.
        let few = stamps.iter().take(8).take_while(|stamp| gone(stamp)).count();
        let kept_from = if few < 8 { few } else { stamps.partition_point(gone) };
        stamps.drain(..kept_from);
    }

    fn newest(&self) -> Option<Micros> {
        match self {
            Log::Whole(stamps) => stamps.back().copied(),
            Log::Glimpsed(glimpse) => (glimpse.newest > 0).then_some(glimpse.newest),
        }
    }

    /// `now`, or the newest stamp where the clock stepped back behind it.
    fn latest(&self, now: Micros) -> Micros {
        self.newest().map_or(now, |newest| newest.max(now))
    }

    /// Adds a stamp for each hit and keeps the newest.
    pub fn charge(&mut self, shared: &Shared, now: Micros, hits: u32) {
        let t = self.latest(now);
        let hits = (hits as usize).min(shared.stamps);
        match self {
            Log::Whole(stamps) => {
                let surplus = (stamps.len() + hits).saturating_sub(shared.stamps);
                stamps.drain(..surplus);
                if stamps.capacity() < stamps.len() + hits {
                    // Grows by an eighth, not twofold: a log is most of what its key weighs.
                    let room = (stamps.len() / 8).max(8).min(shared.stamps - stamps.len() - hits);
                    stamps.reserve_exact(hits + room);
                }
                stamps.extend(std::iter::repeat_n(t, hits));
            }
            Log::Glimpsed(glimpse) => {
                glimpse.newest = t;
                for view in &mut glimpse.views {
                    view.used = (view.used + hits as u64).min(shared.stamps as u64);
                }
            }
        }
    }

    /// Takes the newest stamps back.
    pub fn give_back(&mut self, hits: u32) {
        match self {
            Log::Whole(stamps) => stamps.truncate(stamps.len().saturating_sub(hits as usize)),
            Log::Glimpsed(glimpse) => {
                glimpse.newest = glimpse.next;
                for view in &mut glimpse.views {
                    view.used = view.used.saturating_sub(hits.into());
                }
            }
        }
    }

    #[cfg(test)]
    pub fn stamps(&self) -> usize {
        match self {
            Log::Whole(stamps) => stamps.len(),
            Log::Glimpsed(_) => 0,
        }
    }
}

impl SlidingLog {
    pub fn judge(&self, log: &Log, now: Micros, hits: u64) -> Verdict {
        let Some(others) = u64::from(self.n).checked_sub(hits) else {
            return Verdict { allowed: false, retry_after: None };
        };
        let leaves = match log {
            Log::Whole(stamps) => {
                // So many others may be in the span: the one before them must have left.
                let Some(before) = (stamps.len() as u64).checked_sub(others + 1) else {
                    return Verdict::ALLOWED;
                };
                stamps[before as usize].saturating_add(self.period)
            }
            Log::Glimpsed(glimpse) => match self.view(glimpse) {
                Some(view) if view.used > others => view.blocks.saturating_add(self.period),
                _ => return Verdict::ALLOWED,
            },
        };
        let allowed = leaves <= log.latest(now);
        Verdict { allowed, retry_after: (!allowed).then(|| wait(leaves, now)) }
    }

    fn view<'g>(&self, glimpse: &'g Glimpse) -> Option<&'g View> {
        glimpse.views.iter().find(|view| view.limit == *self)
    }

    pub fn levels(&self, log: &Log, now: Micros) -> Levels {
        let used = match log {
            Log::Whole(stamps) => {
                let t = log.latest(now);
                let gone = stamps.partition_point(|stamp| stamp.saturating_add(self.period) <= t);
                (stamps.len() - gone) as u64
            }
            Log::Glimpsed(glimpse) => self.view(glimpse).map_or(0, |view| view.used),
        };
        let newest = log.newest().unwrap_or(0);
        Levels {
            used,
            remaining: u64::from(self.n).saturating_sub(used),
            reset_after: if used == 0 { 0 } else { wait(newest + self.period, now) },
            empty: used == 0,
        }
    }
}

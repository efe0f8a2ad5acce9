//! The log of one key: the times (stamps) of admitted hits, which all sliding_log limits of a rule share.

use std::collections::VecDeque;

use crate::saved::{self, SavedNumbers};
use crate::time::Micros;

/// The log of one key, shared by all sliding_log limits of its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HitLog {
    /// All stamps in order, the newest last.
    Stamps(VecDeque<Micros>),
    /// The summary of a log that is kept in Redis.
    Summary(Box<LogSummary>),
}

impl Default for HitLog {
    fn default() -> Self {
        HitLog::EMPTY
    }
}

/// What Redis returns of a log, to decide the hits of one request without the stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// The newest stamp; 0 for none.
    pub newest: Micros,
    /// The newest stamp after the hits of the request are refunded.
    pub newest_after_refund: Micros,
    /// One for each limit that reads the log.
    pub limits: Vec<LimitSummary>,
}

/// The part of a log that the limit of `n` hits in any span of `period` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSummary {
    /// The hits that one period allows.
    pub n: u32,
    /// The length of the period.
    pub period: Micros,
    /// Hits that count.
    pub used: u64,
    /// The stamp that must expire before the checked hits are allowed.
    pub blocking: Micros,
}

/// What bounds the log of a rule: the periods of its limits, and how many stamps are kept.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    longest_period: Micros,
    shortest_period: Micros,
    max_stamps: usize,
}

impl LogBounds {
    /// Returns the bounds of a log by the `n` and the period of each sliding_log limit; none without any.
    pub fn new(limits: impl Iterator<Item = (u32, Micros)>) -> Option<LogBounds> {
        let bounds = limits.map(|(n, period)| LogBounds {
            longest_period: period,
            shortest_period: period,
            max_stamps: n as usize,
        });
        bounds.reduce(|one, other| LogBounds {
            longest_period: one.longest_period.max(other.longest_period),
            shortest_period: one.shortest_period.min(other.shortest_period),
            max_stamps: one.max_stamps.max(other.max_stamps),
        })
    }
}

impl HitLog {
    /// The log of a key without hits.
    pub(crate) const EMPTY: HitLog = HitLog::Stamps(VecDeque::new());

    /// Drops stamps that no limit counts any more. If the clock stepped back by more than the
    /// shortest period, all stamps move so that the newest is now. A summary is of now already.
    pub fn advance(&mut self, bounds: &LogBounds, now: Micros) {
        let is_ahead = self.is_ahead(bounds, now);
        let t = if is_ahead { now } else { self.latest(now) };
        let stamps = match self {
            HitLog::Stamps(stamps) => stamps,
            HitLog::Summary(summary) => {
                if is_ahead {
                    summary.newest = now;
                }
                return;
            }
        };
        if is_ahead {
            let back = stamps.back().map_or(0, |newest| newest - now);
            stamps.iter_mut().for_each(|stamp| *stamp = stamp.saturating_sub(back));
        }
        let expired = |stamp: &Micros| stamp.saturating_add(bounds.longest_period) <= t;
        // Mostly few expire. A long log that expired as a whole is not emptied one by one.
        let few = stamps.iter().take(8).take_while(|stamp| expired(stamp)).count();
        let kept_from = if few < 8 { few } else { stamps.partition_point(expired) };
        stamps.drain(..kept_from);
    }

    /// Returns whether the clock stepped back by more than the shortest period.
    pub(crate) fn is_ahead(&self, bounds: &LogBounds, now: Micros) -> bool {
        self.newest().is_some_and(|newest| newest > now.saturating_add(bounds.shortest_period))
    }

    /// Returns how many stamps came in the last `span`.
    pub(super) fn within(&self, now: Micros, span: Micros) -> u64 {
        let HitLog::Stamps(stamps) = self else { return 0 };
        let t = self.latest(now);
        let passed = stamps.partition_point(|stamp| stamp.saturating_add(span) <= t);
        (stamps.len() - passed) as u64
    }

    /// Returns how many stamps some limit still counts.
    pub fn live(&self, bounds: &LogBounds, now: Micros) -> u64 {
        self.within(now, bounds.longest_period)
    }

    /// Returns whether the log has room for no more, and all of it came in the last `span`.
    pub fn is_full(&self, bounds: &LogBounds, now: Micros, span: Micros) -> bool {
        self.within(now, span) >= bounds.max_stamps as u64
    }

    pub(super) fn newest(&self) -> Option<Micros> {
        match self {
            HitLog::Stamps(stamps) => stamps.back().copied(),
            HitLog::Summary(summary) => (summary.newest > 0).then_some(summary.newest),
        }
    }

    /// Returns `now`, or the newest stamp if the clock stepped back behind it.
    pub(super) fn latest(&self, now: Micros) -> Micros {
        self.newest().map_or(now, |newest| newest.max(now))
    }

    /// Adds a stamp for each hit and keeps the newest.
    pub fn charge(&mut self, bounds: &LogBounds, now: Micros, hits: u32) {
        let t = self.latest(now);
        let hits = (hits as usize).min(bounds.max_stamps);
        match self {
            HitLog::Stamps(stamps) => {
                let surplus = (stamps.len() + hits).saturating_sub(bounds.max_stamps);
                stamps.drain(..surplus);
                if stamps.capacity() < stamps.len() + hits {
                    // Grows by an eighth instead of doubling: most of a key's memory is its log.
                    let room =
                        (stamps.len() / 8).max(8).min(bounds.max_stamps - stamps.len() - hits);
                    stamps.reserve_exact(hits + room);
                }
                stamps.extend(std::iter::repeat_n(t, hits));
            }
            HitLog::Summary(summary) => {
                summary.newest = t;
                for limit in &mut summary.limits {
                    limit.used = (limit.used + hits as u64).min(bounds.max_stamps as u64);
                }
            }
        }
    }

    /// Removes the newest stamps.
    pub fn refund(&mut self, hits: u32) {
        match self {
            HitLog::Stamps(stamps) => stamps.truncate(stamps.len().saturating_sub(hits as usize)),
            HitLog::Summary(summary) => {
                summary.newest = summary.newest_after_refund;
                for limit in &mut summary.limits {
                    limit.used = limit.used.saturating_sub(hits.into());
                }
            }
        }
    }

    /// Appends the log as it is saved. A summary has nothing to save: its log is kept elsewhere.
    pub fn save(&self, out: &mut Vec<u8>) {
        let HitLog::Stamps(stamps) = self else { return saved::put(out, 0) };
        saved::put_log(out, stamps.len(), stamps.iter());
    }

    /// Reads what [`save`](Self::save) has written; none if that was no log.
    pub(crate) fn restore(saved: &mut SavedNumbers<'_>) -> Option<HitLog> {
        let len = saved.next_len()?;
        let mut before = 0_u64;
        let mut stamps = VecDeque::with_capacity(len);
        for _ in 0..len {
            before = before.checked_add(saved.next()?)?;
            stamps.push_back(before);
        }
        Some(HitLog::Stamps(stamps))
    }
}

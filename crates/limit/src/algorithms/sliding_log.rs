//! Sliding log (`sliding_log` in rules): keeps a stamp, the time, of every admitted hit.
//!
//! At time `t`, a request of `h` hits is allowed iff the stamps in `(t - p, t]` and `h` come to at most `n`, where `p`
//! is the period; a stamp exactly `p` old no longer counts. All sliding_log limits of a rule read one log, as long as
//! the largest `n`.
//!
//! State: a stamp of 8 bytes for each of the newest `n` admitted hits. Cost: one look at the stamp that must have
//! expired, and a binary search for what remains. Guarantee: never more than `n` in any span of the period. Denied hits
//! leave no trace, so memory is bounded and a client that floods is not starved. Source: DomainTools, "Rate limiting
//! with Redis", and its rate-limit package.

use std::fmt::{self, Write};

use crate::algorithm::{Hits, Levels, LimitAlgorithm, SpanCount, Verdict};
use crate::hit_log::{HitLog, LimitSummary, LogSummary};
use crate::numbers::{NumbersChange, NumbersError};
use crate::saved::SavedNumbers;
use crate::time::{Micros, SECOND};

/// `n` hits in any span of `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// The hits that one period allows.
    pub n: u32,
    /// The length of the period.
    pub period: Micros,
}

impl SlidingLog {
    /// The bytes of a hit's time.
    pub const STAMP_BYTES: u64 = 8;

    fn find<'s>(&self, summary: &'s LogSummary) -> Option<&'s LimitSummary> {
        summary.limits.iter().find(|limit| (limit.n, limit.period) == (self.n, self.period))
    }
}

impl LimitAlgorithm for SlidingLog {
    type State = ();

    const NAME: &'static str = "sliding_log";
    const COUNTS_AT_ZERO: bool = false;
    const HIT_BYTES: u64 = SlidingLog::STAMP_BYTES;
    const NEEDS_EXPIRY: bool = false;

    // All limits of a rule share one log. The plan calls `HitLog` to change it once for all of them.

    fn advance(&self, _: &mut (), _: Micros) {}

    fn charge(&self, _: &mut (), _: Micros, _: Hits, _: bool) {}

    fn refund(&self, _: &mut (), _: Micros, _: Hits) {}

    fn verdict(&self, (): &(), log: &HitLog, now: Micros, hits: Hits) -> Verdict {
        let Some(others) = u64::from(self.n).checked_sub(hits.count.into()) else {
            return Verdict::NEVER;
        };
        let expires = match log {
            HitLog::Stamps(stamps) => {
                // At most `others` may be in the span: the one before them must have expired.
                let Some(before) = (stamps.len() as u64).checked_sub(others + 1) else {
                    return Verdict::ALLOWED;
                };
                stamps[before as usize].saturating_add(self.period)
            }
            HitLog::Summary(summary) => match self.find(summary) {
                Some(limit) if limit.used > others => limit.blocking.saturating_add(self.period),
                _ => return Verdict::ALLOWED,
            },
        };
        let allowed = expires <= log.latest(now);
        Verdict { allowed, retry_after: (!allowed).then(|| expires.saturating_sub(now)) }
    }

    fn levels(&self, (): &(), log: &HitLog, now: Micros) -> Levels {
        let used = match log {
            HitLog::Stamps(_) => log.within(now, self.period),
            HitLog::Summary(summary) => self.find(summary).map_or(0, |limit| limit.used),
        };
        let newest = log.newest().unwrap_or(0);
        Levels {
            used,
            remaining: u64::from(self.n).saturating_sub(used),
            reset_after: if used == 0 { 0 } else { (newest + self.period).saturating_sub(now) },
            empty: used == 0,
        }
    }

    fn repeats_denials(&self, charge_denied: bool, _: bool) -> bool {
        !charge_denied
    }

    fn log_period(&self) -> Option<Micros> {
        Some(self.period)
    }

    fn longest_span(&self) -> Option<Micros> {
        Some(self.period)
    }

    fn count(&self, (): &(), log: &HitLog, now: Micros, span: Micros) -> Option<SpanCount> {
        let count = log.within(now, span);
        Some(SpanCount { limit: 0, count, resolution: 0, max_late: 0, is_minimum: false })
    }

    fn write_shape(&self, shape: &mut String) -> fmt::Result {
        write!(shape, "l{}", self.period / SECOND)
    }

    fn with_numbers(&self, change: NumbersChange) -> Result<SlidingLog, NumbersError> {
        Ok(SlidingLog { n: change.without_burst()?, ..*self })
    }

    const TAG: u64 = 3;

    fn save((): &(), _: &mut Vec<u8>) {}

    fn restore(_: &mut SavedNumbers<'_>) -> Option<()> {
        Some(())
    }
}

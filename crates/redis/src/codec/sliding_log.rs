//! How sliding logs, the times of all admitted hits, are packed for Redis. All limits of a rule share one log. A charge
//! returns only its head and, for each limit, a summary for the hits of the call; a read of the state returns it whole.

use std::collections::VecDeque;

use super::format::{Codec, LuaModule, Reader, put_all};
use weir_limit::hit_log::{HitLog, LimitSummary, LogSummary};
use weir_limit::{Algorithm, Limit, LimitState, Micros, SlidingLog};

const STAMP_BYTES: usize = 7;

impl Codec for SlidingLog {
    const MODULE: LuaModule = LuaModule::new(4, include_str!("../lua/sliding_log.lua"));

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
    }

    fn read_state(&self, _: &mut Reader<'_>) -> Option<LimitState> {
        Some(LimitState::SlidingLog(()))
    }
}

/// The head of the log, which comes after the numbers of all limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogHead {
    /// The position of the oldest stamp in the ring.
    oldest: u32,
    len: u32,
    capacity: u32,
    newest: Micros,
    /// By how much all stamps are too late.
    late: Micros,
}

impl LogHead {
    pub fn read(head: &mut Reader<'_>) -> Option<LogHead> {
        Some(LogHead {
            oldest: head.short()?,
            len: head.short()?,
            capacity: head.short()?,
            newest: head.wide()?,
            late: head.wide()?,
        })
    }

    /// Returns the log without its stamps; `None` if the head is invalid.
    pub fn summary(&self) -> Option<HitLog> {
        let newest = if self.len > 0 { self.newest.checked_sub(self.late)? } else { 0 };
        Some(HitLog::Summary(Box::new(LogSummary { newest, ..LogSummary::default() })))
    }

    /// Reads the stamps, oldest first, from the ring; `None` if the log is invalid.
    pub fn stamps(&self, ring: Reader<'_>) -> Option<HitLog> {
        if self.len > 0 && (self.oldest >= self.capacity || self.len > self.capacity) {
            return None;
        }
        let stamp = |i: u32| {
            let at = (u64::from(self.oldest) + u64::from(i)) % u64::from(self.capacity);
            let from = usize::try_from(at).ok()?.checked_mul(STAMP_BYTES)?;
            // A clock that started at 0 may have stepped back.
            Some(Reader(ring.0.get(from..)?).wide()?.saturating_sub(self.late))
        };
        let stamps: Option<VecDeque<Micros>> = (0..self.len).map(stamp).collect();
        stamps.map(HitLog::Stamps)
    }
}

/// Reads the summaries of the limits, which come after the state.
pub(super) fn read_summaries(
    log: &mut HitLog,
    limits: &[Limit],
    reply: &mut Reader<'_>,
) -> Option<()> {
    let mut summary = match std::mem::take(log) {
        HitLog::Summary(summary) => summary,
        HitLog::Stamps(_) => Box::default(),
    };
    for limit in limits {
        if let Algorithm::SlidingLog(SlidingLog { n, period }) = limit.algorithm {
            let (used, blocking) = (reply.wide()?, reply.wide()?);
            summary.newest_after_refund = blocking;
            summary.limits.push(LimitSummary { n, period, used, blocking });
        }
    }
    *log = HitLog::Summary(summary);
    Some(())
}

//! Sliding logs. All limits of a rule share one log, which stays in Redis: weir gets its head and,
//! for each limit, a summary for the hits of the call.

use super::{Codec, LuaModule, Reader, put_all};
use crate::limit::algorithms::sliding_log::{HitLog, LimitSummary, LogSummary};
use crate::limit::{Algorithm, Limit, LimitState, Micros, SlidingLog};

pub(super) const MODULE: LuaModule =
    LuaModule { number: 4, borrows_from: None, text: include_str!("../lua/sliding_log.lua") };

impl Codec for SlidingLog {
    const MODULES: &'static [&'static LuaModule] = &[&MODULE];

    fn module(&self) -> &'static LuaModule {
        &MODULE
    }

    fn write_numbers(&self, _: Micros, out: &mut Vec<u8>) {
        put_all(out, &[self.n.into(), self.period]);
    }

    fn read_state(&self, _: &mut Reader<'_>) -> Option<LimitState> {
        Some(LimitState::SlidingLog(()))
    }
}

/// Reads the head of the log, which comes after the numbers of all limits.
pub(super) fn read_log(head: &mut Reader<'_>) -> Option<HitLog> {
    let (_oldest, len, _room) = (head.short()?, head.short()?, head.short()?);
    let (newest, late) = (head.wide()?, head.wide()?);
    let newest = if len > 0 { newest.checked_sub(late)? } else { 0 };
    Some(HitLog::Summary(Box::new(LogSummary { newest, ..LogSummary::default() })))
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
        if let Algorithm::SlidingLog(limit) = limit.algorithm {
            let (used, blocking) = (reply.wide()?, reply.wide()?);
            summary.newest_after_give_back = blocking;
            summary.limits.push(LimitSummary { limit, used, blocking });
        }
    }
    *log = HitLog::Summary(summary);
    Some(())
}

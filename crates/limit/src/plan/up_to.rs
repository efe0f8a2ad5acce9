//! Taking some hits, and more where they are allowed.

use std::num::NonZeroU32;

use super::Plan;
use crate::hit_log::HitLog;
use crate::{ChargeOutcome, Hits, LimitState, Micros, Verdict};

/// The hits of an [`Op::UpTo`](super::Op::UpTo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpTo {
    /// The hits without which nothing is taken.
    pub least: u32,
    /// The most hits to take; `least` if it is less.
    pub most: u32,
    /// Of what the limits have left after `least`, at most one part of this number is taken, and none of
    /// fewer hits than this: not `share - 1` or fewer of the last hits.
    pub share: NonZeroU32,
}

impl UpTo {
    /// Returns the hits to take by the room of each limit that enforces, which is the largest number
    /// of hits that it allows; none if one of them denies `least`.
    pub(crate) fn granted(self, mut rooms: impl Iterator<Item = u64>) -> Option<u32> {
        let (least, share) = (u64::from(self.least), u64::from(self.share.get()));
        let part =
            rooms.try_fold(u64::MAX, |part, room| Some(part.min(room.checked_sub(least)? / share)));
        let most = u64::from(self.most).saturating_sub(least);
        let more = most.min(part.map(|part| if part < share { 0 } else { part })?);
        Some(u32::try_from(least + more).unwrap_or(u32::MAX))
    }
}

impl Plan {
    /// [Takes](Self::take) the hits that are granted, as if no more had been asked for.
    #[cold]
    pub(super) fn up_to<const CHARGES_DENIED: bool>(
        &self,
        states: &mut [LimitState],
        log: &mut HitLog,
        now: Micros,
        up_to: UpTo,
        hold: u64,
    ) -> ChargeOutcome {
        let enforced = self.limits.iter().zip(&*states).filter(|(limit, _)| !limit.shadow_mode);
        let rooms = enforced.map(|(limit, state)| limit.room(state, log, now, hold));
        let granted = up_to.granted(rooms);
        if granted == Some(0) {
            let used = self.used(states, log, now);
            return self.conclude(states, log, now, &[Verdict::ALLOWED; 16], &used);
        }
        let count = granted.unwrap_or(up_to.least);
        let mut outcome = self.take::<CHARGES_DENIED>(states, log, now, Hits { count, hold });
        outcome.decision.granted = granted.unwrap_or(0);
        outcome
    }
}

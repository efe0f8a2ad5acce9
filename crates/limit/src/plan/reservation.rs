//! Reserves hits before a client knows how many it uses, and settles them when it reports the number.
//!
//! A reservation is a charge, so that reserved hits are counted once, like all others. Beside the counts of a key, a
//! store keeps what was reserved under an id. Settling with the hits that were used returns the rest, or charges the
//! difference whatever the limits say.

use std::num::NonZeroU32;

use super::op::{Op, Otherwise, ReservationOp, Reserve, Undo, UpTo};
use super::{Plan, State};
use crate::algorithm::Packed;
use crate::decision::ReservationResult;
use crate::limit::{ChargeOutcome, Limit};
use crate::time::{Micros, SECOND};

/// The hits that are reserved under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The sum of the hits that were reserved and not settled.
    pub hits: u32,
    /// The number of reservations that the hits are the sum of.
    pub count: u16,
    /// The limits that charged all of them, one bit each.
    pub limits: u16,
    /// The time for which the hits count: that of the first reservation, or an earlier one of a clock that has
    /// stepped back. 0 once their key was reset: they count no more.
    pub taken: Micros,
    /// When the hits can no longer be settled: in whole seconds.
    pub lapses: Micros,
    /// What a repeated request to reserve is known by, up to [`MAX_TAG`](Self::MAX_TAG); 0 if its requests add up.
    pub tag: u16,
}

/// The state of a key: a [`State`], or packed into 12 bytes.
pub trait KeyCounts {
    /// Charges the state as [`Plan::charge`] does.
    fn charge(&mut self, plan: &Plan, now: Micros, op: Op) -> ChargeOutcome;

    /// Passes each limit with the start of its newest window or sub-window; 0 if it has none.
    fn each_window(&self, plan: &Plan, now: Micros, each: impl FnMut(&Limit, Micros));
}

impl KeyCounts for State {
    fn charge(&mut self, plan: &Plan, now: Micros, op: Op) -> ChargeOutcome {
        plan.charge_hashed(self, now, op, 0)
    }

    fn each_window(&self, plan: &Plan, _: Micros, mut each: impl FnMut(&Limit, Micros)) {
        for (limit, state) in plan.limits.iter().zip(&self.limits) {
            each(limit, limit.algorithm.newest_window(state));
        }
    }
}

impl KeyCounts for Packed {
    fn charge(&mut self, plan: &Plan, now: Micros, op: Op) -> ChargeOutcome {
        plan.charge_packed(self, now, op, None)
    }

    fn each_window(&self, plan: &Plan, now: Micros, mut each: impl FnMut(&Limit, Micros)) {
        for limit in &plan.limits {
            let mut state = limit.algorithm.unpack(*self, now);
            limit.algorithm.advance(&mut state, now);
            each(limit, limit.algorithm.newest_window(&state));
        }
    }
}

impl ReservationOp {
    /// Returns what is charged by the reservation of the id, if it has one.
    pub fn charge(self, reservation: Option<&Reservation>) -> Op {
        match (self, reservation) {
            (ReservationOp::Reserve { reserve, once: None }, _)
            | (
                ReservationOp::Reserve { reserve, .. }
                | ReservationOp::Settle { otherwise: Otherwise::Reserve(reserve), .. },
                None,
            ) => {
                let Reserve { least, most, .. } = reserve;
                Op::UpTo(UpTo { least, most, share: NonZeroU32::MIN })
            }
            (ReservationOp::Settle { used, .. }, Some(reservation)) => {
                let reserved = reservation.part();
                match reserved.checked_sub(used) {
                    Some(rest @ 1..) => reservation.undo(rest),
                    _ => Op::Add { hits: used - reserved, limits: reservation.limits },
                }
            }
            (ReservationOp::Settle { used, otherwise: Otherwise::Charge }, None) => {
                Op::Add { hits: used, limits: u16::MAX }
            }
            (ReservationOp::Cancel(hits), Some(reservation)) => {
                reservation.undo(hits.min(reservation.hits))
            }
            (ReservationOp::Settle { .. } | ReservationOp::Cancel(_), None)
            | (ReservationOp::Reserve { .. }, Some(_)) => Op::Add { hits: 0, limits: 0 },
        }
    }
}

impl Reservation {
    /// The largest [`tag`](Self::tag): records have 12 bits for it.
    pub const MAX_TAG: u16 = (1 << 12) - 1;

    /// The longest time, in seconds, within which hits can be settled.
    pub const MAX_TIMEOUT: u32 = 86_400;

    /// Returns what is left of it after its key was reset: what was reserved until then counts no more.
    pub fn after_reset(self, reset: Micros) -> Reservation {
        Reservation { taken: if self.taken <= reset { 0 } else { self.taken }, ..self }
    }

    /// Returns the hits of one of the reservations.
    fn part(&self) -> u32 {
        self.hits / u32::from(self.count.max(1))
    }

    fn undo(&self, hits: u32) -> Op {
        match self.taken {
            0 => Op::Add { hits: 0, limits: 0 },
            taken => Op::Undo(Undo { hits, taken, limits: self.limits }),
        }
    }

    /// Returns what is reserved with another reservation of the same id.
    fn with(self, other: Reservation) -> Reservation {
        Reservation {
            hits: self.hits.saturating_add(other.hits),
            count: self.count + 1,
            limits: self.limits & other.limits,
            taken: self.taken.min(other.taken),
            lapses: self.lapses.max(other.lapses),
            tag: other.tag,
        }
    }

    /// Returns what is left without one reservation of some hits.
    fn without(self, hits: u32) -> Option<Reservation> {
        let count = self.count.checked_sub(1).filter(|count| *count > 0)?;
        Some(Reservation { hits: self.hits.saturating_sub(hits), count, ..self })
    }

    /// Returns whether it can still be settled.
    pub fn is_live(&self, now: Micros) -> bool {
        now < self.lapses
    }
}

impl Plan {
    /// Returns whether hits can be reserved: where they count by windows. What has drained from a bucket until it is
    /// settled is not known for each reservation, and single hits and those in flight cannot be returned later.
    pub fn can_reserve(&self) -> bool {
        self.limits.iter().all(|limit| limit.algorithm.window_end(0).is_some())
    }

    /// Makes `op` for a plan that [can reserve](Self::can_reserve), and keeps in `reservation` what the id has reserved.
    pub fn charge_reservation(
        &self,
        counts: &mut impl KeyCounts,
        reservation: &mut Option<Reservation>,
        now: Micros,
        op: ReservationOp,
    ) -> ChargeOutcome {
        let before = reservation.filter(|reservation| reservation.is_live(now));
        let charge = op.charge(before.as_ref());
        let mut outcome = match charge {
            Op::UpTo(_) => counts.charge(self, now, Op::Reservation(op)),
            charge => counts.charge(self, now, charge),
        };
        let added = if let Op::Add { hits, .. } = charge { hits } else { 0 };
        let decision = &mut outcome.decision;
        *reservation = match (charge, before, op) {
            (Op::UpTo(_), before, op) => {
                let Some(reserve) = op.reserve().filter(|_| decision.allowed) else {
                    return outcome;
                };
                decision.reservation = ReservationResult::Reserved;
                let (newest, taken) = self.times(counts, now);
                let timeout = u64::from(reserve.timeout) * SECOND;
                let reserved = Reservation {
                    hits: decision.granted,
                    count: 1,
                    limits: ((1_u32 << self.limits.len()) - 1) as u16 & !decision.would_deny,
                    taken,
                    lapses: now.saturating_add(timeout).div_ceil(SECOND).saturating_mul(SECOND),
                    tag: op.tag(),
                };
                // Once a window has changed since the first, what it had reserved before stays charged.
                let counts_too =
                    |before: &Reservation| newest <= before.taken && before.count < u16::MAX;
                Some(before.filter(counts_too).map_or(reserved, |before| before.with(reserved)))
            }
            (_, Some(before), ReservationOp::Reserve { .. }) => {
                let is_same = before.count == 1 && before.tag == op.tag();
                decision.reservation = match is_same {
                    true => ReservationResult::Repeated,
                    false => ReservationResult::Conflict,
                };
                decision.reserved = before.hits;
                Some(before)
            }
            (_, None, _) => {
                decision.reservation = ReservationResult::Unknown;
                decision.granted = added;
                None
            }
            (_, Some(before), op) => {
                decision.reservation = ReservationResult::Settled;
                decision.granted = added;
                decision.reserved = match op {
                    ReservationOp::Cancel(hits) => hits.min(before.hits),
                    _ => before.part(),
                };
                before.without(decision.reserved)
            }
        };
        outcome
    }

    /// Returns the start of the newest window of all limits, and the time for which hits count that are
    /// charged at `now`. Where the clock has stepped back behind that window, they count in it, if each limit
    /// has one that includes its start. Otherwise no time is right for all limits: with the earlier one, too
    /// little is returned where it is wrong; with the later one, what was never counted would be.
    fn times(&self, counts: &impl KeyCounts, now: Micros) -> (Micros, Micros) {
        // 0 is no time: the first microsecond of all counts as the second.
        let (now, mut newest) = (now.max(1), 0);
        counts.each_window(self, now, |_, start| newest = newest.max(start));
        let mut taken = now.max(newest);
        if newest > now {
            counts.each_window(self, now, |limit, start| {
                let end = limit.algorithm.window_end(start);
                if end.is_none_or(|end| end <= newest) {
                    taken = now;
                }
            });
        }
        (newest, taken)
    }
}

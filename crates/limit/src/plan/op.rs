//! The operation of a charge.

use super::{ReservationOp, UpTo};
use crate::{Decision, Hits, Undo};

/// The operation of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes hits; 0 only looks, and never charges or creates a state.
    Take(u64),
    /// Refunds hits, newest first, never below zero; always allowed.
    Refund(u64),
    /// Makes a charge of this plan as if it had not been made, or as if it had been of fewer hits; always
    /// allowed. At most once for each charge.
    Undo(Undo),
    /// Takes its least hits, and where these are allowed, as many more as fit, up to its most. Denied, it
    /// is `Take(least)`; allowed, it is `Take(granted)`, with [`granted`](Decision::granted) computed by
    /// the store from the limits that enforce. With a least of 0 it is never denied, at n = 0 neither,
    /// and may be granted 0, which charges nothing.
    UpTo(UpTo),
    /// Charges hits whatever the limits say; always allowed, and made even if its batch is denied as a
    /// whole.
    ///
    /// Each limit is charged as with `charge_denied`: also beyond its n; a bucket up to its debt; and
    /// at n = 0 only where the algorithm counts at 0. A sliding_log, which keeps only admitted hits, is
    /// not charged.
    Add {
        /// 0 does nothing.
        hits: u32,
        /// The limits that are charged, one bit each.
        limits: u16,
    },
    /// Reserves, settles or cancels hits of an id: see [`Plan::charge_reservation`](super::Plan::charge_reservation).
    Reservation(ReservationOp),
}

impl Op {
    /// The hits, which saturate, with the hash of their hold id; of an `UpTo` the least.
    pub(crate) fn hits(self, hold: u64) -> Hits {
        let count = match self {
            Op::Take(count) | Op::Refund(count) => u32::try_from(count).unwrap_or(u32::MAX),
            Op::Undo(undo) => undo.hits,
            Op::UpTo(up_to) => up_to.least,
            Op::Add { hits, .. } => hits,
            Op::Reservation(op) => op.hits(),
        };
        Hits { count, hold }
    }

    /// Returns the most hits to take: 0 for a look, none if hits are refunded or undone.
    #[inline]
    pub fn takes(self) -> Option<u64> {
        match self {
            Op::Take(hits) => Some(hits),
            Op::UpTo(up_to) => Some(up_to.most.max(up_to.least).into()),
            Op::Add { hits, .. } => Some(hits.into()),
            Op::Reservation(ReservationOp::Cancel(_)) | Op::Refund(_) | Op::Undo(_) => None,
            Op::Reservation(op) => op.charge(None).takes(),
        }
    }

    /// Returns the hits that its decision charged, to the limits that charged any.
    #[inline]
    pub fn charged(self, decision: &Decision) -> u64 {
        match self {
            Op::Take(hits) => hits,
            _ => self.charged_otherwise(decision),
        }
    }

    #[cold]
    fn charged_otherwise(self, decision: &Decision) -> u64 {
        match self {
            Op::Take(hits) => hits,
            Op::UpTo(_) if decision.allowed => decision.granted.into(),
            Op::UpTo(up_to) => up_to.least.into(),
            Op::Add { hits, .. } => hits.into(),
            Op::Reservation(_) if decision.allowed => decision.granted.into(),
            Op::Reservation(op) => op.reserve().map_or(0, |reserve| reserve.least.into()),
            Op::Refund(_) | Op::Undo(_) => 0,
        }
    }

    /// Returns whether it has only looked, by its decision: an `UpTo` that was granted nothing has.
    #[inline]
    pub fn is_look(self, decision: &Decision) -> bool {
        match self {
            Op::Take(hits) => hits == 0,
            _ => self.is_other_look(decision),
        }
    }

    #[cold]
    fn is_other_look(self, decision: &Decision) -> bool {
        match self {
            Op::UpTo(_) => decision.allowed && decision.granted == 0,
            Op::Take(hits) => hits == 0,
            Op::Add { hits, .. } => hits == 0,
            Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => false,
        }
    }

    /// Returns the hits for which limits are asked, and which they may deny: 0 for a look, none if it is
    /// always allowed.
    pub fn asks(self) -> Option<u64> {
        match self {
            Op::Take(hits) => Some(hits),
            Op::UpTo(up_to) => (up_to.least > 0).then_some(up_to.least.into()),
            Op::Reservation(op) => op.reserve().map(|reserve| reserve.least.into()),
            Op::Refund(_) | Op::Undo(_) | Op::Add { .. } => None,
        }
    }

    /// Returns whether what an id has reserved decides, which only the store knows.
    #[inline]
    pub fn may_settle(self) -> bool {
        match self {
            Op::Reservation(ReservationOp::Reserve(_)) => false,
            Op::Reservation(_) => true,
            Op::Take(_) | Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) => false,
        }
    }

    /// Returns whether hits may be refunded, undone or settled.
    pub fn is_refund(self) -> bool {
        match self {
            Op::Take(_) | Op::UpTo(_) | Op::Add { .. } => false,
            Op::Refund(_) | Op::Undo(_) => true,
            Op::Reservation(_) => self.may_settle(),
        }
    }

    /// Returns whether it is made even if its batch is denied as a whole. A `SettleOrReserve` without hits
    /// is, where it settles.
    pub fn is_unconditional(self) -> bool {
        match self {
            Op::Reservation(op) => op.reserve().is_none(),
            Op::Take(_) | Op::UpTo(_) => false,
            Op::Refund(_) | Op::Undo(_) | Op::Add { .. } => true,
        }
    }
}

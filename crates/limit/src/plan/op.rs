//! What a request can do with the hits of a key, and what is known of each operation before it is made and after.
//!
//! `Take` charges hits; a look is a `Take` of 0, which only reads. `UpTo` takes what fits between a least and a most.
//! `Add` charges whatever the limits say. `Refund` is a client's, `Undo` takes back a charge of weir's own. `Reserve`
//! charges hits under an id before it is known how many are used; once: only if the id has no reservation. `Settle`
//! returns or adds the difference, or does what follows "or else" if the id has no reservation. `Cancel` returns the
//! hits of one.
//!
//! | Operation | [asks](Op::asks) | [takes](Op::takes) | [charged](Op::charged) | [returns hits](Op::returns_hits) | [unconditional](Op::is_unconditional) |
//! | --- | --- | --- | --- | --- | --- |
//! | `Take` | its hits, 0 for a look | its hits | its hits | no | no |
//! | `UpTo` | its least, unless 0 | its most | what was granted; denied, its least | no | no |
//! | `Add` | nothing | its hits | its hits | no | yes |
//! | `Refund`, `Undo` | nothing | nothing | nothing | yes | yes |
//! | `Reserve` | its least | its most | what was granted; denied, its least | no | no |
//! | `Reserve` once, `Settle` or else reserve | its least | its most | what was granted; denied, its least | yes: only the store knows whether it settles | no |
//! | `Settle` or else charge | nothing | its hits | what was added | yes | yes |
//! | `Settle` or else nothing | nothing | 0 | what was added | yes | yes |
//! | `Cancel` | nothing | nothing | nothing | yes | yes |
//!
//! Hits that an operation asks for may be denied. An unconditional one is made even if all charges of its request are
//! made or none (`charge: together`) and the request is denied. So is a `Settle` that finds a reservation.

use std::num::{NonZeroU16, NonZeroU32};

use crate::decision::Decision;
use crate::time::Micros;

/// What a charge does with the hits of a key. The table of this file compares the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Takes hits; 0 only looks, and never charges or creates a state.
    Take(u64),
    /// Refunds hits, newest first, never below zero; always allowed.
    Refund(u64),
    /// Takes back a charge of this plan, or a part of its hits; at most once, always allowed.
    Undo(Undo),
    /// Takes its least hits, and where these are allowed, as many more as fit, up to its most. Denied, it is
    /// `Take(least)`; allowed, it is `Take(granted)`, with [`granted`](Decision::granted) computed by the store from
    /// the limits that enforce. With a least of 0 it is never denied, even at n = 0. If granted 0, it charges nothing.
    UpTo(UpTo),
    /// Charges hits whatever the limits say; always allowed, and made even if its batch is denied as a whole.
    ///
    /// Each limit is charged as with `charge_denied`: also beyond its n; a bucket up to its debt; and at n = 0 only
    /// where the algorithm counts at 0. A sliding_log, which keeps only admitted hits, is not charged.
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
    /// The hits to charge, which saturate; of an `UpTo` the least.
    pub(crate) fn hits(self) -> u32 {
        match self {
            Op::Take(count) | Op::Refund(count) => u32::try_from(count).unwrap_or(u32::MAX),
            Op::Undo(undo) => undo.hits,
            Op::UpTo(up_to) => up_to.least,
            Op::Add { hits, .. } => hits,
            Op::Reservation(op) => op.hits(),
        }
    }

    /// Returns the hits that limits may deny: 0 for a look, none if it is always allowed.
    pub fn asks(self) -> Option<u64> {
        match self {
            Op::Take(hits) => Some(hits),
            Op::UpTo(up_to) => (up_to.least > 0).then_some(up_to.least.into()),
            Op::Reservation(op) => op.reserve().map(|reserve| reserve.least.into()),
            Op::Refund(_) | Op::Undo(_) | Op::Add { .. } => None,
        }
    }

    /// Returns the most hits to take: 0 for a look, none if hits are refunded, undone or cancelled.
    #[inline]
    pub fn takes(self) -> Option<u64> {
        match self {
            Op::Take(hits) => Some(hits),
            Op::UpTo(up_to) => Some(up_to.most.max(up_to.least).into()),
            Op::Add { hits, .. } => Some(hits.into()),
            Op::Reservation(ReservationOp::Cancel(_)) | Op::Refund(_) | Op::Undo(_) => None,
            Op::Reservation(op) => {
                let most = |reserve: Reserve| reserve.most.max(reserve.least);
                Some(op.reserve().map_or(op.hits(), most).into())
            }
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
            Op::UpTo(_) | Op::Reservation(_) if decision.allowed => decision.granted.into(),
            Op::UpTo(_) | Op::Reservation(_) => self.asks().unwrap_or(0),
            Op::Take(hits) => hits,
            Op::Add { hits, .. } => hits.into(),
            Op::Refund(_) | Op::Undo(_) => 0,
        }
    }

    /// Returns whether it has only looked, by its decision: an `UpTo` that was granted nothing has.
    #[inline]
    pub fn is_look(self, decision: &Decision) -> bool {
        self.charged(decision) == 0 && !self.returns_hits()
    }

    /// Returns whether hits may be refunded, undone or settled. Only the store knows if an id has hits to settle.
    #[inline]
    pub fn returns_hits(self) -> bool {
        match self {
            Op::Take(_) | Op::UpTo(_) | Op::Add { .. } => false,
            Op::Reservation(op) => !matches!(op, ReservationOp::Reserve { once: None, .. }),
            Op::Refund(_) | Op::Undo(_) => true,
        }
    }

    /// Returns whether it is made even if its batch is denied as a whole. A `Settle` that
    /// would else reserve is, where it settles.
    pub fn is_unconditional(self) -> bool {
        self.asks().is_none() && !matches!(self, Op::UpTo(_))
    }
}

/// Hits to take if they fit: see [`Op::UpTo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpTo {
    /// The hits without which nothing is taken.
    pub least: u32,
    /// The most hits to take; `least` if it is less.
    pub most: u32,
    /// At most one `share`th of what the limits have left after `least` is taken; nothing if that is below `share` hits.
    pub share: NonZeroU32,
}

impl UpTo {
    /// Returns the hits to take by the room of each limit that enforces; none if one of them denies `least`.
    pub(crate) fn granted(self, mut rooms: impl Iterator<Item = u64>) -> Option<u32> {
        let (least, share) = (u64::from(self.least), u64::from(self.share.get()));
        let part =
            rooms.try_fold(u64::MAX, |part, room| Some(part.min(room.checked_sub(least)? / share)));
        let most = u64::from(self.most).saturating_sub(least);
        let more = most.min(part.map(|part| if part < share { 0 } else { part })?);
        Some(u32::try_from(least + more).unwrap_or(u32::MAX))
    }
}

/// What undoes a charge, or the part of it that some limits of a plan have in common.
///
/// So leases and reservations return hits that were not used. Unlike a client's refund, which is newest first,
/// an undo touches only the limits that charged the hits, and only where these hits still count: in the window
/// or sub-window of their time, for `sliding_window` also when it is the previous one. It is made at most once,
/// and by the plan that charged. Limits without windows ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The hits that were added, or a part of them to undo; less than the charge had where a count was full.
    pub hits: u32,
    /// The time that they count for: that of the charge, or the newest of a state that is ahead of the clock.
    pub taken: Micros,
    /// The limits that charged them, one bit each.
    pub limits: u16,
}

impl Undo {
    /// Returns the undo of hits added for a time; none if nothing was added.
    pub(crate) fn new(hits: u64, taken: Micros) -> Option<Undo> {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        (hits > 0).then_some(Undo { hits, taken, limits: 0 })
    }
}

/// What is done about the hits that an id has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationOp {
    /// Takes hits as [`Op::UpTo`] does, and reserves those that were granted. Denied hits are never charged.
    Reserve {
        /// The hits to reserve.
        reserve: Reserve,
        /// The tag of the request: if the id has a reservation, nothing happens. Without a tag, reservations add up.
        once: Option<NonZeroU16>,
    },
    /// Settles a reservation with the hits that were used; always allowed. An id with several reservations settles an
    /// equal part of their sum.
    Settle {
        /// The hits that were used.
        used: u32,
        /// What is done if the id has no reservation.
        otherwise: Otherwise,
    },
    /// Returns hits that one reservation was granted; always allowed. Without a reservation nothing happens.
    Cancel(u32),
}

/// What is done about an id without a reservation to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Nothing.
    Nothing,
    /// Charges the hits that were used, as by [`Op::Add`].
    Charge,
    /// Reserves hits for it.
    Reserve(Reserve),
}

/// The hits to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The hits without which nothing is reserved; at least 1.
    pub least: u32,
    /// The most hits to reserve.
    pub most: u32,
    /// The seconds within which they can be settled.
    pub timeout: u32,
}

impl ReservationOp {
    /// Settles hits, which are charged if the id has no reservation.
    pub fn settle(used: u32) -> ReservationOp {
        ReservationOp::Settle { used, otherwise: Otherwise::Charge }
    }

    /// The hits that are charged without a reservation; of what is reserved the least.
    #[cold]
    pub(super) fn hits(self) -> u32 {
        match self {
            ReservationOp::Settle { used, otherwise: Otherwise::Charge } => used,
            op => op.reserve().map_or(0, |reserve| reserve.least),
        }
    }

    /// Returns what to reserve, if anything: an id with a reservation may settle instead.
    pub fn reserve(self) -> Option<Reserve> {
        match self {
            ReservationOp::Reserve { reserve, .. }
            | ReservationOp::Settle { otherwise: Otherwise::Reserve(reserve), .. } => Some(reserve),
            ReservationOp::Settle { .. } | ReservationOp::Cancel(_) => None,
        }
    }

    /// Returns the hits that were used, if it settles.
    pub fn used(self) -> Option<u32> {
        match self {
            ReservationOp::Settle { used, .. } => Some(used),
            ReservationOp::Reserve { .. } | ReservationOp::Cancel(_) => None,
        }
    }

    /// Returns the operation with other hits to reserve, if it may reserve some.
    pub fn with_reserve(mut self, change: impl FnOnce(Reserve) -> Reserve) -> ReservationOp {
        if let ReservationOp::Reserve { reserve, .. }
        | ReservationOp::Settle { otherwise: Otherwise::Reserve(reserve), .. } = &mut self
        {
            *reserve = change(*reserve);
        }
        self
    }

    /// Returns what is left of the operation where nothing is reserved.
    pub fn without_reserve(self) -> Option<ReservationOp> {
        match self {
            ReservationOp::Reserve { .. } => None,
            ReservationOp::Settle { used, otherwise: Otherwise::Reserve(_) } => {
                Some(ReservationOp::Settle { used, otherwise: Otherwise::Nothing })
            }
            op => Some(op),
        }
    }

    pub(super) fn tag(self) -> u16 {
        match self {
            ReservationOp::Reserve { once, .. } => once.map_or(0, NonZeroU16::get),
            ReservationOp::Settle { .. } | ReservationOp::Cancel(_) => 0,
        }
    }
}

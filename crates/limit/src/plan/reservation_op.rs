//! The operations on what an id has reserved.

/// What is done about the hits that an id has reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationOp {
    /// Takes hits as [`Op::UpTo`](crate::Op::UpTo) does, and reserves those that were granted. Denied hits are
    /// never charged, whatever the limits say.
    Reserve(Reserve),
    /// Reserves, unless the id has a reservation; then nothing happens. One of the same tag was made by the
    /// same request.
    ReserveOnce(Reserve, u16),
    /// Settles a reservation with the hits that were used; always allowed. An id with several
    /// reservations settles an equal part of their sum. Without a reservation the hits are charged, as by
    /// [`Op::Add`](crate::Op::Add).
    Settle(u32),
    /// Settles a reservation as [`Settle`](Self::Settle) does. Without one nothing happens.
    SettleKnown(u32),
    /// Settles, if the id has a reservation. Else reserves if there are no hits, and charges them if
    /// there are.
    SettleOrReserve(u32, Reserve),
    /// Returns hits that one reservation was granted; always allowed. Without a reservation nothing
    /// happens.
    Cancel(u32),
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
    /// The hits that are charged without a reservation; of what is reserved the least.
    #[cold]
    pub(super) fn hits(self) -> u32 {
        match self {
            ReservationOp::Settle(hits) | ReservationOp::SettleOrReserve(hits @ 1.., _) => hits,
            ReservationOp::Reserve(reserve)
            | ReservationOp::ReserveOnce(reserve, _)
            | ReservationOp::SettleOrReserve(0, reserve) => reserve.least,
            ReservationOp::SettleKnown(_) | ReservationOp::Cancel(_) => 0,
        }
    }

    /// Returns what to reserve, if anything: an id with a reservation may settle instead.
    pub fn reserve(self) -> Option<Reserve> {
        match self {
            ReservationOp::Reserve(reserve)
            | ReservationOp::ReserveOnce(reserve, _)
            | ReservationOp::SettleOrReserve(0, reserve) => Some(reserve),
            ReservationOp::SettleOrReserve(..)
            | ReservationOp::Settle(_)
            | ReservationOp::SettleKnown(_)
            | ReservationOp::Cancel(_) => None,
        }
    }

    /// Returns the operation with other hits to reserve, if it may reserve some.
    pub fn with_reserve(self, change: impl FnOnce(Reserve) -> Reserve) -> ReservationOp {
        match self {
            ReservationOp::Reserve(reserve) => ReservationOp::Reserve(change(reserve)),
            ReservationOp::ReserveOnce(reserve, tag) => {
                ReservationOp::ReserveOnce(change(reserve), tag)
            }
            ReservationOp::SettleOrReserve(hits, reserve) => {
                ReservationOp::SettleOrReserve(hits, change(reserve))
            }
            ReservationOp::Settle(_) | ReservationOp::SettleKnown(_) | ReservationOp::Cancel(_) => {
                self
            }
        }
    }

    pub(super) fn tag(self) -> u16 {
        match self {
            ReservationOp::ReserveOnce(_, tag) => tag,
            _ => 0,
        }
    }
}

//! A charge that waits for its answer: what it does, and how it is decided.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::key::{self, record_key};
use super::options::{Options, Topology};
use super::reply::Reply;
use weir_limit::{Micros, Op, Plan, Reservation, ReservationOp, State, Undo, hash_hold_id};
use weir_store::local::LeaseCharge;
use weir_store::{Charge, Key, Role, StoreError, key_bytes, plain_hits, reserved};

/// A charge that waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct PendingCharge {
    pub key: Box<[u8]>,
    /// The key's slot; 0 on a single server.
    pub slot: u16,
    pub plan: Arc<Plan>,
    pub op: ChargeOp,
    /// The hash of the id of its hold; 0 if it has none.
    pub hold: u64,
    /// The key of what its id has reserved; none if it is not about a reservation.
    pub record: Option<Box<[u8]>>,
    pub role: Role,
    /// The role in which a failure of this charge denies its group; none where it does not.
    pub denial_where_failed: Option<Role>,
    pub group: Option<Group>,
    /// How many redirects the charge has followed.
    pub hops: u8,
    /// Preceded by `ASKING`: the node answers although the slot is still being moved to it.
    pub asking: bool,
    /// Whether the charge is sent in a call of its own.
    pub alone: bool,
    pub reply: Arc<Reply>,
    /// The position of its answer in `reply`.
    pub index: u32,
}

/// A key as it is in Redis.
pub(super) struct StoredKey {
    pub text: Box<[u8]>,
    pub slot: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargeOp {
    Op(Op),
    /// Repairs the state after plain `INCRBY`s: writes its window and expiry, and subtracts these hits from a number
    /// that is not a state.
    Settle(u32),
}

impl ChargeOp {
    /// Returns the hits that the scripts read.
    pub fn hits(self) -> u32 {
        let hits = match self {
            ChargeOp::Op(Op::Take(hits) | Op::Refund(hits)) => hits,
            ChargeOp::Op(Op::UpTo(up_to)) => up_to.least.into(),
            ChargeOp::Op(Op::Reservation(op)) => match op {
                ReservationOp::Reserve(_) => 0,
                ReservationOp::ReserveOnce(_, tag) => tag.into(),
                ReservationOp::Settle(hits)
                | ReservationOp::SettleKnown(hits)
                | ReservationOp::SettleOrReserve(hits, _)
                | ReservationOp::Cancel(hits) => hits.into(),
            },
            ChargeOp::Op(Op::Undo(Undo { hits, .. }) | Op::Add { hits, .. })
            | ChargeOp::Settle(hits) => hits.into(),
        };
        u32::try_from(hits).unwrap_or(u32::MAX)
    }

    /// Returns the hits of a plain take, 0 for a look; none for other operations.
    pub fn takes(&self) -> Option<u64> {
        match self {
            ChargeOp::Op(op) => plain_hits(*op),
            ChargeOp::Settle(_) => None,
        }
    }

    /// Returns whether charges of a key may be made as one.
    pub fn merges(&self) -> bool {
        matches!(self, ChargeOp::Op(Op::Take(_) | Op::Refund(_)) | ChargeOp::Settle(_))
    }

    pub fn undo(&self) -> Option<&Undo> {
        match self {
            ChargeOp::Op(Op::Undo(undo)) => Some(undo),
            _ => None,
        }
    }
}

/// The outcome of a charge, besides its answer.
#[derive(Debug)]
pub(super) struct Decided {
    pub allowed: bool,
    /// Charges that return what nobody will use.
    pub returning: Vec<PendingCharge>,
}

/// A group of charges that are made all or none, in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub id: NonZeroU32,
    /// A quota outside the group passes, so quotas cannot deny it.
    pub quota_passes: bool,
}

impl StoredKey {
    #[inline]
    pub fn new(options: &Options, key: &Key<'_>, plan: &Plan, together: bool) -> StoredKey {
        let text = key_bytes(&options.prefix, key, plan, together);
        let slot = match options.topology {
            Topology::Cluster(_) | Topology::Proxy(_) => key::slot(&text),
            Topology::Single(_) | Topology::Sentinel { .. } => 0,
        };
        StoredKey { text, slot }
    }
}

impl PendingCharge {
    pub fn new(
        StoredKey { text, slot }: StoredKey,
        charge: &Charge<'_>,
        reply: &Arc<Reply>,
        index: usize,
    ) -> PendingCharge {
        let (hold, record) = match (charge.op, charge.hold) {
            (Op::Reservation(_), Some(id)) => (0, Some(record_key(&text, id))),
            (_, id) => (id.map_or(0, hash_hold_id), None),
        };
        PendingCharge {
            key: text,
            slot,
            plan: charge.plan.clone(),
            op: ChargeOp::Op(charge.op),
            hold,
            record,
            role: charge.role,
            denial_where_failed: None,
            group: None,
            hops: 0,
            asking: false,
            alone: false,
            reply: reply.clone(),
            index: index as u32,
        }
    }

    /// Decides the charge from the state before it, applies it to that state, and answers.
    pub fn decide(
        &self,
        state: &mut State,
        mut reservation: Option<Reservation>,
        now: Micros,
    ) -> Decided {
        let op = match self.op {
            ChargeOp::Op(op) => op,
            ChargeOp::Settle(_) => Op::Take(0),
        };
        if let Some(lease) = self.reply.lease() {
            return Decided { allowed: true, returning: self.decide_lease(lease, state, op, now) };
        }
        let outcome = match op {
            Op::Reservation(op) => self.plan.charge_reservation(state, &mut reservation, now, op),
            op => self.plan.charge_hashed(state, now, op, self.hold),
        };
        let (allowed, reserved) = (outcome.decision.allowed, reserved(&outcome.decision));
        let answered = self.reply.set(self.index as usize, Ok(outcome.decision));
        let orphaned = reserved.filter(|_| !answered);
        Decided {
            allowed,
            returning: orphaned.map(|hits| self.cancelling(hits)).into_iter().collect(),
        }
    }

    #[cold]
    fn decide_lease(
        &self,
        lease: &LeaseCharge,
        state: &mut State,
        op: Op,
        now: Micros,
    ) -> Vec<PendingCharge> {
        let before = state.clone();
        let (_, undos) = self.plan.charge_undoable(state, now, op);
        let returning = |lease: Arc<LeaseCharge>| PendingCharge {
            op: ChargeOp::Op(lease.op()),
            reply: Reply::to_lease(lease),
            ..self.clone()
        };
        lease.answer(before, &undos, now).into_iter().map(returning).collect()
    }

    /// Returns the charge that cancels hits that this one has reserved, over the same connection.
    pub fn cancelling(&self, hits: u32) -> PendingCharge {
        PendingCharge {
            op: ChargeOp::Op(Op::Reservation(ReservationOp::Cancel(hits))),
            group: None,
            reply: Reply::unawaited(1),
            index: 0,
            ..self.clone()
        }
    }

    pub fn fail(&self, error: StoreError) {
        self.reply.set(self.index as usize, Err(error));
    }
}

pub(super) fn fail_all(charges: impl IntoIterator<Item = PendingCharge>, error: StoreError) {
    charges.into_iter().for_each(|charge| charge.fail(error));
}

//! A charge, that is what a request does with its hits of one key, while it waits for Redis; and its decision then.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::key::{self, record_key};
use super::options::{RedisOptions, Topology};
use super::reply::{Reply, Taker};
use weir_limit::{Micros, Op, Plan, Reservation, ReservationOp, State, hash_hold_id};
use weir_store::local::LeaseCharge;
use weir_store::{Charge, Grant, Key, Role, StoreError, key_bytes, reserved};

/// A charge that waits for its answer. Its plan is the limits of the rule, which are charged together.
#[derive(Clone, Debug)]
pub(super) struct PendingCharge {
    pub key: Box<[u8]>,
    /// The key's slot; 0 on a single server.
    pub slot: u16,
    pub plan: Arc<Plan>,
    pub op: Op,
    /// Repairs the state after plain `INCRBY`s: writes its window and expiry. It refunds hits only to a number that is
    /// not a state.
    pub repairs: bool,
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

pub(super) struct RedisKey {
    pub text: Box<[u8]>,
    pub slot: u16,
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

impl RedisKey {
    #[inline]
    pub fn new(options: &RedisOptions, key: &Key<'_>, plan: &Plan, together: bool) -> RedisKey {
        let text = key_bytes(&options.prefix, key, plan, together);
        let slot = match options.topology {
            Topology::Cluster(_) | Topology::Proxy(_) => key::slot(&text),
            Topology::Single(_) | Topology::Sentinel { .. } => 0,
        };
        RedisKey { text, slot }
    }
}

impl PendingCharge {
    pub fn new(
        RedisKey { text, slot }: RedisKey,
        charge: &Charge<'_>,
        reply: &Arc<Reply>,
        index: usize,
    ) -> PendingCharge {
        let (hold, record) = match charge.op {
            Op::Reservation(_) => (0, Some(record_key(&text, charge.hold.unwrap_or_default()))),
            _ => (charge.hold.map_or(0, hash_hold_id), None),
        };
        PendingCharge {
            key: text,
            slot,
            plan: charge.plan.clone(),
            op: charge.op,
            repairs: false,
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
        if let Some(taker) = self.reply.taker() {
            return self.decide_for(taker, state, now);
        }
        let outcome = match self.op {
            Op::Reservation(op) => self.plan.charge_reservation(state, &mut reservation, now, op),
            op => self.plan.charge_hashed(state, now, op, self.hold),
        };
        let allowed = outcome.decision.allowed;
        let reserved = match self.op {
            Op::Reservation(_) => reserved(&outcome.decision),
            _ => None,
        };
        let answered = self.reply.set(self.index as usize, Ok(outcome.decision));
        let orphaned = reserved.filter(|_| !answered);
        Decided {
            allowed,
            returning: orphaned.map(|hits| self.cancelling(hits)).into_iter().collect(),
        }
    }

    #[cold]
    fn decide_for(&self, taker: &Taker, state: &mut State, now: Micros) -> Decided {
        match taker {
            Taker::Grant(granted) => {
                let grant = granted.get_or_init(|| Grant::charge(&self.plan, state, now, self.op));
                let decision = grant.decision.clone();
                let allowed = decision.allowed;
                self.reply.set(self.index as usize, Ok(decision));
                Decided { allowed, returning: Vec::new() }
            }
            Taker::Lease(lease) => {
                Decided { allowed: true, returning: self.decide_lease(lease, state, now) }
            }
        }
    }

    fn decide_lease(
        &self,
        lease: &LeaseCharge,
        state: &mut State,
        now: Micros,
    ) -> Vec<PendingCharge> {
        let before = state.clone();
        let (_, undos) = self.plan.charge_undoable(state, now, self.op);
        let returning = |lease: Arc<LeaseCharge>| PendingCharge {
            op: lease.op,
            reply: Reply::to_lease(lease),
            ..self.clone()
        };
        lease.answer(before, &undos, now).into_iter().map(returning).collect()
    }

    /// Returns the charge that cancels hits that this one has reserved, over the same connection.
    pub fn cancelling(&self, hits: u32) -> PendingCharge {
        PendingCharge {
            op: Op::Reservation(ReservationOp::Cancel(hits)),
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

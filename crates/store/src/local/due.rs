//! Charges that leases are due to make, with a key that outlives its request.

use std::sync::Arc;

use crate::memory::fingerprint::Fingerprint;
use crate::{Charge, Entry, Key, Role};
use weir_limit::{Limit, LimitState, Op, Plan, Undo};

/// A charge that a lease is due to make: counted as in flight, and to be sent.
#[derive(Debug)]
pub(super) struct DueCharge {
    pub key: Fingerprint,
    pub leased: Arc<LeasedKey>,
    pub plan: Arc<Plan>,
    pub op: LeaseOp,
}

/// Charges that leases are due to make, to be sent in order.
pub(super) type DueCharges = Vec<DueCharge>;

/// What a lease charges.
#[derive(Clone, Copy, Debug)]
pub(super) enum LeaseOp {
    /// Asks for up to this number of hits.
    Ask(u32),
    Return(Undo),
}

/// The key of a lease.
#[derive(Debug)]
pub(super) struct LeasedKey {
    domain: Box<str>,
    entries: Box<[(Box<str>, Box<str>)]>,
    role: Role,
    /// The place of the key in the filter of the table.
    pub bucket: usize,
    /// About what the lease takes in memory.
    pub bytes: usize,
}

/// The bytes of a lease without its key and its state, and of its place in a table.
const LEASE_BYTES: usize = 512;

impl DueCharge {
    /// Whether it asks for hits.
    pub fn asks(&self) -> bool {
        matches!(self.op, LeaseOp::Ask(_))
    }
}

impl LeasedKey {
    pub fn new(charge: &Charge<'_>, bucket: usize) -> LeasedKey {
        let own = |(name, value): &Entry<'_>| (Box::from(*name), Box::from(*value));
        let texts = charge.key.entries.iter().map(|(name, value)| name.len() + value.len() + 32);
        LeasedKey {
            domain: charge.key.domain.into(),
            entries: charge.key.entries.iter().map(own).collect(),
            role: charge.role,
            bucket,
            bytes: LEASE_BYTES
                + charge.key.domain.len()
                + texts.sum::<usize>()
                + state_bytes(charge.plan),
        }
    }

    /// Passes a charge of the key to `then`.
    pub fn charge<T>(&self, plan: &Arc<Plan>, op: Op, then: impl FnOnce(&Charge<'_>) -> T) -> T {
        let entries: Vec<Entry<'_>> =
            self.entries.iter().map(|(name, value)| (&**name, &**value)).collect();
        let key = Key { domain: &self.domain, entries: &entries };
        then(&Charge { key, plan, op, hold: None, role: self.role })
    }
}

/// Returns about the bytes of a state.
fn state_bytes(plan: &Plan) -> usize {
    let bytes = |limit: &Limit| size_of::<LimitState>() + limit.algorithm.state_bytes();
    plan.limits().iter().map(bytes).sum()
}

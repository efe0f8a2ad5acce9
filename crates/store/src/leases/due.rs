//! Charges that leases are due to make.

use std::sync::Arc;

use super::key::LeasedKey;
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Plan, Undo};

/// A charge that a lease is due to make: counted as in flight, and to be sent.
#[derive(Debug)]
pub(super) struct DueCharge {
    pub key: Fingerprint,
    pub leased: Arc<LeasedKey>,
    pub plan: Arc<Plan>,
    pub op: LeaseOp,
}

impl DueCharge {
    /// Whether it asks for hits.
    pub fn asks(&self) -> bool {
        matches!(self.op, LeaseOp::Ask(_))
    }
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

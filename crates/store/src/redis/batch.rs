//! Batches: the pending charges of many requests as few commands, and replies as answers.
//!
//! Charges of one key that wait for the same round trip become one entry of a call and still get the
//! answers that they would have got one by one: the script returns the state before the call, and each
//! charge is decided again from there, by the same arithmetic.

mod builder;
mod encode;
mod increment;
mod pending;
mod script_call;

pub(super) use self::builder::CommandBatch;
pub(super) use self::increment::Increment;
pub(super) use self::pending::{
    ChargeOp, Group, PendingCharge, StoredKey, fail_all, holds_key, record_key, reset_key,
};
pub(super) use self::script_call::BatchContext;

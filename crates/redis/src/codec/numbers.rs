//! The constants that weir and its Lua scripts share: flags, roles, operations, failures. The scripts declare them
//! under the same names, and a test compares the values.

#[cfg(test)]
mod tests;

use weir_limit::{Algorithm, Limit};
use weir_store::{Role, StoreError};

/// The first byte of a state.
pub(crate) const LAYOUT: u8 = 1;

/// Flags of a limit.
const COUNTS_DENIED: u8 = 1;
const SHADOW: u8 = 2;
const STRICT: u8 = 4;
const NEVER: u8 = 8;

/// How the entries (keys) of a call are charged: all or none; and whether a quota outside the call passes.
pub(crate) const TOGETHER: u8 = 1;
pub(crate) const QUOTA_PASSES: u8 = 2;

/// Roles of an entry: whether its denial denies the call. Quotas deny it only if all of them deny.
const ENFORCED: u8 = 0;
const QUOTA: u8 = 1;
/// A rule in shadow mode. The scripts do not declare it: what is neither enforced nor a quota decides nothing.
const SHADOW_RULE: u8 = 2;
/// What a failure of an entry means, in units of this: nothing; a denial in its role; a denial of the request.
const ROLES: u8 = 4;
const FAILURE_DENIES_ENTRY: u8 = 1;
const FAILURE_DENIES_REQUEST: u8 = 2;

/// Operations of the script that charges any rule.
pub(crate) mod op {
    pub const TAKE: u8 = 0;
    pub const REFUND: u8 = 1;
    /// Makes a charge as if it had not been made, where its hits still count.
    pub const UNDO: u8 = 2;
    /// Charges hits whatever the limits say.
    pub const ADD: u8 = 3;
    /// Takes hits, and more where they are allowed.
    pub const UPTO: u8 = 4;
    // The operations on a reservation, as in `ReservationOp`.
    pub const RESERVE: u8 = 5;
    pub const SETTLE: u8 = 6;
    pub const CANCEL: u8 = 7;
    // What they do where an id has no reservation, as in `Otherwise`.
    pub const OR_NOTHING: u8 = 0;
    pub const OR_CHARGE: u8 = 1;
    pub const OR_RESERVE: u8 = 2;
}

/// Operations of the script of counters.
pub(crate) mod counter_op {
    pub const LOOK: u8 = 0;
    /// Counts all hits, also beyond the limit.
    pub const TAKE: u8 = 1;
    /// Counts hits as often as they are within the limit.
    pub const ADMIT: u8 = 2;
    pub const REFUND: u8 = 3;
    pub const UNDO: u8 = 4;
    /// Repairs the state that a plain `INCRBY` met.
    pub const REPAIR: u8 = 5;
}

/// Failures of one key.
const WRONG_TYPE: u64 = 1;
const CORRUPT: u64 = 2;
/// An error whose text follows all answers.
const OTHER: u64 = 5;
const CLOCK_SKEW: u64 = 6;

/// The lengths from here on are failures instead.
const FAILURES: u32 = u32::MAX - 15;
/// Returns the failure that a script replies in place of a state's length, if it is one.
pub(crate) fn failure(len: u32) -> Option<StoreError> {
    len.checked_sub(FAILURES).map(|code| error(code.into()))
}

/// The counters from here on are failures instead, in steps that doubles of this size can represent.
const COUNTER_FAILURES: u64 = 1 << 54;
const COUNTER_FAILURE_STEP: u64 = 4;

/// Returns the failure that the script of counters replies in place of a number, if it is one.
pub(crate) fn counter_failure(number: u64) -> Option<StoreError> {
    number.checked_sub(COUNTER_FAILURES).map(|code| error(code / COUNTER_FAILURE_STEP))
}

fn error(code: u64) -> StoreError {
    match code {
        WRONG_TYPE => StoreError::WrongType,
        CORRUPT => StoreError::Corrupt,
        CLOCK_SKEW => StoreError::ClockSkew,
        OTHER => StoreError::Unavailable,
        _ => StoreError::Unavailable,
    }
}

pub(super) fn flags(limit: &Limit) -> u8 {
    // A denial restarts the wait.
    let strict = matches!(&limit.algorithm, Algorithm::TokenBucket(bucket) if bucket.strict);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(limit.charge_denied, COUNTS_DENIED)
        | flag(limit.shadow_mode, SHADOW)
        | flag(strict, STRICT)
        | flag(limit.requests_per_unit == 0, NEVER)
}

/// Returns the role of an entry, and what its failure means: a denial in which role, if any.
pub(crate) fn role(role: Role, denial_if_failed: Option<Role>) -> u8 {
    let role = match role {
        Role::Enforced => ENFORCED,
        Role::Quota => QUOTA,
        Role::Shadow => SHADOW_RULE,
    };
    let if_failed = match denial_if_failed {
        None => 0,
        Some(Role::Quota | Role::Shadow) => FAILURE_DENIES_ENTRY,
        Some(Role::Enforced) => FAILURE_DENIES_REQUEST,
    };
    role + ROLES * if_failed
}

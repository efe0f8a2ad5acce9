//! Where state lives: the trait that all stores implement, and what they have in common.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod batch;
#[cfg(any(test, feature = "testsuite"))]
pub mod conformance;
pub mod disk;
pub mod guard;
mod key_text;
pub mod local;
pub mod memory;
mod operations;
pub mod recording;
#[cfg(feature = "redis")]
pub mod redis;
pub mod shared;
mod states;

use std::future::Future;
use std::sync::Arc;

use smallvec::SmallVec;

pub use self::batch::{Batch, Charge, Key, Role};
#[cfg(feature = "redis")]
use self::batch::{Denials, reserved};
pub use self::key_text::key_text;
use self::local::LeaseCharge;
pub use self::operations::{BackendStatus, FailureStatus, Operations, SavedStatus, StoreStatus};
pub use self::shared::{RowChange, SharedTable, TableError, TableVersion, TableWritten};
pub use self::states::{StateKey, States};
pub use weir_common::entry::Entry;
pub use weir_common::failure::OnStoreFailure;
use weir_limit::Decision;

/// The answer to one charge.
pub type Answer = Result<Decision, StoreError>;

/// One answer for each charge of a batch, in its order.
pub type Answers = SmallVec<[Answer; 4]>;

/// Why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached.
    #[error("the store could not be reached")]
    Unavailable,
    /// It did not answer within the budget.
    #[error("the store did not answer in time")]
    TimedOut,
    /// The caller's deadline was shorter than its answer.
    #[error("the caller's deadline came before the store's answer")]
    CallerDeadline,
    /// It is a replica.
    #[error("the store only answers reads")]
    ReadOnly,
    /// It is full.
    #[error("the store has no room left")]
    OutOfMemory,
    /// The key belongs to another program.
    #[error("the key holds something that is not weir's")]
    WrongType,
    /// The state of the key is damaged.
    #[error("the key's state cannot be read")]
    Corrupt,
}

impl StoreError {
    /// Every kind.
    pub const ALL: [StoreError; 7] = [
        StoreError::Unavailable,
        StoreError::TimedOut,
        StoreError::CallerDeadline,
        StoreError::ReadOnly,
        StoreError::OutOfMemory,
        StoreError::WrongType,
        StoreError::Corrupt,
    ];

    /// Returns its name as a metric label.
    pub fn name(self) -> &'static str {
        match self {
            StoreError::Unavailable => "unavailable",
            StoreError::TimedOut => "timed_out",
            StoreError::CallerDeadline => "caller_deadline",
            StoreError::ReadOnly => "read_only",
            StoreError::OutOfMemory => "out_of_memory",
            StoreError::WrongType => "wrong_type",
            StoreError::Corrupt => "corrupt",
        }
    }

    /// Returns whether it is certain that nothing was charged.
    pub fn is_refusal(self) -> bool {
        !matches!(self, StoreError::Unavailable | StoreError::TimedOut | StoreError::CallerDeadline)
    }
}

/// Keeps the state of keys and charges it, and keeps what the ids of a key have reserved.
///
/// **Reservations.** A charge with [`Op::Reservation`](weir_limit::Op::Reservation) also concerns a record: the [`Reservation`](weir_limit::Reservation) of its
/// key, the shape of its plan and its id, which is [`Charge::hold`]. The store makes
/// [`Plan::charge_reservation`](weir_limit::Plan::charge_reservation) of state and record, and keeps both or, where it fails, neither. Other
/// operations do not touch records, and neither does deleting a state. The store bounds the number of
/// records; it may drop one that can no longer be settled at any time, and another where it has no room
/// left: its hits stay charged.
///
/// **Batches charged together.** If the batch is denied, neither states nor records are changed, except
/// by charges that are made nevertheless: those that are [unconditional](weir_limit::Op::is_unconditional), and a
/// [`SettleOrReserve`](weir_limit::ReservationOp::SettleOrReserve) that has
/// [settled](weir_limit::ReservationResult::Settled).
pub trait Store: Send + Sync + 'static {
    /// Charges a batch; adds one answer for each charge to `answers`, in order.
    ///
    /// Ends within the batch's budget. If it is dropped before, the store releases the holds that
    /// have an id, and cancels reservations, once their outcome is known; whatever else was sent stays
    /// charged.
    fn charge(&self, batch: Batch<'_>, answers: &mut Answers) -> impl Future<Output = ()> + Send;

    /// Charges a batch like [`charge`](Self::charge), but without waiting. Returns whether it did;
    /// if not, nothing was charged and nothing was added to `answers`.
    fn try_charge(&self, _batch: Batch<'_>, _answers: &mut Answers) -> bool {
        false
    }

    /// Returns whether [`try_charge`](Self::try_charge) charges nearly every batch. A hint that saves
    /// callers a useless attempt: only cost depends on it.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Makes a charge that no request waits for, over the same connection as the charges of this thread, after those
    /// that were made before. Passes its outcome to [`LeaseCharge::answer`]. A store that leases nothing drops it.
    fn charge_lease(&self, _charge: Arc<LeaseCharge>) {}
}

impl<S: Store> Store for Arc<S> {
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        (**self).try_charge(batch, answers)
    }

    fn is_immediate(&self) -> bool {
        (**self).is_immediate()
    }

    fn charge(&self, batch: Batch<'_>, answers: &mut Answers) -> impl Future<Output = ()> + Send {
        (**self).charge(batch, answers)
    }

    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        (**self).charge_lease(charge);
    }
}

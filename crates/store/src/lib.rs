//! Where state lives: the trait that all stores implement, and what it charges: the keys of a request, all at once.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(any(test, feature = "testsuite"))]
pub mod conformance;
pub mod disk;
pub mod guard;
mod key_text;
pub mod local;
pub mod memory;
mod operations;
pub mod recording;
pub mod shared;
mod states;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tracing::Span;

pub use self::key_text::{id_text, key_bytes, key_text};
use self::local::LeaseCharge;
pub use self::operations::{
    BackendStatus, FailureStatus, Late, Operations, SavedStatus, StoreStatus,
};
pub use self::shared::{RowChange, SharedTable, TableError, TableRow, TableVersion, TableWritten};
pub use self::states::{StateKey, States};
pub use weir_common::entry::Entry;
pub use weir_common::failure::OnStoreFailure;
use weir_common::named_enum;
use weir_limit::{Decision, Op, Plan, ReservationOp, ReservationResult, Source};

/// The answer to one charge.
pub type Answer = Result<Decision, StoreError>;

/// One answer for each charge of a batch, in its order.
pub type Answers = SmallVec<[Answer; 4]>;

named_enum! {
    /// Why a store could not answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum StoreError, name {
        /// It cannot be reached.
        #[error("the store could not be reached")]
        Unavailable = "unavailable",
        /// It did not answer within the budget.
        #[error("the store did not answer in time")]
        TimedOut = "timed_out",
        /// The caller's deadline was shorter than its answer.
        #[error("the caller's deadline came before the store's answer")]
        CallerDeadline = "caller_deadline",
        /// It is a replica.
        #[error("the store only answers reads")]
        ReadOnly = "read_only",
        /// It is full.
        #[error("the store has no room left")]
        OutOfMemory = "out_of_memory",
        /// Fewer replicas follow it than it needs to accept writes.
        #[error("the store has too few replicas to accept writes")]
        NoReplicas = "no_replicas",
        /// It accepts no writes because it cannot save them.
        #[error("the store cannot save its data, and accepts no writes")]
        NotSaved = "not_saved",
        /// A part of its cluster is missing.
        #[error("the store's cluster is down")]
        ClusterDown = "cluster_down",
        /// It is a replica that has lost its master.
        #[error("the store has no connection to its master")]
        MasterDown = "master_down",
        /// It has just started.
        #[error("the store is loading its data")]
        Loading = "loading",
        /// It runs a script that takes long.
        #[error("the store is busy with a script")]
        Busy = "busy",
        /// Its user may not run a command, or not use the key.
        #[error("the store does not permit a command or a key to this user")]
        NotPermitted = "not_permitted",
        /// Its time is not in the calendar windows of the caller.
        #[error("the clocks of weir and the store are too far apart for a calendar")]
        ClockSkew = "clock_skew",
        /// The key belongs to another program.
        #[error("the key holds something that is not weir's")]
        WrongType = "wrong_type",
        /// The state of the key is damaged.
        #[error("the key's state cannot be read")]
        Corrupt = "corrupt",
    }
}

impl StoreError {
    /// Returns whether it is certain that nothing was charged.
    pub fn is_refusal(self) -> bool {
        // Without the right to its second write, a script may have made its first.
        !matches!(
            self,
            StoreError::Unavailable
                | StoreError::TimedOut
                | StoreError::CallerDeadline
                | StoreError::NotPermitted
        )
    }
}

/// The identity of a counter, together with the shape of the plan that it is charged to.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The domain of the rule.
    pub domain: &'a str,
    /// The descriptor's entries. If a rule shares its threshold, the pattern replaces the value.
    pub entries: &'a [Entry<'a>],
}

/// How a descriptor's denial counts for a batch that is charged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A denial denies the batch.
    Enforced,
    /// Denies the batch only when all of this role deny.
    Quota,
    /// Never denies the batch.
    Shadow,
}

/// One descriptor's charge.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// What is charged.
    pub key: Key<'a>,
    /// The limits that it is charged to.
    pub plan: &'a Arc<Plan>,
    /// What is done with its hits.
    pub op: Op,
    /// The id of its hold, or of its reservation.
    pub hold: Option<&'a str>,
    /// How its denial counts for the batch.
    pub role: Role,
}

/// All charges of a request.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The charges, in the order of their answers.
    pub charges: &'a [Charge<'a>],
    /// Charge all, or none if the batch is denied. The same for all batches of a domain: its Redis keys depend on it.
    pub together: bool,
    /// For a batch charged together: another quota of the request passes, so that the quotas do not all deny.
    pub quota_passes: bool,
    /// The time within which the store has to answer.
    pub budget: Duration,
    /// The part of the request's budget that has passed before.
    pub waited: Duration,
    /// The policy if the store fails. `None` means the policy of the guard, or the error if there is no guard.
    pub on_failure: Option<OnStoreFailure>,
    /// The parent of the store's spans, if the request is recorded.
    pub span: Option<&'a Span>,
}

impl<'a> Charge<'a> {
    /// Returns the role in which a failure of this charge denies a batch charged together; none if it does not.
    pub fn denial_where_failed(&self, on_failure: Option<OnStoreFailure>) -> Option<Role> {
        match on_failure.unwrap_or(OnStoreFailure::Error) {
            // The whole request fails.
            OnStoreFailure::Error => Some(Role::Enforced),
            OnStoreFailure::Deny if self.op.asks().is_some() => {
                self.enforced_limit().map(|_| self.role)
            }
            OnStoreFailure::Deny | OnStoreFailure::Allow | OnStoreFailure::Local => None,
        }
    }

    pub(crate) fn enforced_limit(&self) -> Option<u8> {
        self.plan.limits().iter().position(|limit| !limit.shadow_mode).map(|index| index as u8)
    }

    /// Returns the charge that cancels what this one has reserved, if anything.
    pub fn cancelling(&self, answer: &Answer) -> Option<Charge<'a>> {
        let hits = reserved(answer.as_ref().ok()?)?;
        Some(Charge { op: Op::Reservation(ReservationOp::Cancel(hits)), ..*self })
    }

    /// Returns the hits to release if the caller goes away: a concurrency limit took them, or may have. If that is not
    /// known, only a hold id makes releasing safe: without a hold of that id nothing is released.
    pub fn held(&self, answer: &Answer) -> Option<u64> {
        let at = self.plan.concurrency()?;
        let hits = match (self.op, answer) {
            (Op::Add { limits, .. }, _) if limits >> at & 1 == 0 => 0,
            (op, Ok(decision)) if decision.source == Source::Store => op.charged(decision),
            (op, _) => op.takes().unwrap_or(0),
        };
        let charges_denied =
            || self.plan.limits().get(usize::from(at)).is_some_and(|limit| limit.charge_denied);
        let known = match answer {
            Ok(decision) if decision.source == Source::Store => {
                let watched = decision.would_deny >> at & 1 > 0;
                Some(decision.allowed && !watched || charges_denied())
            }
            Err(failed) if failed.is_refusal() => Some(false),
            _ => None,
        };
        (hits > 0 && known.unwrap_or(self.hold.is_some())).then_some(hits)
    }
}

/// Returns the hits that a decision has reserved; none if it is no reservation.
pub fn reserved(decision: &Decision) -> Option<u32> {
    (decision.reservation == ReservationResult::Reserved).then_some(decision.granted)
}

/// Returns the hits of a take, 0 for a look; none for any other operation.
pub fn plain_hits(op: Op) -> Option<u64> {
    match op {
        Op::Take(hits) => Some(hits),
        Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => None,
    }
}

/// The denials of charges that are made all or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Denials {
    enforced: bool,
    quotas: usize,
    quotas_denied: usize,
}

impl Denials {
    /// Counts a charge, with the role in which it is denied, if it is.
    pub fn add(&mut self, role: Role, denial: Option<Role>) {
        self.quotas += usize::from(role == Role::Quota);
        match denial {
            Some(Role::Enforced) => self.enforced = true,
            Some(Role::Quota) => self.quotas_denied += 1,
            Some(Role::Shadow) | None => {}
        }
    }

    /// Returns whether they deny all charges. `quota_passes`: so does a quota that is not counted.
    pub fn deny(&self, quota_passes: bool) -> bool {
        let by_quotas = self.quotas > 0 && self.quotas_denied == self.quotas && !quota_passes;
        self.enforced || by_quotas
    }
}

impl<'a> Batch<'a> {
    /// Returns a batch whose charges are made each for itself, by the policy of the guard.
    pub fn new(charges: &'a [Charge<'a>], budget: Duration) -> Batch<'a> {
        let (together, quota_passes, waited) = (false, false, Duration::ZERO);
        let (on_failure, span) = (None, None);
        Batch { charges, together, quota_passes, budget, waited, on_failure, span }
    }

    pub(crate) fn after(self, wait: Duration) -> Batch<'a> {
        let budget = self.budget.saturating_sub(wait);
        Batch { budget, waited: self.waited.saturating_add(wait), ..self }
    }

    /// Puts the answers to two parts of the batch in its order: the charges where `is_first` is true, and the others.
    pub fn merge(
        &self,
        is_first: impl Fn(&Charge<'a>) -> bool,
        first: Answers,
        others: Answers,
    ) -> Answers {
        let (mut first, mut others) = (first.into_iter(), others.into_iter());
        let answers = self.charges.iter().map(|charge| {
            let answer = if is_first(charge) { first.next() } else { others.next() };
            answer.unwrap_or(Err(StoreError::Unavailable))
        });
        answers.collect()
    }

    /// Returns whether `answers`, one for each charge in order, deny the batch: an enforced charge is denied, or all of
    /// its quotas. A charge that is known not to be made counts as its policy decides; other failures do not count.
    pub fn is_denied(&self, answers: &[Answer]) -> bool {
        let mut denials = Denials::default();
        for (charge, answer) in self.charges.iter().zip(answers) {
            let denial = match answer {
                Ok(decision) => (!decision.allowed).then_some(charge.role),
                Err(failed) if failed.is_refusal() => charge.denial_where_failed(self.on_failure),
                Err(_) => None,
            };
            denials.add(charge.role, denial);
        }
        denials.deny(self.quota_passes)
    }
}

/// Keeps the state of keys and charges it, and keeps what the ids of a key have reserved.
///
/// **Reservations.** A charge with [`Op::Reservation`] also concerns a record: the
/// [reservation](weir_limit::Reservation) of its key, the shape of its plan and its id, which is [`Charge::hold`]. The
/// store makes [`Plan::charge_reservation`] of state and record, and keeps both or, where it fails, neither. Other
/// operations do not touch records, and neither does deleting a state. The store bounds the number of records; it may
/// drop one that can no longer be settled at any time, and another where it has no room left: its hits stay charged.
///
/// **Batches charged together.** If the batch is denied, neither states nor records are changed, except by charges that
/// are made nevertheless: those that are [unconditional](Op::is_unconditional), and a
/// [`SettleOrReserve`](ReservationOp::SettleOrReserve) that has [settled](ReservationResult::Settled).
pub trait Store: Send + Sync + 'static {
    /// Starts to charge a batch. Adds one answer for each charge to `answers`, in order, if all are known at once; else
    /// returns what they are to be waited for with.
    ///
    /// The wait ends within the batch's budget. If it is dropped before, the store releases the holds that have an id, and
    /// cancels reservations, once their outcome is known; whatever else was sent stays charged.
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, Self>>;

    /// Charges a batch, and waits for the answers.
    fn charge(&self, batch: &Batch<'_>, answers: &mut Answers) -> impl Future<Output = ()> + Send {
        let batch = *batch;
        async move {
            if let Some(waiting) = self.start(batch, answers) {
                answers.extend(waiting.await);
            }
        }
    }

    /// Makes a charge that no request waits for, over the same connection as the charges of this thread, after those
    /// that were made before. Passes its outcome to [`LeaseCharge::answer`]. A store that leases nothing drops it.
    fn charge_lease(&self, _charge: Arc<LeaseCharge>) {}
}

impl<S: Store> Store for Arc<S> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S>> {
        (**self).start(batch, answers)
    }

    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        (**self).charge_lease(charge);
    }
}

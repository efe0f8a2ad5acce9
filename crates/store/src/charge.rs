//! The charges of a request: for each descriptor a key, the limits of its rule and the hits. A store makes all in one
//! call, as a batch, and returns an answer for each.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tracing::Span;

use crate::error::StoreError;
use weir_common::entry::Entry;
use weir_common::failure::OnStoreFailure;
use weir_limit::{Decision, Op, Plan, ReservationOp, ReservationResult, Source};

/// The answer to one charge.
pub type Answer = Result<Decision, StoreError>;

/// One answer for each charge of a batch, in its order.
pub type Answers = SmallVec<[Answer; 4]>;

/// The identity of a counter, together with the shape (algorithms and periods) of its plan, the limits of a rule.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The domain of the rule.
    pub domain: &'a str,
    /// The descriptor's entries. With `share_threshold` in the rule, its pattern replaces the value.
    pub entries: &'a [Entry<'a>],
}

/// How a descriptor's denial counts for a batch that is charged together: all of its keys, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A denial denies the batch.
    Enforced,
    /// Denials deny the batch only if all charges of this role are denied.
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
    /// The id of its hold (hits in flight of one request), or of its reservation; empty if a reservation has none.
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
    pub timeout: Duration,
    /// The part of the request's timeout that has passed before.
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
                Some(
                    decision.allowed && !watched
                        || charges_denied() && (!decision.banned || decision.ban_begins),
                )
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

/// The denials of charges that are made all or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchDenials {
    enforced: bool,
    quotas: usize,
    quotas_denied: usize,
}

impl BatchDenials {
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
    pub fn new(charges: &'a [Charge<'a>], timeout: Duration) -> Batch<'a> {
        let (together, quota_passes, waited, on_failure, span) = Default::default();
        Batch { charges, together, quota_passes, timeout, waited, on_failure, span }
    }

    pub(crate) fn after(self, wait: Duration) -> Batch<'a> {
        let timeout = self.timeout.saturating_sub(wait);
        Batch { timeout, waited: self.waited.saturating_add(wait), ..self }
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
        let mut denials = BatchDenials::default();
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

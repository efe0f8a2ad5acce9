//! The charges of a request, and once the store has answered, what was decided about each descriptor.

use std::time::Duration;

use smallvec::SmallVec;

use super::lookup::{Lookup, Matched};
use super::{Options, Request};
use weir_limit::{Op, Plan};
use weir_rules::Domain;
use weir_store::{Answer, Batch, Charge, Key, Role, StoreError};

/// The answer to a charge that a store does not answer, which no store does.
static NOT_ANSWERED: Answer = Err(StoreError::Unavailable);

/// The charges of a request: one for each descriptor with a limit.
pub(super) struct Charges<'a> {
    list: SmallVec<[Charge<'a>; 4]>,
    domain: Option<&'a Domain>,
    /// Whether a quota descriptor passes whatever the store answers.
    quota_passes: bool,
}

impl<'a> Charges<'a> {
    #[inline]
    pub fn new(domain: Option<&'a Domain>) -> Charges<'a> {
        Charges { list: SmallVec::new(), domain, quota_passes: false }
    }

    /// Adds a charge for each descriptor that has a limit.
    #[inline]
    pub fn add_all(
        &mut self,
        request: &Request<'a>,
        lookup: &'a Lookup<'_, '_>,
        options: &Options,
    ) {
        for matched in &lookup.matched {
            let shadow =
                matched.applies.rule().is_some_and(|rule| rule.shadow_mode) || matched.is_allowed();
            let Some(plan) = matched.plan() else {
                self.quota_passes |= matched.is_quota;
                continue;
            };
            self.quota_passes |= matched.is_quota && shadow;
            let (key, hold) = key(request.domain, matched, plan);
            // In the global shadow mode no denial denies the request.
            let role = match (shadow || options.shadow_mode, matched.is_quota) {
                (true, _) => Role::Shadow,
                (_, true) => Role::Quota,
                _ => Role::Enforced,
            };
            self.list.push(Charge { key, plan, op: matched.op, hold, role });
        }
    }

    /// The batch for the store; without charges there is nothing to ask it.
    #[inline]
    pub fn batch(&self, budget: Duration) -> Batch<'_> {
        Batch {
            together: self.domain.is_some_and(|domain| domain.together),
            quota_passes: self.quota_passes,
            on_failure: self.domain.and_then(|domain| domain.on_store_failure),
            ..Batch::new(&self.list, budget)
        }
    }
}

/// What was decided about a descriptor.
#[derive(Clone, Copy)]
pub(super) enum Decided<'a> {
    /// Nothing was to be charged: no limit applies, or a control decides alone.
    Uncharged,
    /// The store decided, or failed.
    Charged(&'a Charge<'a>, &'a Answer),
}

/// A request whose charges the store has answered.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a, 's, 'r> {
    pub request: &'a Request<'a>,
    pub lookup: &'a Lookup<'s, 'r>,
    pub batch: &'a Batch<'a>,
    /// One for each charge, in order.
    pub answers: &'a [Answer],
}

impl<'a, 's, 'r> Answered<'a, 's, 'r> {
    /// Returns the descriptors in order, each with what was decided about it.
    #[inline]
    pub fn descriptors(&self) -> impl Iterator<Item = (&'a Matched<'s, 'r>, Decided<'a>)> {
        let (mut charges, mut answers) = (self.batch.charges.iter(), self.answers.iter());
        self.lookup.matched.iter().map(move |matched| {
            let charge = matched.plan().and_then(|_| charges.next());
            let decided = match charge {
                None => Decided::Uncharged,
                Some(charge) => Decided::Charged(charge, answers.next().unwrap_or(&NOT_ANSWERED)),
            };
            (matched, decided)
        })
    }

    /// Returns whether what the store admitted was charged: not if it is charged together with what was
    /// denied.
    #[inline]
    pub fn are_charged(&self) -> bool {
        !self.batch.together || !self.batch.is_denied(self.answers)
    }

    /// Returns whether a charge may hold hits in flight, or is about a reservation.
    #[inline]
    pub fn may_hold(&self) -> bool {
        let may_hold = |charge: &Charge<'_>| {
            charge.plan.concurrency().is_some() || matches!(charge.op, Op::Reservation(_))
        };
        self.batch.charges.iter().any(may_hold)
    }
}

/// The key of a descriptor, and the id of its hold or its reservation: the value of an entry that is not part of
/// the key.
pub(super) fn key<'a>(
    domain: &'a str,
    matched: &'a Matched<'_, '_>,
    plan: &Plan,
) -> (Key<'a>, Option<&'a str>) {
    match matched.entries() {
        [others @ .., (_, id)] if plan.hold_id().is_some() => {
            (Key { domain, entries: others }, Some(*id))
        }
        _ if matched.reserves => {
            let (entries, id) = matched.split_id();
            (Key { domain, entries }, id)
        }
        entries => (Key { domain, entries }, None),
    }
}

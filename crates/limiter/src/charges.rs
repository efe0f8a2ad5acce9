//! The charges of a request: one for each descriptor with a limit.

use std::time::Duration;

use smallvec::SmallVec;

use super::lookup::{Lookup, Matched};
use super::{Options, Request};
use weir_limit::Plan;
use weir_rules::Domain;
use weir_store::{Answer, Batch, Charge, Key, Role};

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

    /// The charges of all descriptors that have a limit, in order.
    pub fn list(&self) -> &[Charge<'a>] {
        &self.list
    }

    /// Returns whether what `answers` admit was charged: not if it is charged together with what they
    /// deny.
    #[inline]
    pub fn are_charged(&self, answers: &[Answer]) -> bool {
        let is_denied = || self.batch(Duration::MAX).is_some_and(|it| it.is_denied(answers));
        !self.is_together() || !is_denied()
    }

    fn is_together(&self) -> bool {
        self.domain.is_some_and(|domain| domain.together)
    }

    /// The batch for the store; none if nothing is to be charged.
    pub fn batch(&self, budget: Duration) -> Option<Batch<'_>> {
        (!self.list.is_empty()).then(|| Batch {
            together: self.is_together(),
            quota_passes: self.quota_passes,
            on_failure: self.domain.and_then(|domain| domain.on_store_failure),
            ..Batch::new(&self.list, budget)
        })
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

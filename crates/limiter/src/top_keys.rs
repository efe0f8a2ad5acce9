//! Counts decisions by key, for the lists of top keys.

use smallvec::SmallVec;

use super::Limiter;
use super::lookup::Matched;
use super::stats::CountedHits;
use crate::top::{NearAdmission, Outcome, Recorded, Top};
use weir_limit::{NearLimit, Plan, Source};
use weir_store::Charge;

/// The names of limits without one, by their index.
const INDEXES: [&str; 16] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

impl<S> Limiter<S> {
    /// Counts the decision on hits that were charged. Refunds and looks are not counted. `is_charged` is
    /// false if they were not charged after all because the request is denied as a whole.
    #[inline]
    pub(super) fn count_key(
        &self,
        top: &Top,
        matched: &Matched<'_, '_>,
        counted: &CountedHits<'_>,
        is_charged: bool,
    ) {
        let hits = counted.hits();
        if hits == 0 {
            return;
        }
        let CountedHits { charge, decision, .. } = counted;
        let is_counted = matches!(decision.source, Source::Store | Source::Leased);
        let near = match is_charged && decision.allowed && is_counted {
            true => near(counted),
            false => NearAdmissions::new(),
        };
        let outcome = match decision.allowed || matched.is_allowed() {
            _ if matched.passes_by_shadow_mode(decision) => Outcome::WouldBeDenied(&near),
            true => Outcome::Admitted(&near),
            false if self.options.shadow_mode => Outcome::WouldBeDenied(&near),
            false => Outcome::Denied,
        };
        let (domain, entries) = (charge.key.domain, charge.key.entries);
        top.record(&Recorded { domain, entries, rule: matched.path(), hits, outcome });
    }

    /// Counts hits that a control blocks, or would block but for the global shadow mode.
    pub(super) fn count_blocked_key(&self, top: &Top, domain: &str, matched: &Matched<'_, '_>) {
        let Some(hits) = matched.op.takes() else { return };
        let entries = match matched.counted_plan() {
            Some(plan) => matched.counted_entries(plan),
            None => matched.entries(),
        };
        let outcome = match self.options.shadow_mode {
            true => Outcome::WouldBeDenied(&[]),
            false => Outcome::Denied,
        };
        let rule = matched.path();
        top.record(&Recorded { domain, entries, rule, hits, outcome });
    }
}

/// The limits that admitted hits are near of. Few rules have more than one.
type NearAdmissions<'a> = SmallVec<[NearAdmission<'a>; 1]>;

/// Returns the limits that are near their n after hits that they admitted.
#[inline]
fn near<'a>(counted: &CountedHits<'a>) -> NearAdmissions<'a> {
    let CountedHits { charge: Charge { plan, .. }, decision, .. } = *counted;
    let mut near = NearAdmissions::new();
    let used = decision.used_before.saturating_add(counted.hits());
    let admits = |limit: u8| decision.would_deny >> limit & 1 == 0;
    if counted.is_near(used) && admits(decision.limit) {
        let (limit, reset_after) = (decision.limit, decision.reset_after);
        near.extend(admission(plan, &NearLimit { limit, used, reset_after }));
    }
    let others = decision.near.iter().filter(|near| admits(near.limit));
    near.extend(others.filter_map(|limit| admission(plan, limit)));
    near
}

fn admission<'a>(plan: &'a Plan, near: &NearLimit) -> Option<NearAdmission<'a>> {
    let NearLimit { limit: index, used, reset_after } = *near;
    let limit = plan.limits().get(usize::from(index))?;
    let name = match &*limit.name {
        "" if plan.limits().len() > 1 => INDEXES.get(usize::from(index)).unwrap_or(&""),
        name => name,
    };
    let n = limit.requests_per_unit;
    Some(NearAdmission { limit: plan.limit_id(index), name, used, n, reset_after })
}

//! Counts decisions by key, for the lists of top keys.

use super::lookup::Matched;
use super::stats::CountedHits;
use crate::limit::{Decision, Op, Plan, Source};
use crate::store::Charge;
use crate::top::{NearAdmission, Outcome, Recorded, Top};

/// The names of limits without one, by their index.
const INDEXES: [&str; 16] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

/// Counts the decision on hits that were charged. Refunds and peeks are not counted. `is_charged` is
/// false if they were not charged after all because the request is denied as a whole.
#[inline]
pub(super) fn record(
    top: &Top,
    matched: &Matched<'_, '_>,
    charge: &Charge<'_>,
    decision: &Decision,
    counted: &CountedHits,
    is_charged: bool,
) {
    let Op::Take(hits) = charge.op else { return };
    let outcome = match decision.allowed {
        true if is_charged => near(charge.plan, decision, counted, hits),
        true => Outcome::Admitted,
        false if matched.is_allowed() => Outcome::Admitted,
        false => Outcome::Denied,
    };
    let (domain, entries) = (charge.key.domain, charge.key.entries);
    top.record(&Recorded { domain, entries, rule: matched.path(), hits, outcome });
}

/// Counts hits that a control blocks.
pub(super) fn record_blocked(top: &Top, domain: &str, matched: &Matched<'_, '_>) {
    let Op::Take(hits) = matched.op else { return };
    let entries = match matched.counted_plan() {
        Some(plan) => matched.counted_entries(plan),
        None => matched.entries(),
    };
    let (rule, outcome) = (matched.path(), Outcome::Denied);
    top.record(&Recorded { domain, entries, rule, hits, outcome });
}

/// Returns the outcome of admitted hits: they may be near the limit that decided. What was used is known
/// only to the store.
#[inline]
fn near<'a>(plan: &'a Plan, decision: &Decision, counted: &CountedHits, hits: u64) -> Outcome<'a> {
    let used = decision.used_before.saturating_add(hits);
    if !counted.near_limit.is_reached(used) || decision.source != Source::Store {
        return Outcome::Admitted;
    }
    let Some(limit) = plan.limits().get(usize::from(decision.limit)) else {
        return Outcome::Admitted;
    };
    let name = match &*limit.name {
        "" if plan.limits().len() > 1 => INDEXES.get(usize::from(decision.limit)).unwrap_or(&""),
        name => name,
    };
    let (shape, index, reset_after) = (plan.shape(), decision.limit, decision.reset_after);
    let n = limit.requests_per_unit;
    Outcome::Near(NearAdmission { shape, index, name, used, n, reset_after })
}

//! Counts decisions by key, for the lists of top keys.

use super::lookup::{Lookup, Matched};
use super::{Options, Request};
use crate::limit::{Decision, Op, Plan, Source};
use crate::store::Answer;
use crate::top::{NearAdmission, Outcome, Recorded, Top};

/// The names of limits without one, by their index.
const INDEXES: [&str; 16] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

/// Counts the decisions on all descriptors that have a limit or that a control blocks. Refunds and peeks
/// are not counted. `charged` is false if admissions were not charged because the request is denied as a
/// whole.
pub(super) fn record(
    top: &Top,
    request: &Request<'_>,
    lookup: &Lookup<'_, '_>,
    answers: &[Answer],
    charged: bool,
    options: &Options,
) {
    // Only controls decide without the store.
    if answers.is_empty() && lookup.matched.iter().all(|matched| matched.effect.is_none()) {
        return;
    }
    let mut recorder = top.recorder();
    let mut unread = answers.iter();
    for matched in &lookup.matched {
        let answer = matched.plan().map(|plan| (plan, unread.next()));
        let Op::Take(hits) = matched.op else { continue };
        let (outcome, entries) = match answer {
            Some((plan, Some(Ok(decision)))) => {
                let outcome = outcome(matched, plan, decision, hits, charged, options);
                (outcome, matched.counted_entries(plan))
            }
            None if matched.is_blocked() => match matched.counted_plan() {
                Some(plan) => (Outcome::Denied, matched.counted_entries(plan)),
                None => (Outcome::Denied, matched.entries()),
            },
            _ => continue,
        };
        let rule = matched.applies.rule().map_or("", |rule| rule.path());
        let domain = request.domain;
        recorder.record(&Recorded { domain, entries, rule, hits, outcome });
    }
}

#[inline]
fn outcome<'a>(
    matched: &Matched<'_, '_>,
    plan: &'a Plan,
    decision: &Decision,
    hits: u64,
    charged: bool,
    options: &Options,
) -> Outcome<'a> {
    match decision.allowed {
        false if matched.is_allowed() => Outcome::Admitted,
        false => Outcome::Denied,
        true if charged => match near(plan, decision, hits, options.near_limit_ratio) {
            Some(near) => Outcome::Near(near),
            None => Outcome::Admitted,
        },
        true => Outcome::Admitted,
    }
}

/// Returns the limit that decided about admitted hits, if they are at or over `ratio` of it.
#[inline]
fn near<'a>(
    plan: &'a Plan,
    decision: &Decision,
    hits: u64,
    ratio: f32,
) -> Option<NearAdmission<'a>> {
    let limit = plan.limits().get(usize::from(decision.limit))?;
    let n = limit.requests_per_unit;
    let used = decision.used_before.saturating_add(hits);
    // With the rounding of the counts of hits near the limit. What was used is known only to the store.
    if (used as f64) < f64::from(n as f32 * ratio) || decision.source != Source::Store {
        return None;
    }
    let name = match &*limit.name {
        "" if plan.limits().len() > 1 => INDEXES.get(usize::from(decision.limit)).unwrap_or(&""),
        name => name,
    };
    let (shape, index, reset_after) = (plan.shape(), decision.limit, decision.reset_after);
    Some(NearAdmission { shape, index, name, used, n, reset_after })
}

//! What operators' controls change of the limits of rules at run time. Controls that match the same domain and entries
//! apply together, so that several limits of one rule can be changed: of each limit, the newest control decides.
//!
//! A lookup finds only the control that ends first, so that one carries the changes of all that outlast it. If A ends
//! before B, A has the changes of both, and B its own for the time after A.

use std::cmp::Reverse;
use std::sync::Arc;

use super::control::{Action, Control, LimitChange, MAX_COMPARED};
use super::error::PlanError;
use weir_common::entry::OwnedEntry;
use weir_limit::{Limit, Numbers, Plan};
use weir_rules::rate::Rate;

/// The changes by a control and by those that match the same and outlast it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Changes {
    pub own: LimitChange,
    /// The newest first.
    pub all: Box<[LimitChange]>,
}

/// What a control matches: the domain, whether exactly, whether networks are texts, and the entries.
pub(super) type Match = (String, bool, bool, Vec<OwnedEntry>);

/// Equal for two controls that match the same.
pub(super) fn match_of(control: &Control) -> Match {
    let mut entries = control.entries.clone();
    if !control.exact {
        entries.sort_unstable();
    }
    (control.domain.clone(), control.exact, control.is_text_of_network(), entries)
}

/// Returns each control with its changes. All of them change limits, and match the same.
pub(super) fn changes_of(mut controls: Vec<Arc<Control>>) -> Vec<(Arc<Control>, Changes)> {
    controls.sort_unstable_by(|a, b| end(b).cmp(&end(a)));
    let mut outlasting: Vec<&Control> = Vec::new();
    let mut found = Vec::new();
    for control in &controls {
        let Action::Limit { limit: own } = &control.action else { continue };
        let place = outlasting.partition_point(|other| age(other) < age(control));
        outlasting.insert(place, control);
        outlasting.truncate(MAX_COMPARED);
        let all = outlasting.iter().filter_map(|control| match &control.action {
            Action::Limit { limit: change } => Some(change.clone()),
            _ => None,
        });
        found.push((control.clone(), Changes { own: own.clone(), all: all.collect() }));
    }
    found
}

/// The order of controls that match the same by their ends, the first one first.
pub(super) fn end(control: &Control) -> (u64, &str) {
    (control.until.unwrap_or(u64::MAX), &control.id)
}

/// The order of controls by their age, the newest first.
pub(super) fn age(control: &Control) -> (Reverse<u64>, &str) {
    (Reverse(control.at), &control.id)
}

impl Changes {
    /// Returns a plan with the changes that fit it; none if that of the control itself has no effect, because a newer
    /// one changes the same limit; an error if it fits no limit.
    pub fn apply(&self, plan: &Plan, max_log_bytes: u64) -> Result<Option<Plan>, PlanError> {
        changed_limit(plan, &self.own, max_log_bytes)?;
        let mut limits = plan.limits().to_vec();
        let (mut is_changed, mut has_effect) = (vec![false; limits.len()], false);
        for change in &self.all {
            let Ok((at, limit)) = changed_limit(plan, change, max_log_bytes) else { continue };
            let (Some(old), Some(is_changed)) = (limits.get_mut(at), is_changed.get_mut(at)) else {
                continue;
            };
            if !std::mem::replace(is_changed, true) {
                *old = limit;
                has_effect |= *change == self.own;
            }
        }
        Ok(has_effect.then(|| {
            let changed = Plan::new(limits).with_near_limit_ratio(plan.near_limit_ratio());
            let changed = if plan.can_lease() { changed } else { changed.without_leases() };
            changed.with_bans_of(plan)
        }))
    }
}

/// Returns the limit of a plan that a change means, with other numbers, and its index.
pub(super) fn changed_limit(
    plan: &Plan,
    change: &LimitChange,
    max_log_bytes: u64,
) -> Result<(usize, Limit), PlanError> {
    let limits = plan.limits();
    let names = || {
        let names = limits.iter().map(|limit| limit.name.to_string());
        let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        (!names.is_empty()).then_some(names)
    };
    let mut limits = limits.iter().enumerate();
    let limit = match change.name.as_str() {
        "" if limits.len() == 1 => limits.next(),
        "" => return Err(names().map_or(PlanError::Nameless, PlanError::NameNeeded)),
        name => limits.find(|(_, limit)| *limit.name == *name),
    };
    let Some((at, limit)) = limit else {
        let names = names().map(|names| names.join(", "));
        let names = names.unwrap_or_else(|| "one without a name".to_owned());
        return Err(PlanError::NoSuchLimit(names));
    };
    check_period(limit, change)?;
    let limit = limit.with_numbers(Numbers { n: change.n, burst: change.burst })?;
    let bytes = limit.bytes_of_hits();
    match bytes > max_log_bytes {
        true => Err(PlanError::TooManyBytes(bytes, max_log_bytes)),
        false => Ok((at, limit)),
    }
}

/// Rejects a rate whose period is not that of the limit.
fn check_period(limit: &Limit, change: &LimitChange) -> Result<(), PlanError> {
    let Some(asked) = change.rate else { return Ok(()) };
    let Some(own) = Rate::of(limit) else { return Err(PlanError::NoPeriod) };
    let (from, to) = (asked.per.seconds(), own.per.seconds());
    if from == to && (!limit.follows_calendar() || own.per == asked.per) {
        return Ok(());
    }
    let n = (u64::from(asked.n) * to).div_ceil(from);
    let same = Rate { n: u32::try_from(n).unwrap_or(u32::MAX), per: own.per };
    Err(PlanError::OtherPeriod { own: own.per, asked: asked.per, same })
}

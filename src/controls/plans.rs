//! The plans of rules whose limits have other numbers: built when a control or a rule changes, so that
//! no request builds one.

use std::collections::HashMap;
use std::sync::Arc;

use super::index::Row;
use super::pattern::ValuePattern;
use super::{Action, Control, ControlEntry, LimitChange};
use crate::limit::{Algorithm, NumbersError, Plan};
use crate::rules::{Rule, RuleSet};

/// The most plans that controls may make; beyond it the limits of rules stay as they are. All are built with
/// each change, on threads that do other work too: this many take 0.2 s.
const MAX_PLANS: usize = 10_000;

/// Why a rule keeps its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the rule has several limits: write `limit.name`, one of {0}")]
    NameNeeded(String),
    #[error("the rule has no limit of that name, only {0}")]
    NoSuchLimit(String),
    #[error("the rule has several limits and no names for them: name them in the rule file")]
    Nameless,
    #[error("{0}")]
    Numbers(#[from] NumbersError),
    #[error(
        "the limit may take {0} bytes per key, the maximum is {1} (setting rules.max_log_bytes)"
    )]
    TooManyBytes(u64, u64),
    #[error("controls change the limits of too many rules: write a domain or more entries")]
    TooManyPlans,
}

/// Plans by that of the rule and by the change.
#[derive(Debug, Default)]
pub(super) struct Plans {
    plans: HashMap<(usize, u32), Arc<Plan>>,
}

impl Plans {
    /// Builds the plans of all controls that change limits. What cannot be built is left out.
    pub fn new(rows: &[Row], rules: &RuleSet, max_log_bytes: u64) -> (Plans, Option<PlanError>) {
        let (mut plans, mut error) = (Plans::default(), None);
        let mut by_key = None;
        for row in rows {
            let Action::Limit(change) = &row.control.action else { continue };
            let by_key = by_key.get_or_insert_with(|| RulesByKey::new(rules));
            for rule in by_key.matched_by(&row.control) {
                let Some(plan) = &rule.plan else { continue };
                if plans.plans.len() >= MAX_PLANS {
                    return (plans, Some(PlanError::TooManyPlans));
                }
                let key = (address(plan), row.change);
                if plans.plans.contains_key(&key) {
                    continue;
                }
                match changed(plan, change, max_log_bytes) {
                    Ok(changed) => drop(plans.plans.insert(key, Arc::new(changed))),
                    Err(why) => error = Some(why),
                }
            }
        }
        (plans, error)
    }

    /// Returns the plan of a rule with a change; none if the rule keeps its own.
    pub fn get(&self, plan: &Arc<Plan>, change: u32) -> Option<&Arc<Plan>> {
        self.plans.get(&(address(plan), change))
    }
}

/// A plan is known by its address: the snapshot that holds it holds these plans too.
fn address(plan: &Arc<Plan>) -> usize {
    Arc::as_ptr(plan).addr()
}

/// Returns a plan with other numbers for one of its limits.
///
/// # Errors
///
/// No limit is meant, or it cannot have these numbers.
pub(super) fn changed(
    plan: &Plan,
    change: &LimitChange,
    max_log_bytes: u64,
) -> Result<Plan, PlanError> {
    let mut limits = plan.limits().to_vec();
    let names = || {
        let names = plan.limits().iter().map(|limit| &*limit.name);
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let limit = match change.name.as_str() {
        "" if limits.len() == 1 => limits.first_mut(),
        "" => return Err(names().map_or(PlanError::Nameless, PlanError::NameNeeded)),
        name => limits.iter_mut().find(|limit| *limit.name == *name),
    };
    let Some(limit) = limit else {
        let names = names().unwrap_or_else(|| "one without a name".to_owned());
        return Err(PlanError::NoSuchLimit(names));
    };
    *limit = limit.with_numbers(change.numbers)?;
    let n = u64::from(change.numbers.n);
    let bytes = match &limit.algorithm {
        Algorithm::SlidingLog(_) => 8 * n,
        Algorithm::Concurrency(concurrency) if concurrency.hold_id.is_some() => 24 * n,
        _ => 0,
    };
    if bytes > max_log_bytes {
        return Err(PlanError::TooManyBytes(bytes, max_log_bytes));
    }
    Ok(Plan::new(limits))
}

/// The rules by the keys of the entries that they may match.
pub(super) struct RulesByKey<'r> {
    rules: Vec<&'r Rule>,
    by_key: HashMap<&'r str, Vec<u32>>,
    /// Rules with a `_` in a value, which a longer key may match.
    ambiguous: Vec<u32>,
}

impl<'r> RulesByKey<'r> {
    pub fn new(rules: &'r RuleSet) -> RulesByKey<'r> {
        let rules: Vec<&Rule> = rules.rules().collect();
        let (mut by_key, mut ambiguous) = (HashMap::<&str, Vec<u32>>::new(), Vec::new());
        for (position, rule) in (0..).zip(&rules) {
            let mut is_ambiguous = false;
            let mut add = |key| {
                let positions = by_key.entry(key).or_default();
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            };
            for (key, value) in rule.entries() {
                add(key);
                // In the matcher an entry is one text, `key_value`: a key may end at any `_`.
                key.match_indices('_').for_each(|(at, _)| add(&key[..at]));
                is_ambiguous |= value.contains('_');
            }
            if is_ambiguous {
                ambiguous.push(position);
            }
        }
        RulesByKey { rules, by_key, ambiguous }
    }

    /// Returns the rules of which some descriptor may match a control too.
    pub fn matched_by(&self, control: &Control) -> impl Iterator<Item = &'r Rule> {
        let positions = control.entries.iter().map(|entry| self.by_key.get(entry.key.as_str()));
        let fewest = positions.min_by_key(|positions| positions.map_or(0, Vec::len));
        let candidates: Vec<&'r Rule> = match fewest {
            None => self.rules.clone(),
            Some(positions) => {
                let mut positions: Vec<u32> =
                    positions.into_iter().flatten().chain(&self.ambiguous).copied().collect();
                positions.sort_unstable();
                positions.dedup();
                let rules = positions.iter();
                rules.filter_map(|&position| self.rules.get(position as usize).copied()).collect()
            }
        };
        candidates.into_iter().filter(|rule| may_match(rule, control))
    }
}

/// Returns whether a descriptor may match both a rule and a control. Where wildcards meet, it may.
fn may_match(rule: &Rule, control: &Control) -> bool {
    if control.domain != "*" && control.domain != rule.domain() {
        return false;
    }
    let rules: Vec<(&str, &str)> = rule.entries().collect();
    match control.exact {
        true => {
            rules.len() == control.entries.len()
                && rules.iter().zip(&control.entries).all(|(rule, mine)| may_be(*rule, mine))
        }
        false => control.entries.iter().all(|mine| rules.iter().any(|rule| may_be(*rule, mine))),
    }
}

/// Returns whether an entry may match both that of a rule and that of a control.
fn may_be((key, value): (&str, &str), mine: &ControlEntry) -> bool {
    let text = match value {
        "" => key.to_owned(),
        _ => format!("{key}_{value}"),
    };
    let Some(rest) = text.strip_prefix(&mine.key) else { return false };
    match rest.strip_prefix('_') {
        None => rest.is_empty(),
        Some(value) if value.contains('*') => true,
        Some(value) => ValuePattern::new(&mine.value).matches(value),
    }
}

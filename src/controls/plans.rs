//! The plans of rules whose limits have other numbers: built when a control or a rule changes, so that
//! no request builds one.

use std::collections::HashMap;
use std::sync::Arc;

use super::changes::Changes;
use super::index::Index;
use super::pattern::ValuePattern;
use super::{Control, ControlEntry};
use crate::limit::{NumbersError, Plan};
use crate::rules::{Rule, RuleSet};

/// The most plans that controls may make; beyond it the limits of rules stay as they are. All are built
/// when rules are loaded, and after that only new ones.
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

/// Plans by that of the rule and by the changes.
#[derive(Debug, Default)]
pub(super) struct Plans {
    plans: HashMap<(usize, u32), Arc<Plan>>,
}

/// The plans of an earlier set of controls. Its rules still exist, so that no other plan has the address of
/// one of theirs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier<'e> {
    pub index: &'e Index,
    pub plans: &'e Plans,
}

impl Plans {
    /// Builds the plans of all controls that change limits, except those that exist already. What cannot
    /// be built is left out.
    pub fn new(
        index: &Index,
        rules: &RuleSet,
        max_log_bytes: u64,
        earlier: Option<Earlier<'_>>,
    ) -> (Plans, Option<PlanError>) {
        let (mut plans, mut error) = (Plans::default(), None);
        let known = earlier.map(Known::new);
        let mut by_key = None;
        for (row, changes) in index.limits() {
            let by_key = by_key.get_or_insert_with(|| RulesByKey::new(rules));
            for rule in by_key.matched_by(&row.control) {
                let Some(plan) = &rule.plan else { continue };
                if plans.plans.len() >= MAX_PLANS {
                    return (plans, Some(PlanError::TooManyPlans));
                }
                let key = (address(plan), row.changes);
                if plans.plans.contains_key(&key) {
                    continue;
                }
                if let Some(built) = known.as_ref().and_then(|known| known.get(plan, changes)) {
                    plans.plans.insert(key, built.clone());
                    continue;
                }
                match changes.apply(plan, max_log_bytes) {
                    Ok(Some(changed)) => drop(plans.plans.insert(key, Arc::new(changed))),
                    Ok(None) => {}
                    Err(why) => error = Some(why),
                }
            }
        }
        (plans, error)
    }

    /// Returns whether there is room for those of another control, whatever it replaces.
    pub fn have_room(&self, control: &Control, rules: &RuleSet) -> bool {
        self.plans.len() + RulesByKey::new(rules).matched_by(control).count() <= MAX_PLANS
    }

    /// Returns the plan of a rule with some changes; none if they do not change it.
    pub fn get(&self, plan: &Arc<Plan>, changes: u32) -> Option<&Arc<Plan>> {
        self.plans.get(&(address(plan), changes))
    }
}

/// The plans of an earlier set of controls, by what they change.
struct Known<'e> {
    plans: &'e Plans,
    numbers: HashMap<&'e Changes, u32>,
}

impl<'e> Known<'e> {
    fn new(Earlier { index, plans }: Earlier<'e>) -> Known<'e> {
        Known { plans, numbers: index.changes().iter().zip(0..).collect() }
    }

    fn get(&self, plan: &Arc<Plan>, changes: &Changes) -> Option<&'e Arc<Plan>> {
        self.plans.get(plan, *self.numbers.get(changes)?)
    }
}

/// A plan is known by its address: the snapshot that holds it holds these plans too.
fn address(plan: &Arc<Plan>) -> usize {
    Arc::as_ptr(plan).addr()
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

//! The plans of rules (a plan is the limits of a rule, charged together) with the numbers that operators' controls give
//! them: built when a control or a rule changes, so that no request builds one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::changes::Changes;
use super::control::Control;
use super::error::PlanError;
use super::pattern::Pattern;
use weir_common::entry::{Entry, rule_text};
use weir_limit::Plan;
use weir_rules::{Rule, RuleSet};

/// The most plans that controls may make; beyond it the limits of rules stay as they are. All are built
/// when rules are loaded, and after that only new ones.
const MAX_PLANS: usize = 10_000;

/// The plans of all controls that change limits. Those of equal changes are built once.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// By the changes, and by the address of the rule's own plan.
    plans: HashMap<Changes, HashMap<usize, SharedPlan>>,
    pub len: usize,
    /// Whether a plan was not made because there were too many.
    pub is_full: bool,
}

#[derive(Debug)]
struct SharedPlan {
    plan: Arc<Plan>,
    users: usize,
}

/// The plans of rules as one control changes them, in the order of the addresses of the rules' own plans.
#[derive(Debug, Default)]
pub(super) struct ChangedPlans {
    changes: Option<Changes>,
    plans: Box<[(usize, Arc<Plan>)]>,
}

impl ChangedPlans {
    /// Returns the plan of a rule with the changes; none if they do not change it.
    #[inline]
    pub fn get(&self, plan: &Arc<Plan>) -> Option<&Arc<Plan>> {
        let at = self.plans.binary_search_by_key(&address(plan), |(address, _)| *address).ok()?;
        self.plans.get(at).map(|(_, changed)| changed)
    }
}

impl Plans {
    /// Returns the plans of the rules that a control may match, with the changes; and why one cannot be built.
    pub fn add(
        &mut self,
        control: &Control,
        changes: Changes,
        rules: &RulesByKey,
    ) -> (ChangedPlans, Option<PlanError>) {
        let (mut found, mut error) = (BTreeMap::new(), None);
        let shared = self.plans.entry(changes.clone()).or_default();
        for rule in rules.matched_by(control) {
            let Some(plan) = &rule.plan else { continue };
            let address = address(plan);
            if found.contains_key(&address) {
                continue;
            }
            if let Some(shared) = shared.get_mut(&address) {
                shared.users += 1;
                found.insert(address, shared.plan.clone());
                continue;
            }
            if self.len >= MAX_PLANS {
                self.is_full = true;
                error = Some(PlanError::TooManyPlans);
                break;
            }
            match changes.apply(plan, rules.max_log_bytes) {
                Ok(Some(changed)) => {
                    let plan = Arc::new(changed);
                    found.insert(address, plan.clone());
                    shared.insert(address, SharedPlan { plan, users: 1 });
                    self.len += 1;
                }
                Ok(None) => {}
                Err(why) => error = Some(why),
            }
        }
        if shared.is_empty() {
            self.plans.remove(&changes);
        }
        let plans = found.into_iter().collect();
        (ChangedPlans { changes: Some(changes), plans }, error)
    }

    /// Drops the plans that only this control used.
    pub fn remove(&mut self, changed: &ChangedPlans) {
        let Some(changes) = &changed.changes else { return };
        let Some(shared) = self.plans.get_mut(changes) else { return };
        for (address, _) in &changed.plans {
            let Some(plan) = shared.get_mut(address) else { continue };
            plan.users -= 1;
            if plan.users == 0 {
                shared.remove(address);
                self.len -= 1;
            }
        }
        if shared.is_empty() {
            self.plans.remove(changes);
        }
    }

    /// Returns whether there is room for those of another control, whatever it replaces.
    pub fn have_room(&self, control: &Control, rules: &RulesByKey) -> bool {
        self.len + rules.matched_by(control).count() <= MAX_PLANS
    }
}

/// A plan is known by its address: the snapshot that holds it holds these plans too.
fn address(plan: &Arc<Plan>) -> usize {
    Arc::as_ptr(plan).addr()
}

/// The rules by the keys of the entries that they may match.
#[derive(Debug, Default)]
pub(super) struct RulesByKey {
    pub rules: Arc<RuleSet>,
    /// The most bytes that a limit may keep of one key.
    pub max_log_bytes: u64,
    by_key: HashMap<Box<str>, Vec<u32>>,
    /// Rules with a `_` in a value, which a longer key may match.
    ambiguous: Vec<u32>,
}

impl RulesByKey {
    pub fn new(rules: Arc<RuleSet>, max_log_bytes: u64) -> RulesByKey {
        let (mut by_key, mut ambiguous) = (HashMap::<Box<str>, Vec<u32>>::new(), Vec::new());
        for (position, rule) in (0..).zip(rules.rules()) {
            let mut is_ambiguous = false;
            let mut add = |key: &str| {
                let positions = match by_key.get_mut(key) {
                    Some(positions) => positions,
                    None => by_key.entry(key.into()).or_default(),
                };
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
        RulesByKey { rules, max_log_bytes, by_key, ambiguous }
    }

    /// Returns the rules of which some descriptor may match a control too: not those from which it leads another way.
    pub fn matched_by(&self, control: &Control) -> impl Iterator<Item = &Rule> {
        let positions = control.entries.iter().map(|entry| self.by_key.get(entry.key.as_str()));
        let fewest = positions.min_by_key(|positions| positions.map_or(0, Vec::len));
        let candidates: Vec<&Rule> = match fewest {
            None => self.rules.rules().collect(),
            Some(positions) => {
                let mut positions: Vec<u32> =
                    positions.into_iter().flatten().chain(&self.ambiguous).copied().collect();
                positions.sort_unstable();
                positions.dedup();
                let rules = positions.iter();
                rules.filter_map(|&position| self.rules.rule(position as usize)).collect()
            }
        };
        let patterns: Vec<Pattern> = control.patterns().collect();
        let texts: Vec<Entry<'_>> = control.text_entries().collect();
        candidates.into_iter().filter(move |rule| {
            let domain = || self.rules.domain(rule.domain());
            may_match(rule, control, &patterns)
                && domain().is_none_or(|domain| domain.may_find(rule, &texts))
        })
    }
}

/// Returns whether a descriptor may match both a rule and a control with these patterns: also where wildcards meet.
fn may_match(rule: &Rule, control: &Control, patterns: &[Pattern]) -> bool {
    if control.domain != "*" && control.domain != rule.domain() {
        return false;
    }
    let rules: Vec<(&str, &str)> = rule.entries().collect();
    let keys = control.entries.iter().map(|entry| entry.key.as_str());
    let mut mine = keys.zip(patterns);
    match control.exact {
        true => {
            rules.len() == control.entries.len()
                && rules.iter().zip(mine).all(|(rule, mine)| may_be(*rule, mine))
        }
        false => mine.all(|mine| rules.iter().any(|rule| may_be(*rule, mine))),
    }
}

/// Returns whether an entry may match both that of a rule and that of a control.
fn may_be(entry: Entry<'_>, (my_key, pattern): (&str, &Pattern)) -> bool {
    let text = rule_text(entry);
    let Some(rest) = text.strip_prefix(my_key) else { return false };
    match rest.strip_prefix('_') {
        None => rest.is_empty(),
        // A pattern or a list has many values.
        Some(value) if value.contains('*') || value.starts_with('@') => true,
        Some(value) => pattern.may_meet(value),
    }
}

//! Controls as decisions use them: compiled for one set of rules.

use std::sync::Arc;

use super::changes::changed_limit;
use super::index::Index;
use super::plans::{Earlier, PlanError, Plans, RulesByKey};
use super::{Action, Control, ControlClock};
use crate::entry::Entry;
use crate::limit::{Micros, Plan, SECOND};
use crate::rules::{Rule, RuleSet};

/// How long a block lasts that matches no rule.
const DEFAULT_BLOCK: Micros = 3_600 * SECOND;

/// All controls, compiled for one set of rules.
#[derive(Debug)]
pub struct CompiledControls {
    index: Index,
    plans: Plans,
    clock: ControlClock,
}

/// What a control does to a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Effect<'c> {
    Block {
        control: &'c Control,
        /// The time that is left; none if the block does not end.
        wait: Option<Micros>,
    },
    Allow {
        control: &'c Control,
        /// Whether hits are charged nevertheless.
        count: bool,
    },
    /// The plan of the rule with other numbers: those of the control, and of others that match the
    /// same.
    Limit { control: &'c Control, plan: &'c Arc<Plan> },
}

impl<'c> Effect<'c> {
    pub fn control(&self) -> &'c Control {
        match self {
            Effect::Block { control, .. }
            | Effect::Allow { control, .. }
            | Effect::Limit { control, .. } => control,
        }
    }
}

impl CompiledControls {
    /// Compiles controls; plans that `earlier` has are not built again. Returns also why a rule keeps its
    /// limits, if one does.
    pub(super) fn new(
        controls: impl IntoIterator<Item = Arc<Control>>,
        rules: &RuleSet,
        max_log_bytes: u64,
        clock: ControlClock,
        earlier: Option<&CompiledControls>,
    ) -> (CompiledControls, Option<PlanError>) {
        let now = clock.now();
        let index = Index::new(controls.into_iter().filter(|control| !control.is_expired(now)));
        let (plans, error) = Plans::new(&index, rules, max_log_bytes, earlier.map(Self::plans));
        (CompiledControls { index, plans, clock }, error)
    }

    /// Its plans, for the next ones.
    pub(super) fn plans(&self) -> Earlier<'_> {
        Earlier { index: &self.index, plans: &self.plans }
    }

    /// Returns what applies to a descriptor: a block, else an allowance, else other numbers for
    /// `plan`, that of the matched rule. A refund is not blocked.
    #[inline(never)]
    pub fn find(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        plan: Option<&Arc<Plan>>,
        is_refund: bool,
    ) -> Option<Effect<'_>> {
        let mut read = None;
        let now = || *read.get_or_insert_with(|| self.clock.now());
        let row = self.index.find(domain, entries, now, |row| match row.control.action {
            Action::Limit(_) => {
                plan.is_some_and(|plan| self.plans.get(plan, row.changes).is_some())
            }
            Action::Allow { .. } => true,
            Action::Block => !is_refund,
        })?;
        let control = &*row.control;
        match &control.action {
            Action::Block => {
                let now = read.unwrap_or_else(|| self.clock.now());
                let wait = control.until.map(|until| until.saturating_sub(now));
                Some(Effect::Block { control, wait })
            }
            Action::Allow { count } => Some(Effect::Allow { control, count: *count }),
            Action::Limit(_) => {
                Some(Effect::Limit { control, plan: self.plans.get(plan?, row.changes)? })
            }
        }
    }
}

/// What a control means for a set of rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Examined {
    /// The names of rules whose descriptors it may match.
    pub rules: Vec<String>,
    /// How long a block lasts by default.
    pub default_block: Micros,
    /// The rules that keep their limits, and why.
    pub unchanged: Vec<(String, PlanError)>,
    /// The number of rules whose limits change.
    pub changed: usize,
}

/// Returns what a control means for a set of rules.
pub(super) fn examine(control: &Control, rules: &RuleSet, max_log_bytes: u64) -> Examined {
    let mut examined = Examined::default();
    let mut longest = None;
    for rule in RulesByKey::new(rules).matched_by(control) {
        examined.rules.push(rule.name.to_string());
        longest = longest.max(longest_period(rule));
        if let (Action::Limit(change), Some(plan)) = (&control.action, &rule.plan) {
            match changed_limit(plan, change, max_log_bytes) {
                Ok(_) => examined.changed += 1,
                Err(error) => examined.unchanged.push((rule.name.to_string(), error)),
            }
        }
    }
    examined.default_block = longest.unwrap_or(DEFAULT_BLOCK);
    examined
}

fn longest_period(rule: &Rule) -> Option<Micros> {
    let limits = rule.plan.iter().flat_map(|plan| plan.limits());
    limits.filter_map(|limit| limit.unit?.period(limit.unit_multiplier)).max()
}

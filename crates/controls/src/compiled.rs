//! Controls, the blocks, allows and limits of operators, compiled for one set of rules: what decisions look up.

use std::sync::Arc;

use super::changes::changed_limit;
use super::control::{Action, Control};
use super::error::PlanError;
use super::index::{Index, Row};
use super::plans::RulesByKey;
use super::time::ControlClock;
use weir_common::entry::Entry;
use weir_limit::{Micros, Plan, SECOND};

/// How long a block lasts that matches no rule.
const DEFAULT_BLOCK: Micros = 3_600 * SECOND;

/// All controls, compiled for one set of rules.
#[derive(Debug)]
pub struct CompiledControls {
    /// Blocks and allowances, which go before changed limits.
    pub(super) index: Index,
    pub(super) limits: Index,
    pub(super) clock: ControlClock,
}

/// What a control does to a descriptor: see [`Action`].
#[derive(Clone, Copy, Debug)]
pub enum Effect<'c> {
    Block {
        control: &'c Control,
        /// The time that is left; none if the block does not end.
        wait: Option<Micros>,
    },
    Allow {
        control: &'c Control,
        count: bool,
    },
    /// The plan of the rule with other numbers: those of the control, and of others that match the same.
    Limit {
        control: &'c Control,
        plan: &'c Arc<Plan>,
    },
}

impl<'c> Effect<'c> {
    /// Returns the control that has the effect.
    pub fn control(&self) -> &'c Control {
        match self {
            Effect::Block { control, .. }
            | Effect::Allow { control, .. }
            | Effect::Limit { control, .. } => control,
        }
    }
}

impl CompiledControls {
    /// Returns a block, else an allowance, else other numbers for the matched rule's plan; and whether a block spares
    /// the request, which has `descriptors`. Refunds are not blocked.
    #[inline(never)]
    pub fn find<'r>(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        descriptors: impl Iterator<Item = &'r [Entry<'r>]> + Clone,
        plan: Option<&Arc<Plan>>,
        is_refund: bool,
    ) -> (Option<Effect<'_>>, bool) {
        let (mut read, mut is_spared) = (None, false);
        let now = || *read.get_or_insert_with(|| self.clock.now());
        let accepts = |row: &Row| {
            if row.control.action != Action::Block {
                return true;
            }
            let spares = !is_refund && row.spares(descriptors.clone());
            is_spared |= spares;
            !is_refund && !spares
        };
        let row = self.index.find(domain, entries, now, accepts);
        let effect = match row {
            Some(row) => self.effect(&row.control, read),
            None => plan.and_then(|plan| self.find_limit(domain, entries, plan)),
        };
        (effect, is_spared)
    }

    /// Returns the effect of a block or an allowance, at a time that may have been read.
    #[inline]
    fn effect<'c>(&self, control: &'c Control, read: Option<Micros>) -> Option<Effect<'c>> {
        match control.action {
            Action::Block => {
                let now = read.unwrap_or_else(|| self.clock.now());
                let wait = control.until.map(|until| until.saturating_sub(now));
                Some(Effect::Block { control, wait })
            }
            Action::Allow { count } => Some(Effect::Allow { control, count }),
            Action::Limit { .. } => None,
        }
    }

    fn find_limit(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        plan: &Arc<Plan>,
    ) -> Option<Effect<'_>> {
        let mut read = None;
        let now = || *read.get_or_insert_with(|| self.clock.now());
        let accepts = |row: &Row| row.plans.get(plan).is_some();
        let row = self.limits.find(domain, entries, now, accepts)?;
        Some(Effect::Limit { control: &row.control, plan: row.plans.get(plan)? })
    }
}

/// What a control means for a set of rules.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleMatches {
    /// The names of rules whose descriptors it may match.
    pub rules: Vec<String>,
    /// How long a block lasts by default.
    pub default_block: Micros,
    /// The rules that keep their limits, and why.
    pub unchanged: Vec<(String, PlanError)>,
    /// The number of rules whose limits change.
    pub changed: usize,
}

pub(super) fn match_rules(control: &Control, rules: &RulesByKey) -> RuleMatches {
    let mut matches = RuleMatches::default();
    let mut longest = None;
    for rule in rules.matched_by(control) {
        matches.rules.push(rule.name.to_string());
        let limits = rule.plan.iter().flat_map(|plan| plan.limits());
        let periods = limits.filter_map(|limit| limit.unit?.period(limit.unit_multiplier));
        longest = longest.max(periods.max());
        if let (Action::Limit { limit: change }, Some(plan)) = (&control.action, &rule.plan) {
            match changed_limit(plan, change, rules.max_log_bytes) {
                Ok(_) => matches.changed += 1,
                Err(error) => matches.unchanged.push((rule.name.to_string(), error)),
            }
        }
    }
    matches.default_block = longest.unwrap_or(DEFAULT_BLOCK);
    matches
}

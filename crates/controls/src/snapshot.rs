//! The active rules and operators' controls (blocks, allows, limits): one immutable snapshot, swapped as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use super::compiled::CompiledControls;
use super::control::{Action, ChangedControls, Control};
use super::error::PlanError;
use super::index::{Index, Row};
use super::limits::LimitControls;
use super::plans::{ChangedPlans, RulesByKey};
use super::time::ControlClock;
use weir_common::metrics::{MetricSink, MetricSource};
use weir_common::threads::{free_unused, run_blocking};
use weir_rules::RuleSet;

/// The most changes after which a snapshot is freed by the thread that uses it last.
const MAX_FREED_AT_ONCE: usize = 100;

/// Rules, and the controls compiled for them.
#[derive(Debug)]
pub struct Snapshot {
    rules: Arc<RuleSet>,
    /// The controls; none if there are none, so that a decision pays one branch.
    controls: Option<CompiledControls>,
}

impl Snapshot {
    /// Returns the rules, which other snapshots may share.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
}

/// What a decision reads of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct ActiveView<'s> {
    pub rules: &'s RuleSet,
    /// The controls compiled for the rules; none if there are none.
    pub controls: Option<&'s CompiledControls>,
}

impl<'s> From<&'s RuleSet> for ActiveView<'s> {
    fn from(rules: &'s RuleSet) -> ActiveView<'s> {
        ActiveView { rules, controls: None }
    }
}

impl<'s> From<&'s Snapshot> for ActiveView<'s> {
    #[inline]
    fn from(snapshot: &'s Snapshot) -> ActiveView<'s> {
        ActiveView { rules: &snapshot.rules, controls: snapshot.controls.as_ref() }
    }
}

/// The active snapshot; none until rules are loaded.
#[derive(Debug, Default)]
pub struct ActiveRules {
    snapshot: ArcSwapOption<Snapshot>,
    /// The controls of the next snapshot. Held while one is made.
    pub(super) controls: Mutex<NextControls>,
    pub(super) clock: ControlClock,
    max_log_bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct NextControls {
    /// The blocks and allowances by id, as `index` has them.
    rows: HashMap<String, Arc<Row>>,
    index: Index,
    pub limits: LimitControls,
    /// The rules that limits are compiled for, once there are controls.
    rules: Option<Arc<RulesByKey>>,
}

impl NextControls {
    /// Puts a control, or removes that of an id. Returns why a rule keeps its limits, if one does.
    fn change(
        &mut self,
        id: String,
        control: Option<Arc<Control>>,
        rules: &RulesByKey,
    ) -> Option<PlanError> {
        if let Some(old) = self.rows.remove(&id) {
            self.index.remove(&old);
        }
        let is_limit = |control: &Arc<Control>| matches!(control.action, Action::Limit { .. });
        if let Some(control) = control.as_ref().filter(|control| !is_limit(control)) {
            let row = Row::new(control.clone(), control.clone(), ChangedPlans::default());
            self.rows.insert(id.clone(), self.index.insert(row));
        }
        self.limits.change(&id, control.filter(is_limit), rules)
    }

    /// Returns rules by their keys; the same as long as the rules are the same.
    fn rules_by_key(&mut self, rules: Arc<RuleSet>, max_log_bytes: u64) -> Arc<RulesByKey> {
        match &self.rules {
            Some(known) if Arc::ptr_eq(&known.rules, &rules) => known.clone(),
            _ => self.rules.insert(Arc::new(RulesByKey::new(rules, max_log_bytes))).clone(),
        }
    }

    pub fn compared_with(&self, control: &Control) -> usize {
        self.index.compared_with(control) + self.limits.index.compared_with(control)
    }
}

impl ActiveRules {
    /// Creates a snapshot without rules. Controls end by `clock`; a limit that keeps more than `max_log_bytes`
    /// of one key is not applied.
    pub fn new(clock: ControlClock, max_log_bytes: u64) -> ActiveRules {
        ActiveRules { clock, max_log_bytes, ..ActiveRules::default() }
    }

    /// Creates a snapshot with these rules, for tests and tools.
    pub fn of(rules: RuleSet) -> ActiveRules {
        let active = ActiveRules::new(ControlClock::default(), u64::MAX);
        active.set_rules(Arc::new(rules));
        active
    }

    /// Returns the snapshot for one request.
    #[inline]
    pub fn load(&self) -> Guard<Option<Arc<Snapshot>>> {
        self.snapshot.load()
    }

    /// Returns the rules, to be kept for longer.
    pub fn load_full(&self) -> Option<Arc<RuleSet>> {
        self.snapshot.load().as_ref().map(|snapshot| snapshot.rules.clone())
    }

    /// Activates rules, with the controls compiled for them. Returns the previous snapshot.
    pub fn set_rules(&self, rules: Arc<RuleSet>) -> Option<Arc<Snapshot>> {
        let mut next = self.controls.lock();
        next.rules = None;
        if !next.limits.by_id.is_empty() {
            let by_key = next.rules_by_key(rules.clone(), self.max_log_bytes);
            log_unchanged(next.limits.compile(&by_key));
        }
        self.activate(rules, &next)
    }

    /// Replaces all controls.
    pub fn set_controls(&self, controls: Vec<Arc<Control>>) {
        let mut next = self.controls.lock();
        *next = NextControls::default();
        let controls = controls.into_iter().map(|control| (control.id.clone(), Some(control)));
        self.change(next, controls.collect());
    }

    /// Puts controls, and removes those of ids without one.
    pub(super) fn change_controls(&self, changes: ChangedControls) {
        self.change(self.controls.lock(), changes);
    }

    fn change(&self, mut next: MutexGuard<'_, NextControls>, changes: ChangedControls) {
        let is_small = changes.len() <= MAX_FREED_AT_ONCE;
        let rules = self.load_full();
        let by_key = next.rules_by_key(rules.clone().unwrap_or_default(), self.max_log_bytes);
        let mut error = None;
        for (id, control) in changes {
            error = error.or(next.change(id, control, &by_key));
        }
        let error = next.limits.settle(&by_key).or(error);
        log_unchanged(error);
        let Some(rules) = rules else { return };
        let previous = self.activate(rules, &next);
        drop(next);
        // After a small change, the next snapshot shares nearly all of it.
        if let Some(previous) = previous.filter(|_| !is_small)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(run_blocking(move || free_unused(previous)));
        }
    }

    /// Activates a snapshot of rules and controls. Returns the previous one.
    fn activate(&self, rules: Arc<RuleSet>, next: &NextControls) -> Option<Arc<Snapshot>> {
        let has_controls = !next.rows.is_empty() || !next.limits.by_id.is_empty();
        let controls = has_controls.then(|| {
            let limits = next.limits.index.clone();
            CompiledControls { index: next.index.clone(), limits, clock: self.clock.clone() }
        });
        self.snapshot.swap(Some(Arc::new(Snapshot { rules, controls })))
    }

    pub(super) fn has_room(&self, control: Arc<Control>) -> bool {
        let mut next = self.controls.lock();
        let rules = next.rules_by_key(self.load_full().unwrap_or_default(), self.max_log_bytes);
        let limits = &mut next.limits;
        // Mostly what is counted fast says that there is room.
        if limits.plans.have_room(&control, &rules) {
            return true;
        }
        let id = control.id.clone();
        let old = limits.by_id.get(&id).cloned();
        let mut try_change = |control| {
            limits.change(&id, control, &rules);
            limits.settle(&rules);
            !limits.plans.is_full
        };
        let has_room = try_change(Some(control));
        try_change(old);
        has_room
    }

    /// Returns about how many controls are compiled for a number of changes.
    pub(super) fn work(&self, changes: usize) -> usize {
        let next = self.controls.lock();
        if next.limits.plans.is_full { changes + next.limits.by_id.len() } else { changes }
    }

    /// Returns the active rules by their keys; none of them until rules are loaded.
    pub(super) fn rules_by_key(&self) -> Arc<RulesByKey> {
        let mut next = self.controls.lock();
        // Under the lock, so that they are the newest.
        next.rules_by_key(self.load_full().unwrap_or_default(), self.max_log_bytes)
    }
}

impl MetricSource for ActiveRules {
    fn collect(&self, sink: &mut dyn MetricSink) {
        weir_rules::collect_metrics(&self.load_full().unwrap_or_default(), sink);
    }
}

fn log_unchanged(error: Option<PlanError>) {
    if let Some(error) = error {
        tracing::warn!(%error, "a control leaves the limits of a rule as they are");
    }
}

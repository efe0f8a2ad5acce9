//! The active rules and controls: one immutable snapshot, swapped as a whole.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::{Mutex, MutexGuard};

use super::compiled::CompiledLimits;
use super::index::{Index, Row};
use super::{Action, CompiledControls, Control, ControlClock};
use crate::metrics::{MetricSink, MetricSource};
use crate::rules::{self, RuleSet};

/// The most changes after which a snapshot is freed by the thread that uses it last.
const MAX_FREED_AT_ONCE: usize = 100;

/// Rules, and the controls compiled for them.
#[derive(Debug)]
pub struct Snapshot {
    rules: Arc<RuleSet>,
    /// None without any, so that a decision pays one branch.
    controls: Option<CompiledControls>,
}

/// What a decision reads of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct ActiveView<'s> {
    pub rules: &'s RuleSet,
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
    controls: Mutex<NextControls>,
    clock: ControlClock,
    max_log_bytes: u64,
}

/// The controls of the next snapshot.
#[derive(Debug, Default)]
pub(super) struct NextControls {
    /// The blocks and allowances by id, as `index` has them.
    rows: HashMap<String, Arc<Row>>,
    index: Index,
    /// The controls that change limits, by id, as `limit_index` has them.
    limits: BTreeMap<String, Arc<Control>>,
    limit_index: Index,
}

impl NextControls {
    /// Puts a control, or removes that of an id. Returns whether it changes or changed limits.
    fn change(&mut self, id: String, control: Option<Arc<Control>>) -> bool {
        if let Some(old) = self.rows.remove(&id) {
            self.index.remove(&old);
        }
        let had_limit = self.limits.remove(&id).is_some();
        match control {
            Some(control) if matches!(control.action, Action::Limit(_)) => {
                self.limits.insert(id, control);
                return true;
            }
            Some(control) => drop(self.rows.insert(id, self.index.insert(control))),
            None => {}
        }
        had_limit
    }

    fn index_limits(&mut self) {
        self.limit_index = Index::new(self.limits.values().cloned());
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.limits.is_empty()
    }

    /// Returns how many other controls a control would at least be compared with.
    pub fn compared_with(&self, control: &Control) -> usize {
        self.index.compared_with(control) + self.limit_index.compared_with(control)
    }

    /// Returns the controls that change limits but that of an id.
    pub fn other_limits(&self, id: &str) -> Vec<Arc<Control>> {
        self.limits.values().filter(|control| control.id != id).cloned().collect()
    }
}

impl ActiveRules {
    /// Makes it without rules. Controls end by `clock`; a limit that keeps more than `max_log_bytes`
    /// of one key is not applied.
    pub fn new(clock: ControlClock, max_log_bytes: u64) -> ActiveRules {
        ActiveRules { clock, max_log_bytes, ..ActiveRules::default() }
    }

    /// Makes it with rules, for as long as a test or a tool needs them.
    pub fn of(rules: RuleSet) -> ActiveRules {
        let active = ActiveRules::new(ControlClock::default(), u64::MAX);
        active.set_rules(Arc::new(rules));
        active
    }

    /// Returns the rules, and gives up the snapshot.
    pub fn into_rules(self) -> Option<Arc<RuleSet>> {
        let rules = self.load_full();
        self.snapshot.store(None);
        rules
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

    /// Activates rules, with the controls compiled for them. Returns the previous rules.
    pub fn set_rules(&self, rules: Arc<RuleSet>) -> Option<Arc<RuleSet>> {
        let next = self.controls.lock();
        let previous = self.activate(rules, &next, true);
        drop(next);
        let rules = previous.as_ref().map(|previous| previous.rules.clone());
        free_later(previous);
        rules
    }

    /// Replaces all controls.
    pub fn set_controls(&self, controls: Vec<Arc<Control>>) {
        let mut next = self.controls.lock();
        *next = NextControls::default();
        let controls = controls.into_iter().map(|control| (control.id.clone(), Some(control)));
        self.change(next, controls.collect(), true);
    }

    /// Puts controls, and removes those of ids without one.
    pub(super) fn change_controls(&self, changes: Vec<(String, Option<Arc<Control>>)>) {
        self.change(self.controls.lock(), changes, false);
    }

    fn change(
        &self,
        mut next: MutexGuard<'_, NextControls>,
        changes: Vec<(String, Option<Arc<Control>>)>,
        mut change_limits: bool,
    ) {
        let is_small = changes.len() <= MAX_FREED_AT_ONCE;
        for (id, control) in changes {
            change_limits |= next.change(id, control);
        }
        if change_limits {
            next.index_limits();
        }
        let Some(rules) = self.load_full() else { return };
        let previous = self.activate(rules, &next, change_limits);
        drop(next);
        // The other one shares nearly all of it.
        if !is_small || change_limits {
            free_later(previous);
        }
    }

    /// Activates a snapshot of rules and controls. Returns the previous one.
    fn activate(
        &self,
        rules: Arc<RuleSet>,
        next: &NextControls,
        change_limits: bool,
    ) -> Option<Arc<Snapshot>> {
        // The rules of its plans exist as long as it does.
        let earlier = self.snapshot.load_full();
        let earlier = earlier.as_ref().and_then(|earlier| earlier.controls.as_ref());
        let controls = (!next.is_empty()).then(|| {
            let limits = match earlier.map(CompiledControls::limits) {
                Some(limits) if !change_limits => limits.clone(),
                earlier => {
                    let (index, earlier) = (next.limit_index.clone(), earlier.map(|it| &**it));
                    let (compiled, error) =
                        CompiledLimits::new(index, &rules, self.max_log_bytes, earlier);
                    if let Some(error) = error {
                        tracing::warn!(%error, "a control leaves the limits of a rule as they are");
                    }
                    Arc::new(compiled)
                }
            };
            CompiledControls::new(next.index.clone(), limits, self.clock.clone())
        });
        self.snapshot.swap(Some(Arc::new(Snapshot { rules, controls })))
    }

    /// Returns about how many controls are compiled for some changes: those that change limits are
    /// compiled together.
    pub(super) fn work(&self, changes: &[(String, Option<Arc<Control>>)]) -> usize {
        let next = self.controls.lock();
        let is_limit = |control: &Control| matches!(control.action, Action::Limit(_));
        let change_limits = changes.iter().any(|(id, control)| {
            control.as_deref().is_some_and(is_limit) || next.limits.contains_key(id)
        });
        changes.len() + if change_limits { next.limits.len() } else { 0 }
    }

    /// Returns the controls of the next snapshot.
    pub(super) fn next_controls(&self) -> MutexGuard<'_, NextControls> {
        self.controls.lock()
    }

    pub(super) fn clock(&self) -> &ControlClock {
        &self.clock
    }

    pub(super) fn max_log_bytes(&self) -> u64 {
        self.max_log_bytes
    }
}

impl MetricSource for ActiveRules {
    fn collect(&self, sink: &mut dyn MetricSink) {
        rules::collect_metrics(self.load_full().as_deref(), sink);
    }
}

/// Frees a snapshot when no request uses it, on a thread that serves none: many controls take
/// milliseconds to free.
fn free_later(snapshot: Option<Arc<Snapshot>>) {
    let Some(mut snapshot) = snapshot.filter(|snapshot| snapshot.controls.is_some()) else {
        return;
    };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        // A request takes milliseconds at most. One that takes longer frees the snapshot itself.
        for _ in 0..100 {
            match Arc::try_unwrap(snapshot) {
                Ok(snapshot) => return drop(snapshot),
                Err(used) => snapshot = used,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

//! The active rules and controls: one immutable snapshot, swapped as a whole.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::{CompiledControls, Control, ControlClock};
use crate::metrics::{MetricSink, MetricSource};
use crate::rules::{self, RuleSet};

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
    controls: Mutex<Vec<Arc<Control>>>,
    clock: ControlClock,
    max_log_bytes: u64,
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
        let controls = self.controls.lock();
        let snapshot = self.compile(rules, &controls);
        let previous = self.snapshot.swap(Some(Arc::new(snapshot)));
        drop(controls);
        let rules = previous.as_ref().map(|previous| previous.rules.clone());
        free_later(previous);
        rules
    }

    /// Activates controls, compiled for the active rules.
    pub fn set_controls(&self, controls: Vec<Arc<Control>>) {
        let mut current = self.controls.lock();
        *current = controls;
        let Some(rules) = self.load_full() else { return };
        let snapshot = self.compile(rules, &current);
        let previous = self.snapshot.swap(Some(Arc::new(snapshot)));
        drop(current);
        free_later(previous);
    }

    fn compile(&self, rules: Arc<RuleSet>, controls: &[Arc<Control>]) -> Snapshot {
        let controls = (!controls.is_empty()).then(|| {
            let controls = controls.iter().cloned();
            // The rules of its plans exist as long as it does.
            let earlier = self.snapshot.load_full();
            let earlier = earlier.as_ref().and_then(|earlier| earlier.controls.as_ref());
            let (max_log_bytes, clock) = (self.max_log_bytes, self.clock.clone());
            let (compiled, error) =
                CompiledControls::new(controls, &rules, max_log_bytes, clock, earlier);
            if let Some(error) = error {
                tracing::warn!(%error, "a control leaves the limits of a rule as they are");
            }
            compiled
        });
        Snapshot { rules, controls }
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

//! Runs on the thread `weir-history`: samples counters once a second for the history, and adds what has happened to the
//! change log.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::ring::Counts;
use super::{History, Sample};
use crate::http::operators::control_changes::ControlChanges;
use crate::http::operators::problems::{Problem, cause, named, problems};
use crate::http::operators::sources::Sources;
use crate::http::operators::store_state::StoreState;
use crate::http::operators::store_watch::{Failing, Moment};
use weir_common::metrics::HistogramSnapshot;
use weir_limit::{Micros, SECOND};
use weir_limiter::LimiterCounts;
use weir_rules::RuleSet;
use weir_store::{Operations, Store};

/// How long after the end of a second its counters are read: a timer and the clock may differ by a little.
const MARGIN: Micros = 20_000;

/// The least time between two comparisons of the controls: there may be thousands.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Records until `closed` becomes true. `durations` returns how long decisions took since the start.
pub async fn record<S: Store + Operations + 'static>(
    history: &History,
    sources: &Sources<S>,
    durations: &(dyn Fn() -> HistogramSnapshot + Sync),
    mut closed: watch::Receiver<bool>,
) {
    tokio::select! {
        // A sender that is gone means that the process ends.
        _ = closed.wait_for(|closed| *closed) => {}
        () = Recorder { history, sources, durations, rules: Weak::new(), denied: 0 }.run() => {}
    }
}

struct Recorder<'a, S> {
    history: &'a History,
    sources: &'a Sources<S>,
    durations: &'a (dyn Fn() -> HistogramSnapshot + Sync),
    /// The rules that were sampled last, which it does not keep in memory.
    rules: Weak<RuleSet>,
    /// The denied requests, until the last that was recorded.
    denied: u64,
}

impl<S: Store + Operations> Recorder<'_, S> {
    /// Records continuously; never returns.
    async fn run(mut self) {
        let Sources { limiter, controls, loader, log, .. } = self.sources;
        let mut denials = limiter.denials().sample();
        let mut reloads = loader.watch();
        let (mut control_changes, mut looked) = (controls.subscribe(), Instant::now());
        let mut observer = Observer::default();
        // What changes from now on is a change.
        drop(observer.changed_controls(self.sources));
        denials.ask();
        let next = || sleep(until_next_second(controls.now()));
        // What happens meanwhile must not put it off.
        let mut tick = pin!(next());
        loop {
            tokio::select! {
                () = tick.as_mut() => {
                    self.sample();
                    tick.set(next());
                    denials.ask();
                    for (event, details) in observer.observe(self.sources) {
                        log.add(event, details);
                    }
                }
                Ok(reload) = reloads.recv() => log.add("reload", json!(reload)),
                mut denial = denials.next() => {
                    if denial.is_sampled {
                        let denied = limiter.counts().over_limit.load(Relaxed);
                        let more = denied.saturating_sub(self.denied);
                        (self.denied, denial.suppressed) = (denied, more.saturating_sub(1));
                    }
                    if let Some(policy) = denial.policy.as_mut().filter(|policy| policy.is_empty()) {
                        let failures = StoreState::read(limiter.store()).status.failures;
                        failures.map_or("", |failures| failures.on_failure).clone_into(policy);
                    }
                    log.add_denial(&denial);
                }
                // Not only at the next tick: a control may have ended until then, and someone may ask why.
                Ok(()) = async {
                    sleep_until(looked + LOOK_INTERVAL).await;
                    control_changes.changed().await
                } => {
                    looked = Instant::now();
                    for details in observer.changed_controls(self.sources) {
                        log.add("control", details);
                    }
                }
            }
        }
    }

    fn sample(&mut self) {
        let Sources { limiter, rules, controls, .. } = self.sources;
        let rules = rules.load_full();
        let empty = RuleSet::default();
        let set = rules.as_deref().unwrap_or(&empty);
        let is_new_set = !std::ptr::eq(self.rules.as_ptr(), set);
        if let Some(rules) = rules.as_ref().filter(|_| is_new_set) {
            self.rules = Arc::downgrade(rules);
        }
        self.history.sample(&Sample {
            now: controls.now(),
            is_new_set,
            all: all(limiter.counts()),
            rules: set,
            is_shadow: limiter.is_shadow(),
            durations: &(self.durations)(),
        });
    }
}

fn all(counts: &LimiterCounts) -> Counts {
    let get = |count: &AtomicU64| count.load(Relaxed);
    let would_be_over = get(&counts.global_shadow_mode) + get(&counts.rule_shadow_mode);
    let errors = get(&counts.invalid) + get(&counts.store_error);
    [get(&counts.ok), get(&counts.over_limit), would_be_over, errors]
}

/// Returns the time until the counters of this second are read.
fn until_next_second(now: Micros) -> Duration {
    Duration::from_micros(SECOND - now.wrapping_sub(MARGIN) % SECOND)
}

/// Notices what has changed since it last looked.
#[derive(Debug, Default)]
struct Observer {
    was_up: Option<bool>,
    /// When the store could not be reached last.
    unreachable: Micros,
    controls: ControlChanges,
    losses: u64,
    problems: Vec<Problem>,
    repeats: Repeats,
}

impl Observer {
    /// Looks at the store and at the problems. Returns the kinds and the details of what has changed.
    fn observe<S: Store + Operations>(
        &mut self,
        sources: &Sources<S>,
    ) -> Vec<(&'static str, Value)> {
        let store = StoreState::read(sources.limiter.store());
        let now = Moment { elapsed: sources.started.elapsed(), at: sources.controls.now() };
        let share_error = sources.controls.share_error().map(|error| error.to_string());
        let unknown = sources.limiter.counts().domain_not_found.counts();
        sources.watch.look(now, &store, share_error, unknown);
        let problems = problems(sources, &store);
        let mut changes = Vec::new();
        let change = self.store_change(now.at, &store, sources.watch.failing());
        changes.extend(change.map(|details| ("store", details)));
        let changed = self.changed_controls(sources).into_iter();
        changes.extend(changed.map(|details| ("control", details)));
        let losses = sources.controls.table_losses();
        if losses > std::mem::replace(&mut self.losses, losses) {
            changes.push(("emptied", json!({})));
        }
        let before = std::mem::replace(&mut self.problems, problems);
        log_store_problem(&before, &self.problems);
        for (problem, lasted) in self.repeats.due(now.elapsed, &self.problems) {
            let (text, severity, for_s) = (&problem.text, problem.severity, lasted.as_secs());
            tracing::warn!(problem = text, %severity, for_s, "problem with the rules");
        }
        let is_like = |(before, now): (&Problem, &Problem)| before.is_like(now);
        if before.len() != self.problems.len() || !before.iter().zip(&self.problems).all(is_like) {
            changes.push(("problems", json!({ "problems": self.problems })));
        }
        changes
    }

    /// Returns what has changed of the store: it cannot be reached, its commands fail, or it answers.
    fn store_change(
        &mut self,
        at: Micros,
        store: &StoreState,
        failing: Option<Failing>,
    ) -> Option<Value> {
        self.unreachable = if store.is_connected { self.unreachable } else { at };
        // Charges that failed because it could not be reached are still in the window.
        let failing = failing.filter(|it| it.lasts && it.since > self.unreachable);
        let error = cause(store).or_else(|| Some(named(store, failing?.counted.reason?)));
        let is_up = error.is_none();
        let was_up = self.was_up.replace(is_up);
        was_up.is_some_and(|was| was != is_up).then(|| json!({ "up": is_up, "error": error }))
    }

    /// Returns the details of the controls that have changed since the last look.
    fn changed_controls<S: Store + Operations>(&mut self, sources: &Sources<S>) -> Vec<Value> {
        let Sources { limiter, controls, log, .. } = sources;
        let is_shared = limiter.store().shared_table().is_some();
        self.controls.look(controls, is_shared, log, limiter.denials().redaction())
    }
}

/// When problems that the log repeats were logged, by kind.
#[derive(Debug, Default)]
struct Repeats(HashMap<&'static str, Duration>);

impl Repeats {
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Returns the problems to log at this time since the start, and how long each has lasted.
    fn due<'p>(&mut self, now: Duration, problems: &'p [Problem]) -> Vec<(&'p Problem, Duration)> {
        let repeated = problems.iter().filter_map(|problem| Some((problem, problem.logged_for?)));
        let repeated: Vec<_> = repeated.collect();
        self.0.retain(|kind, _| repeated.iter().any(|(problem, _)| problem.kind == *kind));
        let mut is_due = |problem: &Problem| {
            let last = self.0.get(problem.kind);
            let due = last.is_none_or(|last| now.saturating_sub(*last) >= Repeats::INTERVAL);
            if due {
                self.0.insert(problem.kind, now);
            }
            due
        };
        repeated.into_iter().filter(|(problem, _)| is_due(problem)).collect()
    }
}

/// Logs a problem of the store that is new, or another one, and its end.
fn log_store_problem(before: &[Problem], now: &[Problem]) {
    let find = |list: &'_ [Problem]| list.iter().find(|problem| problem.is_of_store()).cloned();
    match (find(before), find(now)) {
        (Some(before), Some(now)) if before.is_like(&now) => {}
        (_, Some(now)) => {
            let (problem, severity) = (now.text.as_str(), now.severity);
            tracing::warn!(problem, %severity, "store problem");
        }
        (Some(_), None) => tracing::info!("store problem is over"),
        (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::operators::store_watch::{Counted, Severity};
    use weir_store::{StoreError, StoreStatus};

    #[test]
    fn commands_that_fail_are_an_event_unless_it_is_the_end_of_an_outage() {
        let mut observer = Observer::default();
        let mut change = |at, is_connected, fails_since: Option<Micros>| {
            let failing = fails_since.map(|since| Failing {
                severity: Severity::Critical,
                since,
                counted: Counted { reason: Some(StoreError::OutOfMemory), ..Counted::default() },
                lasts: true,
            });
            let store = StoreState { is_connected, status: StoreStatus::default() };
            let change = observer.store_change(at, &store, failing)?;
            Some((change["up"] == true, change["error"].as_str().map(str::to_owned)))
        };
        assert_eq!(change(1, true, None), None);
        let full = Some("the store has no room left".to_owned());
        assert_eq!(change(5, true, Some(2)), Some((false, full)));
        assert_eq!(change(6, true, Some(2)), None);
        assert_eq!(change(7, true, None), Some((true, None)));
        let dead = Some("the store does not answer".to_owned());
        assert_eq!(change(8, false, None), Some((false, dead)));
        assert_eq!(change(12, false, Some(8)), None);
        assert_eq!(change(13, true, Some(8)), Some((true, None)));
    }

    #[test]
    fn problems_with_the_rules_are_logged_at_first_and_each_minute() {
        let lasting = |kind, lasted| {
            let mut problem = Problem::new(kind, String::new(), None);
            problem.logged_for = Some(Duration::from_secs(lasted));
            problem
        };
        let mut repeats = Repeats::default();
        let mut due = |now, problems: &[Problem]| -> Vec<(&'static str, u64)> {
            let due = repeats.due(Duration::from_secs(now), problems);
            due.into_iter().map(|(problem, lasted)| (problem.kind, lasted.as_secs())).collect()
        };
        let both = |now| [lasting("no_rules", now), lasting("xds", now - 3)];
        assert_eq!(due(5, &[lasting("no_rules", 5)]), [("no_rules", 5)]);
        assert_eq!(due(8, &both(8)), [("xds", 5)]);
        assert_eq!((9..65).map(|now| due(now, &both(now)).len()).sum::<usize>(), 0);
        assert_eq!(due(65, &both(65)), [("no_rules", 65)]);
        assert_eq!(due(68, &both(68)), [("xds", 65)]);
        // One that ended is new when it is back.
        assert!(due(70, &[lasting("no_rules", 70)]).is_empty());
        assert_eq!(due(71, &both(71)), [("xds", 68)]);
        let others = [Problem::new("store", String::new(), None)];
        assert!(due(72, &others).is_empty());
    }
}

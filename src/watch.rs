//! Takes in rule files: once at the start, then whenever they change.
//!
//! Events only say when to look. What is there then is read whole, and goes to the loader where it
//! is not what was read before: so it does not matter which events an editor, a link's swap or a
//! file system makes of a change, or whether one change makes many.

mod places;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::loader::Loader;
use crate::rules::Problem;
use crate::rules::source::Selection;
use crate::telemetry::metrics::Metrics;
use crate::throttle::Throttle;
use places::Places;

/// After a change, how long nothing more must happen before files are read: a program that writes
/// several files, or one in several parts, is mostly done by then.
const QUIET: Duration = Duration::from_millis(100);
/// How long to wait for that: where something always changes, files are read all the same.
const NO_LONGER: Duration = Duration::from_millis(500);

/// How often each kind of failure is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How changes are found.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether changes are taken in at all.
    pub watch: bool,
    /// How often to look without being told; zero: never.
    pub poll: Duration,
}

/// Rule files and where they go.
#[derive(Debug)]
pub struct RuleFiles {
    shared: Arc<Shared>,
    options: Options,
}

#[derive(Debug)]
struct Shared {
    selection: Selection,
    loader: Arc<Loader>,
    metrics: Arc<Metrics>,
    changed: Arc<Notify>,
    load_failures: Throttle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    watcher: Option<RecommendedWatcher>,
    watch_errors: WatchErrors,
    /// Of what was last read.
    fingerprint: Option<u64>,
}

/// Decides which errors about places that cannot be watched are logged.
#[derive(Debug)]
struct WatchErrors {
    throttle: Throttle,
    /// What was logged last; empty where all places can be watched since.
    logged: String,
}

impl Default for WatchErrors {
    fn default() -> Self {
        WatchErrors { throttle: Throttle::new(LOG_INTERVAL), logged: String::new() }
    }
}

impl WatchErrors {
    /// Returns how many were suppressed where `errors` are to be logged: not those that were
    /// logged last, and not more often than the interval.
    fn pass(&mut self, errors: &str, now: Instant) -> Option<u64> {
        if errors.is_empty() {
            self.logged.clear();
        }
        if errors == self.logged {
            return None;
        }
        let suppressed = self.throttle.pass_at(now)?;
        self.logged = errors.to_owned();
        Some(suppressed)
    }
}

impl RuleFiles {
    pub fn new(
        selection: Selection,
        options: Options,
        loader: Arc<Loader>,
        metrics: Arc<Metrics>,
    ) -> RuleFiles {
        let (changed, state) = Default::default();
        let load_failures = Throttle::new(LOG_INTERVAL);
        let shared = Shared { selection, loader, metrics, changed, load_failures, state };
        RuleFiles { shared: Arc::new(shared), options }
    }

    /// Reads the files, and has them loaded where they are not what was read before.
    pub async fn take_in(&self) {
        let (shared, watch) = (self.shared.clone(), self.options.watch);
        // Reading and compiling may take long, and the runtime's threads serve.
        let done = tokio::task::spawn_blocking(move || shared.take_in(watch)).await;
        if let Err(error) = done {
            self.shared.metrics.rules_watch_error.inc();
            if let Some(suppressed) = self.shared.load_failures.pass() {
                tracing::error!(%error, suppressed, "rule files could not be loaded");
            }
        }
    }

    /// Takes in every change from now on. Ends only where changes are not wanted.
    pub async fn follow(&self) {
        if !self.options.watch {
            return;
        }
        let changed = &self.shared.changed;
        loop {
            tokio::select! {
                () = changed.notified() => until_quiet(changed).await,
                () = sleep(self.options.poll), if !self.options.poll.is_zero() => {}
            }
            self.take_in().await;
        }
    }
}

/// Waits until nothing has changed for a while, but not for ever.
async fn until_quiet(changed: &Notify) {
    let quiet = async { while timeout(QUIET, changed.notified()).await.is_ok() {} };
    let _ = timeout(NO_LONGER, quiet).await;
}

impl Shared {
    fn take_in(&self, watch: bool) {
        let mut state = self.state.lock();
        if watch {
            // First, so that no change falls between reading and watching.
            self.watch(&mut state);
        }
        let (files, problems) = self.selection.read();
        let fingerprint = fingerprint(&files, &problems);
        if state.fingerprint.replace(fingerprint) != Some(fingerprint) {
            // It tells what is wrong by itself.
            let _ = self.loader.load(files, problems);
        }
    }

    /// Watches anew: other directories may matter now, and watches are lost with directories that
    /// were replaced. The watches before stay until the new ones are there.
    fn watch(&self, state: &mut State) {
        let mut troubles = String::new();
        let mut places = Places::of(&self.selection);
        // A directory that came before its watch was there would not be seen. Where directories
        // come all the time, the next event is soon.
        for _ in 0..3 {
            match self.watch_all(&places, &mut troubles) {
                Ok(watcher) => state.watcher = Some(watcher),
                Err(error) => troubles = error.to_string(),
            }
            let now = Places::of(&self.selection);
            if now == places {
                break;
            }
            places = now;
        }
        if !troubles.is_empty() {
            self.metrics.rules_watch_error.inc();
        }
        if let Some(suppressed) = state.watch_errors.pass(&troubles, Instant::now()) {
            tracing::warn!(
                error = %troubles,
                suppressed,
                "some rule files cannot be watched: their changes are found by polling (rules.poll)"
            );
        }
    }

    /// Watches what can be watched, and tells the rest in `troubles`.
    fn watch_all(
        &self,
        places: &Places,
        troubles: &mut String,
    ) -> notify::Result<RecommendedWatcher> {
        let (changed, matter) = (self.changed.clone(), places.clone());
        let mut watcher = notify::recommended_watcher(move |event| {
            if matters(&matter, &event) {
                changed.notify_one();
            }
        })?;
        troubles.clear();
        let mut paths = notify::Watcher::paths_mut(&mut watcher);
        for directory in places.directories() {
            if let Err(error) = paths.add(directory, RecursiveMode::NonRecursive) {
                let between = if troubles.is_empty() { "" } else { "; " };
                *troubles += &format!("{between}{}: {error}", directory.display());
            }
        }
        paths.commit()?;
        Ok(watcher)
    }
}

/// Whether an event may mean other rules. Reading is none of it: it would be an answer to itself.
fn matters(places: &Places, event: &notify::Result<Event>) -> bool {
    let Ok(event) = event else { return true };
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    event.need_rescan()
        || event.paths.is_empty()
        || event.paths.iter().any(|path| places.contains(path))
}

/// Hashes files or resources and the problems found while reading them, to detect changes.
pub(crate) fn fingerprint(files: &[impl Hash], problems: &[Problem]) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    for problem in problems {
        problem.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn errors_of_watching_are_logged_when_they_are_new_and_not_too_often() {
        let (mut errors, start) = (WatchErrors::default(), std::time::Instant::now());
        let mut pass = |errors_now, at| errors.pass(errors_now, start + LOG_INTERVAL * at);
        assert_eq!([pass("a", 0), pass("a", 1), pass("", 1)], [Some(0), None, None]);
        assert_eq!(
            [pass("a", 2), pass("b", 2), pass("", 2), pass("b", 2)],
            [Some(0), None, None, None]
        );
        assert_eq!([pass("b", 3), pass("b", 4)], [Some(2), None]);
    }

    /// How long `until_quiet` waits where something changes every `every`, `times` times.
    async fn waited(every: Duration, times: u32) -> Duration {
        let changed = Arc::new(Notify::new());
        let teller = changed.clone();
        tokio::spawn(async move {
            for _ in 0..times {
                sleep(every).await;
                teller.notify_one();
            }
        });
        let start = Instant::now();
        until_quiet(&changed).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_waited_out_but_not_for_ever() {
        let ms = Duration::from_millis;
        let about = |waited: Duration, wanted| waited >= wanted && waited < wanted + ms(5);
        assert!(about(waited(ms(0), 0).await, QUIET));
        assert!(about(waited(ms(50), 3).await, ms(150) + QUIET));
        assert!(about(waited(ms(50), 1_000).await, NO_LONGER));
        // Seldom enough is quiet.
        assert!(about(waited(ms(200), 3).await, QUIET));
    }
}

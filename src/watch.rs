//! Reads rule files, or those of an overlay, at the start and whenever they change, and the lists that rules
//! name.
//!
//! File system events only trigger reading. All files are read then, and loaded if they differ from
//! those read before. So it does not matter which events, or how many, an editor, a swapped link or a
//! file system causes for a change.

mod places;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::loader::Loader;
use places::Places;
use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource};
use weir_common::threads::{check_room, run_blocking};
use weir_common::throttle::Throttle;
use weir_rules::Problem;
use weir_rules::source::{FileKind, RuleFile, Selection};

/// After a change, files are read once nothing has changed for this long: a program that writes several
/// files, or one in several parts, is usually done by then.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// The maximum wait for [`QUIET_TIME`] without a change, for files that change continuously.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The time after which files that could not be read are read again: the system may have been out of descriptors.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum interval of log lines about each kind of failure.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How changes are detected.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether changes are loaded while the service runs.
    pub watch: bool,
    /// The interval of polling; zero disables it.
    pub poll: Duration,
}

/// Loads rule files, or those of an overlay, and their changes.
#[derive(Debug)]
pub struct RuleFiles {
    shared: Arc<WatchState>,
    options: Options,
}

/// What [`RuleFiles`] reads and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Rule files, and their lists.
    Rules,
    /// The files of an overlay.
    Overlay,
    /// The lists of a management server's rules.
    Lists,
}

#[derive(Debug)]
struct WatchState {
    kind: WatchKind,
    selection: Selection,
    loader: Arc<Loader>,
    metrics: Arc<WatchMetrics>,
    changed: Arc<Notify>,
    load_failures: Throttle,
    /// Whether something could not be read.
    is_incomplete: AtomicBool,
    state: Mutex<State>,
}

/// The metrics of watching rule files.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    errors: Counter,
}

const RULES_WATCH_ERRORS: MetricFamily =
    MetricFamily::counter("rules_watch_errors", "Failures to watch or read rule files", &[]);

impl MetricSource for WatchMetrics {
    fn collect(&self, sink: &mut dyn MetricSink) {
        sink.counter(RULES_WATCH_ERRORS, self.errors.get());
    }
}

#[derive(Debug, Default)]
struct State {
    watcher: Option<RecommendedWatcher>,
    watch_errors: WatchErrors,
    /// The fingerprint of the files read last.
    fingerprint: Option<u64>,
    /// The lists that are watched.
    lists: Vec<PathBuf>,
}

impl State {
    /// Returns whether files, or the problems found while reading them, differ from those before.
    fn is_new(&mut self, files: &[RuleFile], problems: &[Problem]) -> bool {
        let fingerprint = fingerprint(files, problems);
        self.fingerprint.replace(fingerprint) != Some(fingerprint)
    }
}

/// Decides which errors of watching are logged.
#[derive(Debug)]
struct WatchErrors {
    throttle: Throttle,
    /// The errors logged last; empty once everything is watched.
    logged: String,
}

impl Default for WatchErrors {
    fn default() -> Self {
        WatchErrors { throttle: Throttle::new(LOG_INTERVAL), logged: String::new() }
    }
}

impl WatchErrors {
    /// Returns the number of suppressed lines if `errors` are to be logged: only if they differ from those
    /// logged last, and at most once per interval.
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
        kind: WatchKind,
        selection: Selection,
        options: Options,
        loader: Arc<Loader>,
        metrics: Arc<WatchMetrics>,
    ) -> RuleFiles {
        let (changed, is_incomplete, state) = Default::default();
        let load_failures = Throttle::new(LOG_INTERVAL);
        let shared = WatchState {
            kind,
            selection,
            loader,
            metrics,
            changed,
            load_failures,
            is_incomplete,
            state,
        };
        RuleFiles { shared: Arc::new(shared), options }
    }

    /// Reads the files, and loads them if they differ from those read before.
    pub async fn load(&self) {
        let (shared, watch) = (self.shared.clone(), self.options.watch);
        // Reading and compiling takes long, and the threads of the runtime serve requests.
        let done = run_blocking(move || shared.load(watch)).await;
        if let Err(error) = done {
            self.shared.is_incomplete.store(true, Ordering::Relaxed);
            self.shared.metrics.errors.inc();
            if let Some(suppressed) = self.shared.load_failures.pass() {
                tracing::error!(%error, suppressed, "rule files could not be loaded");
            }
        }
    }

    /// Loads every change. Returns only if watching is off.
    pub async fn follow(&self) {
        if !self.options.watch {
            return;
        }
        let changed = &self.shared.changed;
        loop {
            let is_incomplete = self.shared.is_incomplete.load(Ordering::Relaxed);
            let poll = match self.options.poll {
                Duration::ZERO if is_incomplete => RETRY_INTERVAL,
                poll if is_incomplete => poll.min(RETRY_INTERVAL),
                poll => poll,
            };
            tokio::select! {
                () = changed.notified() => until_quiet(changed).await,
                () = sleep(poll), if !poll.is_zero() => {}
            }
            self.load().await;
        }
    }
}

/// Waits until nothing has changed for a while, up to a maximum.
async fn until_quiet(changed: &Notify) {
    let quiet = async { while timeout(QUIET_TIME, changed.notified()).await.is_ok() {} };
    let _ = timeout(MAX_WAIT, quiet).await;
}

impl WatchState {
    fn load(&self, watch: bool) {
        let mut state = self.state.lock();
        if watch {
            // Watching starts first, so that no change is missed between reading and watching.
            self.watch(&mut state);
        }
        match self.kind {
            WatchKind::Rules => {
                let (files, problems) = self.read(FileKind::Rules);
                if state.is_new(&files, &problems) || self.loader.are_lists_changed() {
                    // The loader reports errors itself.
                    drop(self.loader.load(files, problems));
                }
            }
            WatchKind::Overlay => {
                let (files, problems) = self.read(FileKind::Overlay);
                if state.is_new(&files, &problems) {
                    self.loader.load_overlay(files, problems);
                }
            }
            WatchKind::Lists => self.loader.load_lists(),
        }
        if watch && self.list_paths() != state.lists {
            // The new rules name other lists. They may have changed before they were watched.
            self.watch(&mut state);
            if self.loader.are_lists_changed() {
                self.changed.notify_one();
            }
        }
    }

    fn read(&self, kind: FileKind) -> (Vec<RuleFile>, Vec<Problem>) {
        let (files, problems) = self.selection.read_kind(kind);
        self.is_incomplete.store(!problems.is_empty(), Ordering::Relaxed);
        (files, problems)
    }

    /// The lists to watch.
    fn list_paths(&self) -> Vec<PathBuf> {
        if self.kind == WatchKind::Overlay { Vec::new() } else { self.loader.list_paths() }
    }

    /// Renews all watches: links may lead to other directories now, and a watch is lost when its directory
    /// is replaced. The old watches stay until the new ones exist.
    fn watch(&self, state: &mut State) {
        let mut errors = String::new();
        state.lists = self.list_paths();
        let mut places = Places::of(&self.selection, &state.lists);
        // A directory created before its watch would be missed, so the places are compared again. If
        // directories keep changing, another event follows soon.
        for _ in 0..3 {
            match self.watch_all(&places, &mut errors) {
                Ok(watcher) => state.watcher = Some(watcher),
                Err(error) => errors = error.to_string(),
            }
            let now = Places::of(&self.selection, &state.lists);
            if now == places {
                break;
            }
            places = now;
        }
        if !errors.is_empty() {
            self.metrics.errors.inc();
        }
        if let Some(suppressed) = state.watch_errors.pass(&errors, Instant::now()) {
            tracing::warn!(
                error = %errors,
                suppressed,
                "some rule files cannot be watched, their changes are found by polling"
            );
        }
    }

    /// Watches all directories, and adds those that cannot be watched to `errors`.
    fn watch_all(
        &self,
        places: &Places,
        errors: &mut String,
    ) -> notify::Result<RecommendedWatcher> {
        let (changed, watched) = (self.changed.clone(), places.clone());
        // The watcher panics if it cannot start its thread.
        check_room().map_err(notify::Error::io)?;
        let mut watcher = notify::recommended_watcher(move |event| {
            if is_relevant(&watched, &event) {
                changed.notify_one();
            }
        })?;
        errors.clear();
        let mut paths = notify::Watcher::paths_mut(&mut watcher);
        for directory in places.directories() {
            if let Err(error) = paths.add(directory, RecursiveMode::NonRecursive) {
                let between = if errors.is_empty() { "" } else { "; " };
                *errors += &format!("{between}{}: {error}", directory.display());
            }
        }
        paths.commit()?;
        Ok(watcher)
    }
}

/// Whether an event may change the rules. Reading does not, and would trigger itself.
fn is_relevant(places: &Places, event: &notify::Result<Event>) -> bool {
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
    fn new_errors_of_watching_are_logged_and_throttled() {
        let (mut errors, start) = (WatchErrors::default(), std::time::Instant::now());
        let mut pass = |errors_now, at| errors.pass(errors_now, start + LOG_INTERVAL * at);
        assert_eq!([pass("a", 0), pass("a", 1), pass("", 1)], [Some(0), None, None]);
        assert_eq!(
            [pass("a", 2), pass("b", 2), pass("", 2), pass("b", 2)],
            [Some(0), None, None, None]
        );
        assert_eq!([pass("b", 3), pass("b", 4)], [Some(2), None]);
    }

    /// How long `until_quiet` waits if something changes `times` times, once per `every`.
    async fn waited(every: Duration, times: u32) -> Duration {
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        tokio::spawn(async move {
            for _ in 0..times {
                sleep(every).await;
                notify.notify_one();
            }
        });
        let start = Instant::now();
        until_quiet(&changed).await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_waited_for_until_quiet_or_the_maximum() {
        let ms = Duration::from_millis;
        let about = |waited: Duration, wanted| waited >= wanted && waited < wanted + ms(5);
        assert!(about(waited(ms(0), 0).await, QUIET_TIME));
        assert!(about(waited(ms(50), 3).await, ms(150) + QUIET_TIME));
        assert!(about(waited(ms(50), 1_000).await, MAX_WAIT));
        // Changes far apart are quiet.
        assert!(about(waited(ms(200), 3).await, QUIET_TIME));
    }
}

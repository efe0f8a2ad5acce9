//! Reads rule files, or those of an overlay (patches of rules), at the start and whenever they change; also the lists
//! that rules name (`values_file`).
//!
//! Each file is used in its last whole version, never half written: see [`files`]. File system events only trigger
//! reading: all files are read then, and loaded if they differ from those read before. So it does not matter which
//! events an editor, a swapped link or a file system causes for a change, or how many.

mod events;
mod files;
mod places;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::RecommendedWatcher;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use crate::rule_sources::loader::{Loader, NotLoaded};
use events::watch;
pub use files::QUIET_TIME;
use files::{ReadFiles, WatchedFiles};
use weir_common::bounded_work::{BoundedWork, Worked};
use weir_common::file_reads::BLOCKED_AFTER;
use weir_common::metrics::{Counter, MetricFamily, MetricSink, MetricSource};
use weir_common::threads::run_blocking;
use weir_common::throttle::Throttle;
use weir_rules::source::settled_files::Unsettled;
use weir_rules::source::{FileKind, Selection};
use weir_rules::{Problem, WatchedLists};

/// The maximum wait for [`QUIET_TIME`] without a change, for files that change continuously.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The wait before files that could not be read are read again: the system may have been out of descriptors.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Loads rule files, or those of an overlay, and their changes.
#[derive(Debug)]
pub struct RuleFiles {
    shared: Arc<WatchState>,
    poll: Duration,
}

/// What all [`RuleFiles`] share.
#[derive(Clone, Debug)]
pub struct WatchContext {
    /// The interval of polling; zero disables it.
    pub poll: Duration,
    pub loader: Arc<Loader>,
    pub metrics: Arc<WatchMetrics>,
}

/// What [`RuleFiles`] reads and watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    Rules,
    Overlay,
    /// The lists of a management server's rules.
    Lists,
}

#[derive(Debug)]
struct WatchState {
    kind: WatchKind,
    /// None where only lists are read.
    files: Option<WatchedFiles>,
    loader: Arc<Loader>,
    metrics: Arc<WatchMetrics>,
    changed: Arc<Notify>,
    load_failures: Throttle,
    progress: Mutex<Progress>,
    watches: BoundedWork<Vec<PathBuf>, (Option<RecommendedWatcher>, String)>,
    state: Mutex<FileState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    All,
    Unsettled,
}

/// What a pass leaves to do.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Something could not be read.
    is_incomplete: bool,
    /// A file may be half written.
    is_unsettled: bool,
    /// No set was loaded, since a file without any whole version may be half written.
    is_waiting: bool,
}

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
struct FileState {
    watcher: Option<RecommendedWatcher>,
    watch_errors: LoggedErrors,
    unsettled: LoggedErrors,
    fingerprint: Option<u64>,
    lists: Vec<PathBuf>,
    /// Whether a directory has not responded yet, so that changes are not noticed.
    is_unwatched: bool,
}

/// Decides which errors of watching and reading are logged.
#[derive(Debug, Default)]
struct LoggedErrors {
    throttle: Throttle,
    /// The errors logged last; empty once there are none.
    logged: String,
}

impl LoggedErrors {
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
    pub fn new(kind: WatchKind, selection: Selection, context: &WatchContext) -> RuleFiles {
        let WatchContext { poll, loader, metrics } = context.clone();
        let kind_of_files = match kind {
            WatchKind::Rules => Some(FileKind::Rules),
            WatchKind::Overlay => Some(FileKind::Overlay),
            WatchKind::Lists => None,
        };
        let files = kind_of_files.map(|kind| WatchedFiles::new(selection.clone(), kind));
        let (changed, progress, state): (Arc<Notify>, _, _) = Default::default();
        let notified = changed.clone();
        let watches = BoundedWork::new(move |lists: &Vec<PathBuf>| {
            let mut errors = String::new();
            let watcher = watch(&selection, lists, &notified, &mut errors);
            (watcher, errors)
        });
        let shared = WatchState {
            kind,
            files,
            loader,
            metrics,
            changed,
            load_failures: Throttle::default(),
            progress,
            watches,
            state,
        };
        RuleFiles { shared: Arc::new(shared), poll }
    }

    /// Reads the files, and loads them if they differ from those read before. Waits while one may be half written
    /// that has no whole version.
    pub async fn load(&self) {
        self.pass(Pass::All).await;
        while self.shared.progress.lock().is_waiting {
            self.next().await;
        }
    }

    async fn pass(&self, pass: Pass) {
        let shared = self.shared.clone();
        // Reading and compiling takes long, and the threads of the runtime serve requests.
        let done = run_blocking(move || shared.load(pass)).await;
        if let Err(error) = done {
            self.shared.progress.lock().is_incomplete = true;
            self.shared.metrics.errors.inc();
            if let Some(suppressed) = self.shared.load_failures.pass() {
                tracing::error!(%error, suppressed, "rule files could not be loaded");
            }
        }
    }

    /// Loads every change. Never returns.
    pub async fn follow(&self) {
        loop {
            self.next().await;
        }
    }

    /// Waits until files may have changed, and loads them. Files that are not settled are read in between.
    async fn next(&self) {
        let WatchState { changed, progress, .. } = &*self.shared;
        let Progress { is_incomplete, is_waiting, .. } = *progress.lock();
        let poll = match self.poll {
            Duration::ZERO if is_incomplete => RETRY_INTERVAL,
            poll if is_incomplete => poll.min(RETRY_INTERVAL),
            poll => poll,
        };
        let poll_at = tokio::time::Instant::now() + poll;
        loop {
            tokio::select! {
                () = changed.notified() => {
                    until_quiet(changed).await;
                    break;
                }
                () = sleep_until(poll_at), if !poll.is_zero() => break,
                () = sleep(QUIET_TIME), if progress.lock().is_unsettled => {}
            }
            self.pass(Pass::Unsettled).await;
            let now = *progress.lock();
            if (now.is_incomplete, now.is_waiting) != (is_incomplete, is_waiting) {
                return;
            }
        }
        self.pass(Pass::All).await;
    }
}

async fn until_quiet(changed: &Notify) {
    let quiet = async { while timeout(QUIET_TIME, changed.notified()).await.is_ok() {} };
    let _ = timeout(MAX_WAIT, quiet).await;
}

impl WatchState {
    fn load(&self, pass: Pass) {
        let mut state = self.state.lock();
        if pass == Pass::All {
            // Watching starts first, so that no change is missed between reading and watching.
            self.watch(&mut state);
        }
        let lists = self.loader.lists.watched().filter(|_| self.kind != WatchKind::Overlay);
        match pass {
            Pass::All if lists.is_some() => self.loader.lists.read(),
            Pass::All => {}
            Pass::Unsettled => lists.iter().for_each(|lists| lists.read_unsettled()),
        }
        let mut progress = *self.progress.lock();
        match &self.files {
            None => {
                self.loader.load_lists();
                progress.is_incomplete = false;
            }
            Some(files)
                if pass == Pass::All
                    || !files.are_settled()
                    || progress.is_waiting
                        && lists.is_none_or(|lists| lists.files().are_whole()) =>
            {
                self.load_files(&mut state, files.read(pass == Pass::All), &mut progress);
            }
            Some(files) if self.loader.lists.are_changed() => {
                self.load_files(&mut state, files.read(false), &mut progress);
            }
            Some(_) => {}
        }
        let lists = lists.map(WatchedLists::files);
        let of_files = self.files.as_ref();
        let are_read = of_files.is_none_or(WatchedFiles::are_read)
            && lists.is_none_or(|lists| lists.are_read());
        progress.is_incomplete |= !are_read || progress.is_waiting || state.is_unwatched;
        progress.is_unsettled = !of_files.is_none_or(WatchedFiles::are_settled)
            || !lists.is_none_or(|lists| lists.are_settled());
        *self.progress.lock() = progress;
        self.report_unsettled(&mut state);
        if self.list_paths() != state.lists {
            // The new rules name other lists. They may have changed before they were watched.
            self.watch(&mut state);
            self.changed.notify_one();
        }
    }

    /// Loads files if they differ from those before, once each has a whole version.
    fn load_files(&self, state: &mut FileState, read: Option<ReadFiles>, progress: &mut Progress) {
        let was_waiting = std::mem::replace(&mut progress.is_waiting, true);
        let Some(ReadFiles { files, problems }) = read else { return };
        progress.is_incomplete = !problems.is_empty();
        let fingerprint = fingerprint(&files, &problems);
        let is_new = state.fingerprint.replace(fingerprint) != Some(fingerprint);
        if self.kind == WatchKind::Overlay {
            if is_new {
                self.loader.load_overlay(files, problems);
            }
        } else if is_new || was_waiting || self.loader.lists.are_changed() {
            // The loader reports errors itself.
            if let Err(NotLoaded::ListsAreWritten) = self.loader.load(files, problems) {
                return;
            }
        }
        progress.is_waiting = false;
    }

    fn list_paths(&self) -> Vec<PathBuf> {
        if self.kind == WatchKind::Overlay { Vec::new() } else { self.loader.lists.paths() }
    }

    /// Reports files that keep changing, and those whose read blocks.
    fn report_unsettled(&self, state: &mut FileState) {
        let mut unsettled = self.files.as_ref().map(WatchedFiles::unsettled).unwrap_or_default();
        let reader = match self.kind {
            WatchKind::Overlay => "overlay",
            WatchKind::Rules | WatchKind::Lists => {
                let lists = self.loader.lists.watched().map(WatchedLists::files);
                unsettled
                    .extend(lists.into_iter().flat_map(|lists| lists.unsettled(Instant::now())));
                "rules"
            }
        };
        let text = |Unsettled { path, reason, .. }: &Unsettled| {
            format!("{}: {}", path.display(), reason.text())
        };
        let errors = unsettled.iter().map(text).collect::<Vec<_>>().join("; ");
        self.loader.set_unsettled(reader, unsettled);
        if let Some(suppressed) = state.unsettled.pass(&errors, Instant::now()) {
            self.metrics.errors.inc();
            tracing::warn!(
                error = %errors,
                suppressed,
                "some files are not used as they are, their last whole versions stay in use"
            );
        }
    }

    /// Renews all watches: links may lead to other directories now, and a watch is lost when its directory
    /// is replaced. The old watches stay until the new ones exist.
    fn watch(&self, state: &mut FileState) {
        state.lists = self.list_paths();
        let watches = self.watches.run(std::slice::from_ref(&state.lists), QUIET_TIME).pop();
        let Some(Worked { result, waiting }) = watches else { return };
        // A busy machine takes longer, too. The next pass, soon, watches what has changed meanwhile.
        state.is_unwatched = waiting.is_some();
        let errors = match (result, waiting) {
            (Some((watcher, errors)), _) => {
                state.watcher = watcher.or(state.watcher.take());
                errors
            }
            (None, Some(since)) if since.elapsed() < BLOCKED_AFTER => return,
            (None, _) => "a directory does not respond".to_owned(),
        };
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
}

/// Hashes files or resources and the problems found while reading them, to detect changes.
pub(crate) fn fingerprint(files: &[impl Hash], problems: &[Problem]) -> u64 {
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    BuildHasherDefault::<DefaultHasher>::default().hash_one((files, problems))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::health::Health;
    use crate::rls::service::Rules;

    #[test]
    fn new_errors_of_watching_are_logged_and_throttled() {
        let (mut errors, start) = (LoggedErrors::default(), std::time::Instant::now());
        let interval = Duration::from_secs(10);
        let mut pass = |errors_now, at| errors.pass(errors_now, start + interval * at);
        assert_eq!([pass("a", 0), pass("a", 1), pass("", 1)], [Some(0), None, None]);
        assert_eq!(
            [pass("a", 2), pass("b", 2), pass("", 2), pass("b", 2)],
            [Some(0), None, None, None]
        );
        assert_eq!([pass("b", 3), pass("b", 4)], [Some(2), None]);
    }

    /// A busy machine takes longer than a pass waits, and what it watches then may have been replaced. The changes after
    /// that must be noticed, long before the next poll.
    #[tokio::test]
    async fn directories_that_respond_late_are_watched_all_the_same() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("rules");
        let file = directory.join("shop.yaml");
        let write = |domain| std::fs::write(&file, format!("domain: {domain}\n")).unwrap();
        std::fs::create_dir(&directory).unwrap();
        write("shop");
        let health = Arc::new(Health::new(Default::default()));
        let rules = Rules::default();
        let loader = Loader::new(rules.clone(), weir_rules::RuleOptions::default(), health);
        let selection = Selection::of(&directory);
        let poll = Duration::from_secs(3_600);
        let (loader, metrics) = (Arc::new(loader), Arc::new(WatchMetrics::default()));
        let context = WatchContext { poll, loader, metrics: metrics.clone() };
        let mut files = RuleFiles::new(WatchKind::Rules, selection.clone(), &context);
        let shared = Arc::get_mut(&mut files.shared).unwrap();
        let notified = shared.changed.clone();
        let (watches, is_watched) = std::sync::mpsc::sync_channel(1);
        let (respond, responds) = std::sync::mpsc::sync_channel::<()>(0);
        let responds = Mutex::new(responds);
        shared.watches = BoundedWork::new(move |lists: &Vec<PathBuf>| {
            let mut errors = String::new();
            let watcher = watch(&selection, lists, &notified, &mut errors);
            let _ = watches.try_send(());
            // Ends also once the other end is gone.
            let _ = responds.lock().recv();
            (watcher, errors)
        });
        files.load().await;
        assert!(rules.load().is_some());
        is_watched.recv().unwrap();
        std::fs::rename(&directory, parent.path().join("old")).unwrap();
        std::fs::create_dir(&directory).unwrap();
        write("shop");
        drop(respond);
        // The pass that gets the late answer, and those until the file has settled.
        timeout(Duration::from_secs(30), files.next()).await.expect("it asks again soon");
        let _ = timeout(4 * QUIET_TIME, files.follow()).await;
        write("other");
        let changed = async {
            while rules.load_full().is_none_or(|active| active.domain("other").is_none()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = files.follow() => {}
            changed = timeout(Duration::from_secs(30), changed) => changed.expect("it is noticed"),
        }
        assert_eq!(metrics.errors.get(), 0, "a late answer is no failure");
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

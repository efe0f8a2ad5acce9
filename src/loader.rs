//! Activates rule sets. A set is compiled as a whole and swapped atomically. An invalid set leaves the
//! active one in place; its errors are logged and shown in the status until a valid set arrives.

mod changes;
mod metrics;
mod overlay;
mod rejected;
mod reload;
#[cfg(test)]
mod tests;

pub use changes::Changes;
pub use rejected::Rejected;
pub use reload::{Reload, Reloaded};

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast;

use crate::health::Health;
use crate::service::Rules;
use metrics::LoadMetrics;
use overlay::OverlayState;
use reload::MAX_WAITING;
use weir_common::throttle::Throttle;
use weir_rules::source::RuleFile;
use weir_rules::xds::{self, Resource};
use weir_rules::{
    Document, ListFile, Loaded, Options, Problem, Problems, RuleSet, Severity, compare, truncate,
};

/// The minimum interval of long log lines that a management server, or a file that is rewritten
/// continuously, can repeat.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The errors of a rejection within that interval, in bytes.
const MAX_REPEATED_BYTES: usize = 300;

/// Compiles and activates the rules of every source.
#[derive(Debug)]
pub struct Loader {
    rules: Rules,
    options: Options,
    health: Arc<Health>,
    metrics: LoadMetrics,
    /// Held while a set is loaded: its counters come from the set that it replaces.
    loading: Mutex<()>,
    status: Mutex<LoadStatus>,
    /// The overlay; none if no setting names one.
    overlay: Option<OverlayState>,
    /// What the active rules were compiled from, if they are compiled again without a new set: for an
    /// overlay, and for lists of a management server's rules.
    present: Mutex<Option<Present>>,
    /// The lists of the newest files, or of the active rules of a management server, as they were read.
    lists: Mutex<Vec<ListFile>>,
    /// The state of the source, for the status.
    source: Mutex<serde_json::Value>,
    reloads: broadcast::Sender<Reload>,
    rejected_line: LogLine,
    warnings_line: LogLine,
}

/// The kind of source that a set comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateSource {
    Files,
    ManagementServer,
    /// The active rules, with another overlay.
    PresentFiles,
    /// The active rules, with another overlay or other lists.
    PresentResources,
}

impl UpdateSource {
    /// Whether the set is that of the active rules.
    fn is_present(self) -> bool {
        matches!(self, UpdateSource::PresentFiles | UpdateSource::PresentResources)
    }
}

/// What the active rules were compiled from.
#[derive(Debug)]
enum Present {
    Files(Vec<RuleFile>),
    Resources(Vec<Resource>),
}

/// The errors of a set that is rejected.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The listed errors in full, and the number of the others.
    pub problems: String,
    /// The number of errors.
    pub errors: usize,
}

/// Throttles long texts about rule sets. Files change rarely, so each new text is
/// logged; a management server may send sets continuously, so its sets are always throttled.
#[derive(Debug)]
struct LogLine {
    throttle: Throttle,
    hasher: RandomState,
    last: Mutex<Option<u64>>,
}

impl Default for LogLine {
    fn default() -> LogLine {
        let throttle = Throttle::new(LOG_INTERVAL);
        LogLine { throttle, hasher: RandomState::new(), last: Mutex::default() }
    }
}

impl LogLine {
    /// Returns whether to log now, as [`Throttle::pass`].
    fn pass(&self, source: UpdateSource, text: &str) -> Option<u64> {
        let hash = self.hasher.hash_one(text);
        let repeats = self.last.lock().replace(hash) == Some(hash);
        match source == UpdateSource::ManagementServer || repeats {
            true => self.throttle.pass(),
            false => Some(0),
        }
    }

    /// Returns the errors of a rejection to log now. Every rejection is logged, but the text is cut if it
    /// would be suppressed.
    fn errors<'t>(&self, source: UpdateSource, text: &'t str) -> Cow<'t, str> {
        if self.pass(source, text).is_some() {
            return text.into();
        }
        let mut start = text.to_owned();
        truncate(&mut start, MAX_REPEATED_BYTES);
        start.into()
    }
}

/// The active set, and the errors of a newer one.
#[derive(Clone, Debug, Default)]
struct LoadStatus {
    /// When the active rules were loaded, and their numbers.
    loaded: Option<(SystemTime, Summary)>,
    /// What the active rules changed; none for the first rules.
    changes: Option<Changes>,
    /// The newest set, if it was rejected.
    newest: Option<RejectedSet>,
    /// The active rules with the newest overlay and lists, if these were rejected.
    present: Option<RejectedSet>,
    /// The errors of the last set that was rejected.
    last_error: Option<Errors>,
}

/// When a set was rejected, and its errors in full.
type Errors = (SystemTime, Arc<str>);

/// A set that is rejected now.
#[derive(Clone, Debug)]
struct RejectedSet {
    shown: Rejected,
    errors: Errors,
}

impl LoadStatus {
    /// Returns what is rejected now: once, if both sets have the same error.
    fn rejected(&self) -> impl Iterator<Item = &RejectedSet> {
        let newest = self.newest.as_ref();
        let is_other = |set: &&RejectedSet| newest.is_none_or(|it| !it.shown.is_like(&set.shown));
        newest.into_iter().chain(self.present.as_ref().filter(is_other))
    }
}

/// The numbers of files, domains and rules of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub files: usize,
    pub domains: usize,
    pub rules: usize,
}

/// Waits until no request uses a set, then frees it. Many rules take milliseconds to free, which would
/// delay requests on a serving thread.
fn free_unused(set: Option<Arc<RuleSet>>) {
    let Some(mut set) = set else { return };
    // A request takes milliseconds at most. One that takes longer frees the set itself.
    for _ in 0..100 {
        match Arc::try_unwrap(set) {
            Ok(set) => return drop(set),
            Err(used) => set = used,
        }
        #[expect(clippy::disallowed_methods, reason = "the loading thread serves no requests")]
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Loader {
    pub fn new(rules: Rules, options: Options, health: Arc<Health>) -> Loader {
        let (metrics, loading, status) = Default::default();
        let (rejected_line, warnings_line) = Default::default();
        Loader {
            rules,
            options,
            health,
            metrics,
            loading,
            status,
            overlay: None,
            present: Mutex::default(),
            lists: Mutex::default(),
            source: Mutex::new(json!({ "kind": "files" })),
            reloads: broadcast::Sender::new(MAX_WAITING),
            rejected_line,
            warnings_line,
        }
    }

    /// Creates a list for the problems of a set, with the limit of the settings.
    pub fn new_problems(&self) -> Problems {
        Problems::new(self.options.max_problems)
    }

    /// Sets the state of the source, which [`status`](Self::status) includes.
    pub fn set_source(&self, source: serde_json::Value) {
        *self.source.lock() = source;
    }

    /// Whether any rules are active.
    pub fn has_rules(&self) -> bool {
        self.rules.load().is_some()
    }

    /// Compiles and activates files. Counters of the active rules are carried over. `found` are the
    /// problems found while reading the files.
    ///
    /// # Errors
    /// A problem is an error. The active rules stay.
    pub fn load(&self, files: Vec<RuleFile>, found: Vec<Problem>) -> Result<Summary, Rejection> {
        let mut problems = self.new_problems();
        problems.of_files(found);
        let _loading = self.loading.lock();
        self.load_from(UpdateSource::Files, files, problems, Loaded::render_errors, Present::Files)
    }

    /// Compiles and activates resources of a management server, as [`load`](Self::load) does files.
    ///
    /// # Errors
    /// A problem is an error; it is located by the path of its field. The active rules stay.
    pub fn load_resources(
        &self,
        resources: Vec<Resource>,
        problems: Problems,
    ) -> Result<Summary, Rejection> {
        let _loading = self.loading.lock();
        let (source, render) = (UpdateSource::ManagementServer, xds::render_errors);
        self.load_from(source, resources, problems, render, Present::Resources)
    }

    /// Compiles and activates a set, while `loading` is held.
    fn load_from<D: Document>(
        &self,
        source: UpdateSource,
        files: Vec<D>,
        problems: Problems,
        render_errors: fn(&Loaded<D>) -> String,
        present: fn(Vec<D>) -> Present,
    ) -> Result<Summary, Rejection> {
        let previous = self.rules.load_full();
        let overlay = self.overlay.as_ref().and_then(OverlayState::active);
        let (options, overlay) = (&self.options, overlay.as_ref());
        let loaded =
            Loaded::compile_patched(files, problems, options, overlay, previous.as_deref());
        self.log_warnings(source, &loaded);
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        let is_good = loaded.is_good();
        let are_newest = match source {
            UpdateSource::Files | UpdateSource::PresentResources => true,
            // A management server's set that is rejected is not read again: the lists of the active one count.
            UpdateSource::ManagementServer => is_good,
            // Files that are rejected are, when one of their lists changes.
            UpdateSource::PresentFiles => self.status.lock().newest.is_none(),
        };
        if are_newest {
            self.lists.lock().clone_from(&loaded.lists);
        }
        if !is_good {
            let problems = render_errors(&loaded);
            let errors = loaded.count(Severity::Error);
            let shown = self.rejected_line.errors(source, &problems);
            let message = match previous {
                Some(_) => "new rules are rejected, the previous ones stay active",
                None => "rules are rejected, every request gets an error until they are fixed",
            };
            tracing::error!(errors, problems = %shown, "{message}");
            self.metrics.error.inc();
            self.metrics.newest_rejected.set(1);
            let mut status = self.status.lock();
            let first = loaded.listed(Severity::Error).next();
            let slot = if source.is_present() { &mut status.present } else { &mut status.newest };
            let before = slot.as_ref().map(|before| &before.shown);
            let shown = Rejected::new(message, first, errors, before, now);
            let all: Errors = (now, problems.as_str().into());
            *slot = Some(RejectedSet { shown, errors: all.clone() });
            status.last_error = Some(all);
            if source == UpdateSource::Files {
                // They were read with the newest overlay and lists.
                status.present = None;
            }
            drop(status);
            self.announce(Reloaded::Rules, Err(&problems));
            if source.is_present() {
                *self.present.lock() = Some(present(loaded.files));
            }
            return Err(Rejection { problems, errors });
        }
        let summary = Summary {
            files: loaded.files.len(),
            domains: loaded.rules.domains(),
            rules: loaded.rules.rules().count(),
        };
        drop(previous);
        let has_lists = !loaded.lists.is_empty();
        let is_kept = self.overlay.is_some() || has_lists && source != UpdateSource::Files;
        *self.present.lock() = is_kept.then(|| present(loaded.files));
        if let Some(state) = &self.overlay {
            state.applied(source, overlay, loaded.overlay);
        }
        let active = Arc::new(loaded.rules);
        let before = self.rules.set_rules(active.clone());
        // The new rules decide already; many rules take tens of milliseconds to compare.
        let changes = before.as_ref().map(|before| Changes::from(&compare(before, &active)));
        let mut status = self.status.lock();
        (status.loaded, status.present) = (Some((now, summary)), None);
        if !source.is_present() {
            status.newest = None;
        }
        self.metrics.newest_rejected.set(status.newest.is_some().into());
        status.changes = changes.clone();
        drop(status);
        self.metrics.success.inc();
        self.health.rules_loaded(summary.domains);
        let text = changes.as_ref().map(ToString::to_string);
        self.announce(Reloaded::Rules, Ok((summary, changes)));
        let Summary { files, domains, rules } = summary;
        tracing::info!(files, domains, rules, changes = text.as_deref(), "rules are loaded");
        free_unused(before);
        Ok(summary)
    }

    /// Compiles the active rules again, with the overlay and the lists as they are now, while `loading` is
    /// held. Does nothing if none are active.
    fn load_present(&self) -> Result<(), Rejection> {
        let Some(present) = self.present.lock().take() else { return Ok(()) };
        let problems = self.new_problems();
        let loaded = match present {
            Present::Files(files) => {
                let (source, render) = (UpdateSource::PresentFiles, Loaded::render_errors);
                self.load_from(source, files, problems, render, Present::Files)
            }
            Present::Resources(resources) => {
                let (source, render) = (UpdateSource::PresentResources, xds::render_errors);
                self.load_from(source, resources, problems, render, Present::Resources)
            }
        };
        loaded.map(drop)
    }

    /// Returns the paths of the lists to watch.
    pub fn list_paths(&self) -> Vec<PathBuf> {
        self.lists.lock().iter().map(|list| list.path.clone()).collect()
    }

    /// Reads the lists again, and returns whether one has changed since it was loaded.
    pub fn are_lists_changed(&self) -> bool {
        let lists = self.lists.lock().clone();
        lists.iter().any(|list| list.is_changed(&self.options.lists))
    }

    /// Loads the active rules of a management server again, if one of their lists has changed.
    pub fn load_lists(&self) {
        let _loading = self.loading.lock();
        if self.are_lists_changed() {
            // Errors are reported.
            let _ = self.load_present();
        }
    }

    fn log_warnings<D: Document>(&self, source: UpdateSource, loaded: &Loaded<D>) {
        let warnings: Vec<&Problem> = loaded.listed(Severity::Warning).collect();
        if warnings.is_empty() {
            return;
        }
        let text: String = warnings.iter().map(ToString::to_string).collect();
        let Some(suppressed) = self.warnings_line.pass(source, &text) else { return };
        for (location, Problem { message: warning, help, .. }) in
            D::locate(&loaded.files, &warnings)
        {
            tracing::warn!(%location, %warning, %help, "rules have a warning");
        }
        let omitted = loaded.omitted.warnings;
        if omitted > 0 || suppressed > 0 {
            tracing::warn!(omitted, suppressed, "more warnings about rules are not logged");
        }
    }

    /// Returns what is rejected now: the newest rules, the active ones with newer lists or a newer overlay, and
    /// the newest overlay.
    pub fn rejected(&self) -> impl Iterator<Item = Rejected> {
        let rules: Vec<Rejected> =
            self.status.lock().rejected().map(|set| set.shown.clone()).collect();
        rules.into_iter().chain(self.overlay.as_ref().and_then(OverlayState::rejected))
    }

    /// The status as JSON, for the debug listener.
    pub fn status(&self) -> serde_json::Value {
        let status = self.status.lock().clone();
        let age = |then: SystemTime| then.elapsed().unwrap_or_default().as_secs();
        let shown = |(when, problems): &Errors| json!({ "seconds_ago": age(*when), "problems": &**problems });
        let refused = status.rejected().map(|set| &set.errors).max_by_key(|(when, _)| *when);
        json!({
            "serving": self.health.is_serving(),
            "source": *self.source.lock(),
            "rules": status.loaded.map(|(when, summary)| json!({
                "loaded_seconds_ago": age(when),
                "files": summary.files,
                "domains": summary.domains,
                "rules": summary.rules,
                "changes": status.changes,
            })),
            "overlay": self.overlay.as_ref().map(|overlay| overlay.status(age)),
            "refused": refused.map(shown),
            "last_error": status.last_error.as_ref().map(shown),
        })
    }
}

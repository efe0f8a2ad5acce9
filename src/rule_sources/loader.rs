//! Activates rule sets. A set is compiled as a whole and swapped atomically. An invalid set leaves the
//! active one in place; its errors are logged and shown in the status until a valid set arrives.

mod changes;
mod lists;
mod metrics;
mod overlay;
mod reload;
#[cfg(test)]
mod tests;

pub use changes::Changes;
pub use reload::{Rejected, Reload, Reloaded};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Notify, broadcast};

use crate::health::Health;
use crate::rls::service::Rules;
use lists::ListsOfSets;
use metrics::LoadMetrics;
use overlay::OverlayState;
use reload::MAX_WAITING;
use weir_common::throttle::Throttle;
use weir_rules::source::RuleFile;
use weir_rules::source::settled_files::Unsettled;
use weir_rules::xds::Resource;
use weir_rules::{
    Document, Loaded, Options, Problem, Problems, RuleSet, Severity, compare, truncated,
};

/// The errors of a rejection within the interval of long log lines, in bytes.
const MAX_REPEATED_BYTES: usize = 300;

#[derive(Debug)]
pub struct Loader {
    rules: Rules,
    options: Options,
    health: Arc<Health>,
    metrics: LoadMetrics,
    /// Held while a set is loaded: its counters come from the set that it replaces.
    loading: Mutex<()>,
    status: Mutex<LoadStatus>,
    overlay: Option<OverlayState>,
    /// What the active rules were compiled from, if they are compiled again without a new set: for an
    /// overlay, and for lists of a management server's rules.
    present: Mutex<Option<Present>>,
    lists: Mutex<ListsOfSets>,
    /// The newest set of a management server, if it is rejected and has lists: other lists may make it valid.
    rejected: Mutex<Option<Vec<Resource>>>,
    /// Notified when the rejected set was loaded after all.
    loaded_late: Notify,
    /// Files whose newest versions are not used, by who reads them.
    unsettled: Mutex<BTreeMap<&'static str, Vec<Unsettled>>>,
    source: Mutex<serde_json::Value>,
    lost: Mutex<Option<StreamLost>>,
    reloads: broadcast::Sender<Reload>,
    loaded_line: LogLine,
    rejected_line: LogLine,
    warnings_line: LogLine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateSource {
    Files,
    ManagementServer,
    /// The active rules, with another overlay or other lists.
    Present,
}

#[derive(Debug)]
enum Present {
    Files(Vec<RuleFile>),
    Resources(Vec<Resource>),
}

/// There is no stream from the management server.
#[derive(Clone, Debug)]
pub struct StreamLost {
    pub since: Instant,
    /// Why the last attempt failed.
    pub reason: String,
}

#[derive(Debug)]
pub enum NotLoaded {
    /// A list that files name may be half written. They are to be loaded again when all are whole.
    ListsAreWritten,
    Rejected(Rejection),
}

#[derive(Clone, Debug)]
pub struct Rejection {
    /// The listed errors in full, and the number of the others.
    pub problems: String,
    pub errors: usize,
}

/// Throttles long texts about rule sets. Files change rarely, so each new text is
/// logged; a management server may send sets continuously, so its sets are always throttled.
#[derive(Debug, Default)]
struct LogLine {
    throttle: Throttle,
    hasher: RandomState,
    last: Mutex<Option<u64>>,
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

    /// Returns the errors of a rejection to log now, and the number of lines suppressed before. Every rejection of
    /// files is logged, but the text is cut if it would be suppressed.
    fn errors<'t>(&self, source: UpdateSource, text: &'t str) -> Option<(Cow<'t, str>, u64)> {
        match self.pass(source, text) {
            Some(suppressed) => Some((text.into(), suppressed)),
            None if source == UpdateSource::ManagementServer => None,
            None => Some((truncated(text, MAX_REPEATED_BYTES).into(), 0)),
        }
    }
}

/// The active set, and the errors of a newer one.
#[derive(Clone, Debug, Default)]
struct LoadStatus {
    /// When the active rules were loaded, and their numbers.
    loaded: Option<(SystemTime, Summary)>,
    /// The warnings about the active rules, in full.
    warnings: Arc<str>,
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

#[derive(Clone, Debug)]
struct RejectedSet {
    shown: Rejected,
    errors: Errors,
}

impl LoadStatus {
    /// Returns what is rejected now: once, if both sets have the same error.
    fn rejected(&self) -> impl Iterator<Item = &RejectedSet> {
        let newest = self.newest.as_ref();
        let is_other =
            |set: &&RejectedSet| newest.is_none_or(|newest| !newest.shown.is_like(&set.shown));
        newest.into_iter().chain(self.present.as_ref().filter(is_other))
    }
}

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
        Loader {
            rules,
            options,
            health,
            metrics: LoadMetrics::default(),
            loading: Mutex::default(),
            status: Mutex::default(),
            overlay: None,
            present: Mutex::default(),
            lists: Mutex::default(),
            rejected: Mutex::default(),
            loaded_late: Notify::new(),
            unsettled: Mutex::default(),
            source: Mutex::new(json!({ "kind": "files" })),
            lost: Mutex::default(),
            reloads: broadcast::Sender::new(MAX_WAITING),
            loaded_line: LogLine::default(),
            rejected_line: LogLine::default(),
            warnings_line: LogLine::default(),
        }
    }

    pub fn new_problems(&self) -> Problems {
        Problems::new(self.options.max_problems)
    }

    /// Sets the state of the source, which [`status`](Self::status) includes, and whether there is no stream from it.
    pub fn set_source(&self, source: serde_json::Value, lost: Option<StreamLost>) {
        *self.source.lock() = source;
        *self.lost.lock() = lost;
    }

    /// Returns since when there is no stream from the management server, if rules come from one.
    pub fn stream_lost(&self) -> Option<StreamLost> {
        self.lost.lock().clone()
    }

    pub fn has_rules(&self) -> bool {
        self.rules.load().is_some()
    }

    /// Compiles and activates files. Counters of the active rules are carried over. `found` are the
    /// problems found while reading the files. The active rules stay if one of all problems is an error, or a list may
    /// be half written.
    pub fn load(&self, files: Vec<RuleFile>, found: Vec<Problem>) -> Result<Summary, NotLoaded> {
        let mut problems = self.new_problems();
        problems.of_files(found);
        let _loading = self.loading.lock();
        self.load_from(UpdateSource::Files, files, problems, Present::Files)
    }

    /// Compiles and activates resources of a management server, as [`load`](Self::load) does files. Problems are located
    /// by the path of their field. A set that is rejected is loaded once its lists allow it.
    pub fn load_resources(
        &self,
        resources: Vec<Resource>,
        problems: Problems,
    ) -> Result<Summary, Rejection> {
        self.read_settled_lists();
        let _loading = self.loading.lock();
        self.load_new_resources(resources, problems)
    }

    /// Loads a set of a management server, while `loading` is held.
    fn load_new_resources(
        &self,
        resources: Vec<Resource>,
        problems: Problems,
    ) -> Result<Summary, Rejection> {
        let source = UpdateSource::ManagementServer;
        let loaded = self.load_from(source, resources, problems, Present::Resources);
        loaded.map_err(|error| match error {
            NotLoaded::Rejected(rejection) => rejection,
            // Only of files: its server waits for an answer, so that such a set is rejected until then.
            NotLoaded::ListsAreWritten => Rejection { problems: String::new(), errors: 0 },
        })
    }

    /// Compiles and activates a set, while `loading` is held.
    fn load_from<D: Document>(
        &self,
        source: UpdateSource,
        files: Vec<D>,
        problems: Problems,
        present: fn(Vec<D>) -> Present,
    ) -> Result<Summary, NotLoaded> {
        let can_be_good = !problems.has_errors();
        let previous = self.rules.load_full();
        let overlay = self.overlay.as_ref().and_then(OverlayState::active);
        let options = Options { overlay, ..self.options.clone() };
        let loaded = Loaded::compile(files, problems, &options, previous.as_deref());
        if source == UpdateSource::Files && loaded.has_unsettled_lists() {
            return Err(NotLoaded::ListsAreWritten);
        }
        self.log_warnings(source, &loaded);
        #[expect(clippy::disallowed_methods, reason = "only shown in the status")]
        let now = SystemTime::now();
        let is_good = loaded.is_good();
        if !is_good {
            let problems = loaded.render_errors();
            let errors = loaded.count(Severity::Error);
            let message = match previous {
                Some(_) => "new rules are rejected, the previous ones stay active",
                None => "rules are rejected, every request gets an error until they are fixed",
            };
            match self.rejected_line.errors(source, &problems) {
                Some((problems, suppressed)) => {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::error!(errors, %problems, suppressed, "{message}");
                }
                None => tracing::debug!(errors, %problems, "{message}"),
            }
            let may_become_good = can_be_good && !loaded.lists.is_empty();
            self.set_lists(source, loaded.lists.clone(), is_good);
            self.metrics.error.inc();
            self.metrics.newest_rejected.set(1);
            let mut status = self.status.lock();
            let first = loaded.listed(Severity::Error).next();
            let is_present = source == UpdateSource::Present;
            let slot = if is_present { &mut status.present } else { &mut status.newest };
            let before = slot.as_ref().map(|before| &before.shown);
            let shown = Rejected::new(message, first, errors, now, before);
            let all: Errors = (now, problems.as_str().into());
            *slot = Some(RejectedSet { shown, errors: all.clone() });
            status.last_error = Some(all);
            if source == UpdateSource::Files {
                // They were read with the newest overlay and lists.
                status.present = None;
            }
            drop(status);
            self.health.rules_rejected();
            self.announce(Reloaded::Rules, Err(&problems));
            let set = present(loaded.files);
            if is_present {
                *self.present.lock() = Some(set);
            } else if let Present::Resources(resources) = set {
                *self.rejected.lock() = may_become_good.then_some(resources);
            }
            return Err(NotLoaded::Rejected(Rejection { problems, errors }));
        }
        let summary = Summary {
            files: loaded.files.len(),
            domains: loaded.rules.domains(),
            rules: loaded.rules.rules().count(),
        };
        drop(previous);
        let has_lists = !loaded.lists.is_empty();
        let warnings = loaded.render(loaded.listed(Severity::Warning));
        self.set_lists(source, loaded.lists, is_good);
        let is_kept = self.overlay.is_some() || has_lists && source != UpdateSource::Files;
        *self.present.lock() = is_kept.then(|| present(loaded.files));
        if let Some(state) = &self.overlay {
            state.applied(source, options.overlay.as_ref(), loaded.overlay);
        }
        let active = Arc::new(loaded.rules);
        let before = self.rules.set_rules(active.clone());
        // The new rules decide already; many rules take tens of milliseconds to compare.
        let changes = before.as_ref().map(|before| Changes::from(&compare(before, &active)));
        let mut status = self.status.lock();
        (status.loaded, status.present) = (Some((now, summary)), None);
        status.warnings = warnings.into();
        if source != UpdateSource::Present {
            status.newest = None;
            *self.rejected.lock() = None;
        }
        self.metrics.newest_rejected.set(status.newest.is_some().into());
        status.changes = changes.clone();
        drop(status);
        self.metrics.success.inc();
        self.log_loaded(source, summary, changes.as_ref());
        self.health.rules_loaded(summary.domains);
        self.announce(Reloaded::Rules, Ok((summary, changes)));
        free_unused(before);
        Ok(summary)
    }

    fn log_loaded(&self, source: UpdateSource, summary: Summary, changes: Option<&Changes>) {
        let Summary { files, domains, rules } = summary;
        let is_unchanged = changes.is_some_and(|changes| changes.list.is_empty());
        let text = changes.map(ToString::to_string);
        let changes = text.as_deref();
        let is_news = source == UpdateSource::Files || !is_unchanged;
        let passed = is_news.then(|| self.loaded_line.pass(source, changes.unwrap_or_default()));
        match passed.flatten() {
            Some(suppressed) => {
                let suppressed = (suppressed > 0).then_some(suppressed);
                tracing::info!(files, domains, rules, changes, suppressed, "rules are loaded");
            }
            None => tracing::debug!(files, domains, rules, changes, "rules are loaded"),
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
                "warnings": &*status.warnings,
                "changes": status.changes,
            })),
            "overlay": self.overlay.as_ref().map(|overlay| overlay.status(age)),
            "refused": refused.map(shown),
            "last_error": status.last_error.as_ref().map(shown),
        })
    }
}

//! Compiles and activates rule sets (all rules of all domains), from files or a management server. A set is swapped
//! atomically. An invalid set leaves the active one in place; its errors are logged and shown until one is valid.

mod lists;
mod log;
mod metrics;
mod overlay;
mod reload;
#[cfg(test)]
mod tests;

pub use reload::{Rejected, Reload, Reloaded, Summary};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, broadcast};

use crate::health::Health;
use crate::rls::service::Rules;
use lists::ListsOfSets;
use log::{LoadLog, UpdateSource};
use metrics::LoadMetrics;
use overlay::OverlayState;
use reload::{Changes, Errors, LoadStatus, MAX_WAITING, RejectedSet, announce};
use weir_common::metrics::{MetricSink, MetricSource};
use weir_common::threads::free_unused;
use weir_rules::source::RuleFile;
use weir_rules::source::settled_files::Unsettled;
use weir_rules::xds::Resource;
use weir_rules::{Document, Loaded, Problem, Problems, RuleOptions, Severity, compare};

#[derive(Debug)]
pub struct Loader {
    rules: Rules,
    options: RuleOptions,
    health: Arc<Health>,
    metrics: LoadMetrics,
    /// Held while a set is loaded: its counters come from the set that it replaces.
    loading: Mutex<()>,
    status: Mutex<LoadStatus>,
    overlay: Option<OverlayState>,
    /// What the active rules were compiled from, if they are compiled again without a new set: for an
    /// overlay, and for lists of a management server's rules.
    present: Mutex<Option<Present>>,
    pub lists: ListsOfSets,
    /// The newest set of a management server, if it is rejected and has lists: other lists may make it valid.
    rejected: Mutex<Option<Vec<Resource>>>,
    /// Notified when the rejected set was loaded after all.
    loaded_late: Notify,
    /// Files whose newest versions are not used, by who reads them.
    unsettled: Mutex<BTreeMap<&'static str, Vec<Unsettled>>>,
    source: Mutex<(serde_json::Value, Option<StreamLost>)>,
    reloads: broadcast::Sender<Reload>,
    log: LoadLog,
}

#[derive(Debug)]
enum Present {
    Files(Vec<RuleFile>),
    Resources(Vec<Resource>),
}

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

impl Loader {
    pub fn new(rules: Rules, options: RuleOptions, health: Arc<Health>) -> Loader {
        Loader {
            rules,
            health,
            metrics: LoadMetrics::default(),
            loading: Mutex::default(),
            status: Mutex::default(),
            overlay: None,
            present: Mutex::default(),
            lists: ListsOfSets::new(options.watched_lists.clone()),
            options,
            rejected: Mutex::default(),
            loaded_late: Notify::new(),
            unsettled: Mutex::default(),
            source: Mutex::new((json!({ "kind": "files" }), None)),
            reloads: broadcast::Sender::new(MAX_WAITING),
            log: LoadLog::default(),
        }
    }

    pub fn new_problems(&self) -> Problems {
        Problems::new(self.options.max_problems)
    }

    /// Sets the state of the source, which [`status`](Self::status) includes, and whether there is no stream from it.
    pub fn set_source(&self, source: serde_json::Value, lost: Option<StreamLost>) {
        *self.source.lock() = (source, lost);
    }

    /// Returns since when there is no stream from the management server, if rules come from one.
    pub fn stream_lost(&self) -> Option<StreamLost> {
        self.source.lock().1.clone()
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
        self.lists.read_settled();
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

    /// Loads the rules of a management server again whose lists have changed: its newest set, if it is rejected, and
    /// the active one.
    pub fn load_lists(&self) {
        let _loading = self.loading.lock();
        if self.lists.is_rejected_changed() {
            let rejected = self.rejected.lock().take();
            let loaded = rejected.map(|set| self.load_new_resources(set, self.new_problems()));
            if let Some(Ok(_)) = loaded {
                self.loaded_late.notify_one();
                return;
            }
        }
        if self.lists.is_active_changed() {
            // Errors are reported.
            let _ = self.load_present();
        }
    }

    /// Lets an overlay patch the rules. Call it before any are loaded.
    pub fn expect_overlay(&mut self) {
        self.overlay = Some(OverlayState::default());
    }

    /// Validates overlay files and applies them to the active rules and all later ones. `found` are the
    /// problems found while reading the files. An invalid overlay is reported, and the active one stays. If the
    /// active rules cannot be compiled again, because of their lists, the overlay is applied to the next ones.
    pub fn load_overlay(&self, files: Vec<RuleFile>, found: Vec<Problem>) {
        let Some(overlay) = &self.overlay else { return };
        let _loading = self.loading.lock();
        match overlay.load(files, found, &self.options) {
            Err(problems) => announce(&self.reloads, Reloaded::Overlay, Err(&problems)),
            // Only after that: the overlay in the status is one that decides requests. Errors are reported.
            Ok(()) if self.load_present().is_ok() => overlay.activate(),
            Ok(()) => {}
        }
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
        let options = RuleOptions { overlay, ..self.options.clone() };
        let loaded = Loaded::compile(files, problems, &options, previous.as_deref());
        if source == UpdateSource::Files && loaded.has_unsettled_lists() {
            return Err(NotLoaded::ListsAreWritten);
        }
        self.log.warnings(source, &loaded);
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
            self.log.rejected(source, message, errors, &problems);
            let may_become_good = can_be_good && !loaded.lists.is_empty();
            self.lists.set(source, loaded.lists.clone(), is_good);
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
            announce(&self.reloads, Reloaded::Rules, Err(&problems));
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
        self.lists.set(source, loaded.lists, is_good);
        let is_kept = self.overlay.is_some() || has_lists && source != UpdateSource::Files;
        *self.present.lock() = is_kept.then(|| present(loaded.files));
        if let Some(state) = &self.overlay {
            state.applied(source, options.overlay.as_ref(), loaded.overlay);
        }
        let active = Arc::new(loaded.rules);
        let before = self.rules.set_rules(active.clone());
        // The new rules decide already; many rules take tens of milliseconds to compare.
        let changes =
            before.as_ref().map(|before| Changes::from(&compare(before.rules(), &active)));
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
        self.log.loaded(source, summary, changes.as_ref());
        self.health.rules_loaded(summary.domains);
        announce(&self.reloads, Reloaded::Rules, Ok((summary, changes)));
        if let Some(before) = before {
            let rules = before.rules().clone();
            // Snapshots from before the last change of controls may have the same rules.
            if free_unused(before) {
                free_unused(rules);
            }
        }
        Ok(summary)
    }

    /// Returns whether the newest set of a management server is rejected, and would be again: its lists are the same.
    pub fn is_still_rejected(&self) -> bool {
        self.lists.read_settled();
        self.is_newest_rejected() && !self.lists.is_rejected_changed()
    }

    pub fn is_newest_rejected(&self) -> bool {
        self.status.lock().newest.is_some()
    }

    /// Waits until a set of a management server is loaded that was rejected.
    pub fn loaded_late(&self) -> Notified<'_> {
        self.loaded_late.notified()
    }

    /// Compiles the active rules, if there are any, with the newest overlay and lists, while `loading` is held.
    fn load_present(&self) -> Result<(), NotLoaded> {
        let Some(present) = self.present.lock().take() else { return Ok(()) };
        let (source, problems) = (UpdateSource::Present, self.new_problems());
        let loaded = match present {
            Present::Files(files) => self.load_from(source, files, problems, Present::Files),
            Present::Resources(set) => self.load_from(source, set, problems, Present::Resources),
        };
        loaded.map(drop)
    }

    /// Notes which of the files that `reader` reads are not used in their newest versions.
    pub fn set_unsettled(&self, reader: &'static str, files: Vec<Unsettled>) {
        self.unsettled.lock().insert(reader, files);
    }

    /// Returns the files whose newest versions have not been usable for long.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        self.unsettled.lock().values().flatten().cloned().collect()
    }

    pub fn watch(&self) -> broadcast::Receiver<Reload> {
        self.reloads.subscribe()
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
            "source": self.source.lock().0,
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

impl MetricSource for Loader {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.metrics.collect(sink);
        if let Some(overlay) = &self.overlay {
            overlay.metrics.collect(sink);
        }
    }
}

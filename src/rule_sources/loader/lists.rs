//! The lists of the active rules and of rejected ones, which are read and watched.

use std::path::PathBuf;

use tokio::sync::futures::Notified;

use super::{Loader, NotLoaded, Present, UpdateSource};
use weir_rules::source::settled_files::Unsettled;
use weir_rules::{ListFile, WatchedLists};

/// The lists of sets of rules, as they were read.
#[derive(Debug, Default)]
pub(super) struct ListsOfSets {
    active: Vec<ListFile>,
    /// The lists of the newest set, if it is rejected.
    rejected: Option<Vec<ListFile>>,
}

impl ListsOfSets {
    fn all(&self) -> impl Iterator<Item = &ListFile> {
        self.active.iter().chain(self.rejected.iter().flatten())
    }
}

impl Loader {
    pub(super) fn set_lists(&self, source: UpdateSource, lists: Vec<ListFile>, is_good: bool) {
        let mut known = self.lists.lock();
        let is_present = source == UpdateSource::Present;
        match is_good || is_present {
            true => known.active = lists,
            false => known.rejected = Some(lists),
        }
        if is_good && !is_present {
            known.rejected = None;
        }
        if let Some(watched) = &self.options.watched_lists {
            watched.files().retain(|path| known.all().any(|list| list.path == path));
        }
    }

    pub fn list_paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            self.lists.lock().all().map(|list| list.path.clone()).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Reads the lists again. A set has the last whole version of each.
    pub fn read_lists(&self) {
        if let Some(watched) = &self.options.watched_lists {
            watched.read(&self.list_paths());
        }
    }

    /// Reads the lists again as [`read_lists`](Self::read_lists) does, and waits once if one may be half written:
    /// nothing else does if watching is off.
    pub(super) fn read_settled_lists(&self) {
        if let Some(watched) = &self.options.watched_lists {
            watched.read_settled(&self.list_paths());
        }
    }

    pub fn watched_lists(&self) -> Option<&WatchedLists> {
        self.options.watched_lists.as_deref()
    }

    /// Returns whether one of the lists of the newest files has changed since they were loaded or rejected.
    pub fn are_lists_changed(&self) -> bool {
        let lists = self.lists.lock();
        self.is_any_changed(lists.rejected.as_ref().unwrap_or(&lists.active))
    }

    fn is_any_changed(&self, lists: &[ListFile]) -> bool {
        let watched = self.options.watched_lists.as_ref();
        watched.is_some_and(|watched| lists.iter().any(|list| watched.is_changed(list)))
    }

    /// Loads the rules of a management server again whose lists have changed: its newest set, if it is rejected, and
    /// the active one.
    pub fn load_lists(&self) {
        let _loading = self.loading.lock();
        if self.is_rejected_changed() {
            let rejected = self.rejected.lock().take();
            let loaded = rejected.map(|set| self.load_new_resources(set, self.new_problems()));
            if let Some(Ok(_)) = loaded {
                self.loaded_late.notify_one();
                return;
            }
        }
        let is_changed = self.is_any_changed(&self.lists.lock().active);
        if is_changed {
            // Errors are reported.
            let _ = self.load_present();
        }
    }

    fn is_rejected_changed(&self) -> bool {
        self.lists.lock().rejected.as_ref().is_some_and(|lists| self.is_any_changed(lists))
    }

    /// Returns whether the newest set of a management server is rejected, and would be again: its lists are the same.
    pub fn is_still_rejected(&self) -> bool {
        self.read_settled_lists();
        self.is_newest_rejected() && !self.is_rejected_changed()
    }

    pub fn is_newest_rejected(&self) -> bool {
        self.status.lock().newest.is_some()
    }

    /// Waits until a set of a management server is loaded that was rejected.
    pub fn loaded_late(&self) -> Notified<'_> {
        self.loaded_late.notified()
    }

    /// Compiles the active rules, if there are any, with the newest overlay and lists, while `loading` is held.
    pub(super) fn load_present(&self) -> Result<(), NotLoaded> {
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
}

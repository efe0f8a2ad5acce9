//! The lists (files of values that rules name by `values_file`) of the active rules and of a rejected set: which to
//! read and watch, and whether one has changed.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::log::UpdateSource;
use weir_rules::{ListFile, WatchedLists};

/// The lists that the active rules and the newest rejected set name.
#[derive(Debug)]
pub struct ListsOfSets {
    watched: Option<Arc<WatchedLists>>,
    known: Mutex<KnownLists>,
}

#[derive(Debug, Default)]
struct KnownLists {
    active: Vec<ListFile>,
    /// The lists of the newest set, if it is rejected.
    rejected: Option<Vec<ListFile>>,
}

impl KnownLists {
    fn all(&self) -> impl Iterator<Item = &ListFile> {
        self.active.iter().chain(self.rejected.iter().flatten())
    }
}

impl ListsOfSets {
    pub(super) fn new(watched: Option<Arc<WatchedLists>>) -> ListsOfSets {
        ListsOfSets { watched, known: Mutex::default() }
    }

    pub(super) fn set(&self, source: UpdateSource, lists: Vec<ListFile>, is_good: bool) {
        let mut known = self.known.lock();
        let is_present = source == UpdateSource::Present;
        match is_good || is_present {
            true => known.active = lists,
            false => known.rejected = Some(lists),
        }
        if is_good && !is_present {
            known.rejected = None;
        }
        if let Some(watched) = &self.watched {
            watched.files().retain(|path| known.all().any(|list| list.path == path));
        }
    }

    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            self.known.lock().all().map(|list| list.path.clone()).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Reads the lists again. A set has the last whole version of each.
    pub fn read(&self) {
        if let Some(watched) = &self.watched {
            watched.read(&self.paths());
        }
    }

    /// Reads the lists again as [`read`](Self::read) does, and waits once if one may be half written: nothing else
    /// does if watching is off.
    pub(super) fn read_settled(&self) {
        if let Some(watched) = &self.watched {
            watched.read_settled(&self.paths());
        }
    }

    pub fn watched(&self) -> Option<&WatchedLists> {
        self.watched.as_deref()
    }

    /// Returns whether one of the lists of the newest files has changed since they were loaded or rejected.
    pub fn are_changed(&self) -> bool {
        let known = self.known.lock();
        self.is_any_changed(known.rejected.as_ref().unwrap_or(&known.active))
    }

    fn is_any_changed(&self, lists: &[ListFile]) -> bool {
        let watched = self.watched.as_ref();
        watched.is_some_and(|watched| lists.iter().any(|list| watched.is_changed(list)))
    }

    pub(super) fn is_active_changed(&self) -> bool {
        self.is_any_changed(&self.known.lock().active)
    }

    pub(super) fn is_rejected_changed(&self) -> bool {
        self.known.lock().rejected.as_ref().is_some_and(|lists| self.is_any_changed(lists))
    }
}

//! The lists of a service, each in its last whole version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::MAX_FILE_BYTES;
use super::{ListContent, ListFile};
use weir_common::settled_files::SettledFiles;

/// Lists that are read again and again. A set of rules has the last whole version of each.
#[derive(Debug)]
pub struct WatchedLists {
    files: SettledFiles<ListContent>,
    settle_time: Duration,
}

impl WatchedLists {
    /// Lists, which are used once they have not changed for `settle_time`.
    pub fn new(settle_time: Duration) -> WatchedLists {
        WatchedLists { files: SettledFiles::new(MAX_FILE_BYTES, settle_time), settle_time }
    }

    /// Reads lists again.
    pub fn read(&self, paths: &[PathBuf]) {
        self.files.read(paths, ListContent::of);
    }

    /// Reads the lists again whose newest versions may be half written.
    pub fn read_unsettled(&self) {
        self.files.read_unsettled(ListContent::of);
    }

    /// Returns whether the whole version is another one than a set has.
    pub fn is_changed(&self, list: &ListFile) -> bool {
        self.files.whole(&list.path).is_some_and(|(hash, _)| Some(hash) != list.hash)
    }

    /// Reads lists again, and waits once if one may be half written.
    pub fn read_settled(&self, paths: &[PathBuf]) {
        self.read(paths);
        if !self.files.are_settled() {
            #[expect(clippy::disallowed_methods, reason = "the loading thread serves no requests")]
            std::thread::sleep(self.settle_time);
            self.read_unsettled();
        }
    }

    /// Returns the whole version of a list and its fingerprint; none if there is none yet. Reads one that is new.
    pub(super) fn content(&self, path: &Path) -> Option<(u64, ListContent)> {
        if self.files.is_new(path) {
            self.read_settled(&[path.to_owned()]);
        }
        self.files.whole(path)
    }

    /// Returns the files of the lists.
    pub fn files(&self) -> &SettledFiles<impl Clone> {
        &self.files
    }
}

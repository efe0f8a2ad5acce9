//! Reads the rule files, each in its last version that was not half written. A root (a path that the settings name)
//! that does not respond keeps the files that it had.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use weir_common::bounded_work::BoundedWork;
use weir_common::file_reads::{BLOCKED_AFTER, blocked};
use weir_rules::Problem;
use weir_rules::source::settled_files::{SettledFiles, Unsettled, UnsettledReason};
use weir_rules::source::{FileKind, FoundFiles, MAX_FILE_BYTES, RuleFile, Selection};

/// After a change, files are read once nothing has changed for this long: a program that writes several
/// files, or one in several parts, is usually done by then.
pub const QUIET_TIME: Duration = Duration::from_millis(100);

/// The files of one kind (rules or an overlay) at the selected paths.
#[derive(Debug)]
pub struct WatchedFiles {
    selection: Selection,
    searches: BoundedWork<PathBuf, FoundFiles>,
    /// What each root had when it was last searched, and since when a newer search is waited for.
    roots: Mutex<BTreeMap<PathBuf, Root>>,
    files: SettledFiles<Result<RuleFile, Problem>>,
}

#[derive(Debug, Default)]
struct Root {
    found: Option<FoundFiles>,
    searching: Option<Instant>,
}

#[derive(Debug)]
pub struct ReadFiles {
    pub files: Vec<RuleFile>,
    pub problems: Vec<Problem>,
}

impl WatchedFiles {
    pub fn new(selection: Selection, kind: FileKind) -> WatchedFiles {
        let files = SettledFiles::new(MAX_FILE_BYTES, QUIET_TIME);
        let of_searches = selection.clone();
        let searches = BoundedWork::new(move |root: &PathBuf| of_searches.find(root, kind));
        WatchedFiles { selection, searches, roots: Mutex::default(), files }
    }

    /// Reads all files, or those that are not settled. None if one has no whole version yet.
    pub fn read(&self, all: bool) -> Option<ReadFiles> {
        let make = |path: &Path, read| self.selection.rule_file(path, read);
        if all {
            self.search();
        }
        let FoundFiles { files, mut problems, .. } = self.found()?;
        let paths: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
        match all {
            true => {
                let found: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
                self.files.retain(|path| found.contains(path));
                self.files.read(&paths, make);
            }
            false => self.files.read_unsettled(make),
        }
        let mut read = Vec::new();
        for path in &paths {
            match self.files.whole(path)?.1 {
                Ok(file) => read.push(file),
                Err(problem) => problems.push(problem),
            }
        }
        Some(ReadFiles { files: read, problems })
    }

    fn search(&self) {
        let searched = self.searches.run(&self.selection.roots, QUIET_TIME);
        let mut roots = self.roots.lock();
        for (root, searched) in self.selection.roots.iter().zip(searched) {
            let known = roots.entry(root.clone()).or_default();
            known.found = searched.result.or(known.found.take());
            known.searching = searched.waiting;
        }
    }

    /// Returns the files of all roots; none if one has not been searched yet.
    fn found(&self) -> Option<FoundFiles> {
        let roots = self.roots.lock();
        let mut all = FoundFiles::default();
        for path in &self.selection.roots {
            let root = roots.get(path)?;
            match (&root.found, root.searching) {
                (Some(found), _) => all.add(found.clone()),
                (None, Some(since)) if since.elapsed() >= BLOCKED_AFTER => {
                    all.problems.extend(self.selection.rule_file(path, Err(blocked())).err());
                }
                (None, _) => return None,
            }
        }
        Some(all)
    }

    /// Returns whether no file may be half written.
    pub fn are_settled(&self) -> bool {
        self.files.are_settled()
    }

    pub fn are_read(&self) -> bool {
        self.files.are_read() && self.roots.lock().values().all(|root| root.searching.is_none())
    }

    /// Returns the roots and files whose newest versions have not been usable for long.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        let now = Instant::now();
        let roots = self.roots.lock();
        let blocked = roots.iter().filter_map(|(path, root)| {
            let since =
                root.searching.filter(|since| now.duration_since(*since) >= BLOCKED_AFTER)?;
            Some(Unsettled { path: path.clone(), reason: UnsettledReason::Blocked, since })
        });
        blocked.chain(self.files.unsettled(now)).collect()
    }
}

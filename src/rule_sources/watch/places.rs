//! The directories to watch, and the names in them that may change the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use weir_rules::source::Selection;

/// The maximum number of links in a path, as in Linux.
const MAX_LINKS: usize = 40;

/// Directories to watch, with the names that matter in each. Files are not watched themselves, because a
/// rename would replace them unnoticed. Paths contain no links, so that the paths of events match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<PathBuf, Names>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    Some(BTreeSet<OsString>),
}

impl Places {
    pub fn of(selection: &Selection, lists: &[PathBuf]) -> Places {
        let mut places = Places::default();
        for list in lists {
            if let Ok(list) = std::path::absolute(list) {
                places.follow(&list);
            }
        }
        for root in &selection.roots {
            let Ok(root) = std::path::absolute(root) else { continue };
            if let Some(real) = places.follow(&root) {
                places.search(real, selection.ignore_dot_files);
            }
        }
        places
    }

    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path)
    }

    /// Whether an event at `path` may change the rules.
    pub fn contains(&self, path: &Path) -> bool {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return false };
        match self.0.get(directory) {
            None => false,
            Some(Names::All) => true,
            Some(Names::Some(names)) => names.contains(name),
        }
    }

    fn add(&mut self, directory: &Path, name: &OsStr) {
        let none = || Names::Some(BTreeSet::new());
        if let Names::Some(names) = self.0.entry(directory.to_owned()).or_insert_with(none) {
            names.insert(name.to_owned());
        }
    }

    /// Adds every name that resolving `path` looks up, because each may change: a link that is swapped, a
    /// directory that is replaced, a file that does not exist yet. Returns the resolved path, if it exists.
    fn follow(&mut self, path: &Path) -> Option<PathBuf> {
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
        };
        let mut real = PathBuf::new();
        let mut ahead = parts(path);
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            match part.to_str() {
                Some(".") => continue,
                Some("..") => {
                    real.pop();
                    continue;
                }
                Some("/") => {
                    real = part.into();
                    continue;
                }
                _ => self.add(&real, &part),
            }
            let next = real.join(part);
            if fs::symlink_metadata(&next).ok()?.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                ahead.extend(parts(&fs::read_link(&next).ok()?));
            } else {
                real = next;
            }
        }
        Some(real)
    }

    fn search(&mut self, real: PathBuf, ignore_dot_files: bool) {
        if !real.is_dir() || self.0.insert(real.clone(), Names::All) == Some(Names::All) {
            return;
        }
        // Reading the rules reports directories that cannot be read.
        let Ok(entries) = fs::read_dir(&real) else { return };
        for entry in entries.flatten() {
            if ignore_dot_files && entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                if let Some(target) = self.follow(&entry.path()) {
                    self.search(target, ignore_dot_files);
                }
            } else if kind.is_dir() {
                self.search(entry.path(), ignore_dot_files);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn places(root: PathBuf) -> Places {
        Places::of(&selection(root), &[])
    }

    fn selection(root: PathBuf) -> Selection {
        Selection::of(root)
    }

    #[test]
    fn lists_beside_a_rule_file_are_watched() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("..v1")).unwrap();
        fs::write(dir.join("..v1/blocked.txt"), "").unwrap();
        symlink("..v1", dir.join("..data")).unwrap();
        symlink("..data/blocked.txt", dir.join("blocked.txt")).unwrap();
        let lists = ["blocked.txt", "deep/missing.txt"].map(|name| dir.join(name));
        let places = Places::of(&selection(dir.join("rules.yaml")), &lists);
        for watched in ["rules.yaml", "blocked.txt", "..data", "..v1/blocked.txt", "deep"] {
            assert!(places.contains(&dir.join(watched)), "{watched}");
        }
        assert!(!places.contains(&dir.join("other.txt")));
    }

    #[test]
    fn every_name_in_the_path_is_watched_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("v1/rules/deep")).unwrap();
        symlink("v1", dir.join("current")).unwrap();
        let places = places(dir.join("current/rules"));
        for watched in ["", "current", "v1", "v1/rules", "v1/rules/a", "v1/rules/deep/a"] {
            assert!(places.contains(&dir.join(watched)), "{watched}");
        }
        for other in ["v2", "v1/other", "current/rules"] {
            assert!(!places.contains(&dir.join(other)), "{other}");
        }
    }

    #[test]
    fn links_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("rules/..v1")).unwrap();
        fs::create_dir_all(dir.join("elsewhere")).unwrap();
        fs::write(dir.join("rules/..v1/a.yaml"), "").unwrap();
        for (target, link) in [
            ("..v1", "rules/..data"),
            ("..data/a.yaml", "rules/a.yaml"),
            ("../elsewhere/b.yaml", "rules/b.yaml"),
            ("loop.yaml", "rules/loop.yaml"),
            (".", "rules/self"),
        ] {
            symlink(target, dir.join(link)).unwrap();
        }
        let places = places(dir.join("rules"));
        for watched in ["rules/..data", "rules/..v1/a.yaml", "elsewhere/b.yaml"] {
            assert!(places.contains(&dir.join(watched)), "{watched}");
        }
        for other in ["rules/..v1/b.yaml", "elsewhere/a.yaml"] {
            assert!(!places.contains(&dir.join(other)), "{other}");
        }
    }

    #[test]
    fn missing_files_are_watched_for() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let places = places(dir.join("a/b/rules.yaml"));
        assert!(places.contains(&dir.join("a")));
        assert!(!places.contains(&dir.join("b")));
    }
}

//! Reads the files that a service watches (rules, overlays, lists of values) again and again, and keeps the last whole
//! version of each. A file that is written in place is used once it has not changed for a while.
//! A file whose read blocks keeps its last whole version.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use weir_common::bounded_work::Worked;
use weir_common::file_reads::{BLOCKED_AFTER, FileReads, blocked};
use weir_common::regular::FileContent;

/// How long a file may change before that is reported.
const CHANGING_AFTER: Duration = Duration::from_secs(10);

/// A file unchanged for this long, by a clock that may be off on file servers, is whole when it can first be read.
const OLD: Duration = Duration::from_secs(2);

/// How long to wait for reads if none ends, as on a file server that hangs. A later call takes their results.
const READ_WAIT: Duration = Duration::from_millis(100);

/// The last whole version of each file, made into a `T`.
#[derive(Debug)]
pub struct SettledFiles<T> {
    settle_time: Duration,
    reads: FileReads,
    files: Mutex<HashMap<PathBuf, SettledFile<T>>>,
}

#[derive(Debug)]
struct SettledFile<T> {
    whole: Option<(Version, T)>,
    /// A version that differs from the whole one: it may be half written.
    newer: Option<Newer>,
    /// Since when a newer read is pending.
    reading: Option<Instant>,
}

#[derive(Debug)]
struct Newer {
    version: Version,
    same_since: Instant,
    changing_since: Instant,
}

/// What tells two versions of a file apart. Reads at times that are far enough apart have the same one only if
/// nothing changed between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    /// The hash of the metadata of a file that can be read.
    metadata: u64,
    /// The hash of the bytes, or of the error.
    content: u64,
}

/// A file whose newest version is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The path.
    pub path: PathBuf,
    /// Why its newest version is not used.
    pub reason: UnsettledReason,
    /// Since when.
    pub since: Instant,
}

weir_common::named_enum! {
    /// Why the newest version is not used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum UnsettledReason, text {
        /// It may be half written.
        Changing = "the file keeps changing",
        /// Its bytes do not come.
        Blocked = "reading the file does not end",
    }
}

impl<T: Clone> SettledFiles<T> {
    /// Files of up to `max_bytes` each, which are used once they have not changed for `settle_time`.
    pub fn new(max_bytes: u64, settle_time: Duration) -> SettledFiles<T> {
        SettledFiles { settle_time, reads: FileReads::new(max_bytes), files: Mutex::default() }
    }

    /// Reads files, and makes a `T` of each new whole version, or of the error.
    pub fn read(&self, paths: &[PathBuf], make: impl Fn(&Path, io::Result<Vec<u8>>) -> T) {
        let read = self.reads.read_all(paths, READ_WAIT);
        self.update(paths, read, Instant::now(), make);
    }

    fn update(
        &self,
        paths: &[PathBuf],
        read: Vec<Worked<io::Result<FileContent>>>,
        now: Instant,
        make: impl Fn(&Path, io::Result<Vec<u8>>) -> T,
    ) {
        let mut files = self.files.lock();
        for (path, read) in paths.iter().zip(read) {
            let new = || SettledFile { whole: None, newer: None, reading: None };
            let file = files.entry(path.clone()).or_insert_with(new);
            file.reading = read.waiting;
            if let Some(read) = read.result {
                file.update(read, now, self.settle_time, |bytes| make(path, bytes));
            } else if file.whole.is_none() && file.is_blocked(now) {
                let error = blocked();
                file.whole = Some((Version::of(&Err(&error)), make(path, Err(error))));
            }
        }
    }

    /// Reads the files again whose newest versions may be half written.
    pub fn read_unsettled(&self, make: impl Fn(&Path, io::Result<Vec<u8>>) -> T) {
        let files = self.files.lock();
        let open = files.iter().filter(|(_, file)| !file.is_settled());
        let open: Vec<PathBuf> = open.map(|(path, _)| path.clone()).collect();
        drop(files);
        self.read(&open, make);
    }

    /// Returns the last whole version of a file, and the hash of its content; none before there is one.
    pub fn whole(&self, path: &Path) -> Option<(u64, T)> {
        let files = self.files.lock();
        let (version, whole) = files.get(path)?.whole.as_ref()?;
        Some((version.content, whole.clone()))
    }

    /// Returns whether a file was never read.
    pub fn is_new(&self, path: &Path) -> bool {
        !self.files.lock().contains_key(path)
    }

    /// Returns whether no file may be half written, and none is still read that may not be blocked.
    pub fn are_settled(&self) -> bool {
        self.files.lock().values().all(SettledFile::is_settled)
    }

    /// Returns whether no read is waited for.
    pub fn are_read(&self) -> bool {
        self.files.lock().values().all(|file| file.reading.is_none())
    }

    /// Returns whether each file has a whole version.
    pub fn are_whole(&self) -> bool {
        self.files.lock().values().all(|file| file.whole.is_some())
    }

    /// Forgets all other files.
    pub fn retain(&self, is_kept: impl Fn(&Path) -> bool) {
        self.files.lock().retain(|path, _| is_kept(path));
    }

    /// Returns the files whose newest version has not been usable for long.
    pub fn unsettled(&self, now: Instant) -> Vec<Unsettled> {
        let files = self.files.lock();
        let mut unsettled: Vec<Unsettled> =
            files.iter().filter_map(|(path, file)| file.unsettled(path, now)).collect();
        unsettled.sort_by(|a, b| a.path.cmp(&b.path));
        unsettled
    }
}

impl<T> SettledFile<T> {
    fn update(
        &mut self,
        read: io::Result<FileContent>,
        now: Instant,
        settle_time: Duration,
        make: impl FnOnce(io::Result<Vec<u8>>) -> T,
    ) {
        let version = Version::of(&read.as_ref());
        let known = self.whole.as_ref().map(|(version, _)| *version);
        if known == Some(version) {
            self.newer = None;
            return;
        }
        // Threads may stop between reading a file and the clock: what counts is when its metadata was read.
        let (asked, answered) = read.as_ref().map_or((now, now), |read| read.times);
        let (same_since, changing_since) = match &self.newer {
            Some(newer) if newer.version == version => (newer.same_since, newer.changing_since),
            Some(newer) => (answered, newer.changing_since),
            None => (answered, now),
        };
        let had_nothing = known.is_none_or(|version| version.metadata == 0);
        let is_old = had_nothing && read.as_ref().is_ok_and(|read| is_old(&read.metadata));
        if !is_old && asked.saturating_duration_since(same_since) < settle_time {
            self.newer = Some(Newer { version, same_since, changing_since });
            return;
        }
        self.newer = None;
        match &mut self.whole {
            Some((whole, _)) if whole.content == version.content => *whole = version,
            whole => *whole = Some((version, make(read.map(|read| read.bytes)))),
        }
    }

    fn is_settled(&self) -> bool {
        self.newer.is_none() && (self.reading.is_none() || self.is_blocked(Instant::now()))
    }

    fn is_blocked(&self, now: Instant) -> bool {
        self.reading.is_some_and(|since| now.saturating_duration_since(since) >= BLOCKED_AFTER)
    }

    fn unsettled(&self, path: &Path, now: Instant) -> Option<Unsettled> {
        let blocked = self.reading.filter(|_| self.is_blocked(now));
        let changing = self.newer.as_ref().map(|newer| newer.changing_since);
        let changing =
            changing.filter(|since| now.saturating_duration_since(*since) >= CHANGING_AFTER);
        let (reason, since) = match (blocked, changing) {
            (Some(since), _) => (UnsettledReason::Blocked, since),
            (None, since) => (UnsettledReason::Changing, since?),
        };
        Some(Unsettled { path: path.to_owned(), reason, since })
    }
}

impl Version {
    fn of(read: &Result<&FileContent, &io::Error>) -> Version {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        match read {
            Ok(FileContent { bytes, metadata, .. }) => {
                let changed = (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime());
                let file = (metadata.ctime_nsec(), metadata.dev(), metadata.ino(), metadata.len());
                Version {
                    metadata: hasher.hash_one((changed, file)),
                    content: hasher.hash_one(bytes),
                }
            }
            Err(error) => {
                Version { metadata: 0, content: hasher.hash_one((false, error.to_string())) }
            }
        }
    }
}

/// Returns whether a file has not changed for some time before it was read, nor since.
fn is_old(metadata: &Metadata) -> bool {
    #[expect(clippy::disallowed_methods, reason = "compared with the times of files")]
    let now = SystemTime::now();
    let changed = Duration::from_secs(metadata.ctime().max(metadata.mtime()).unsigned_abs());
    now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|now| now > changed + OLD)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;
    use weir_common::regular;

    const SETTLE_TIME: Duration = Duration::from_millis(100);

    /// A list in a file, and the times at which it is read.
    struct Watched {
        directory: tempfile::TempDir,
        files: SettledFiles<String>,
        now: Instant,
        changes: u64,
    }

    impl Watched {
        fn new() -> Watched {
            let directory = tempfile::tempdir().unwrap();
            let files = SettledFiles::new(1 << 20, SETTLE_TIME);
            Watched { directory, files, now: Instant::now(), changes: 0 }
        }

        fn paths(&self) -> [PathBuf; 1] {
            [self.directory.path().join("list")]
        }

        /// Writes the file in place, each time at another time.
        fn write(&mut self, text: &str) {
            fs::write(&self.paths()[0], text).unwrap();
            self.changes += 1;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.changes);
            File::options().write(true).open(&self.paths()[0]).unwrap().set_modified(time).unwrap();
        }

        /// Returns the whole version after this time.
        fn after(&mut self, millis: u64) -> Option<String> {
            self.now += Duration::from_millis(millis);
            let times = (self.now, self.now);
            let read = |path: &Path| {
                regular::read(path, 1 << 20).map(|read| FileContent { times, ..read })
            };
            let read = self.paths().map(|path| Worked { result: Some(read(&path)), waiting: None });
            self.files.update(&self.paths(), read.into(), self.now, |_, read| match read {
                Ok(bytes) => String::from_utf8(bytes).unwrap(),
                Err(error) => error.kind().to_string(),
            });
            self.files.whole(&self.paths()[0]).map(|(_, whole)| whole)
        }
    }

    #[test]
    fn a_file_that_is_written_in_place_is_used_once_it_has_not_changed_for_a_while() {
        let mut list = Watched::new();
        list.write("1\n");
        assert_eq!(list.after(0), None);
        list.write("1\n2\n");
        assert_eq!(list.after(99), None);
        assert_eq!(list.after(99), None);
        assert_eq!(list.after(1).as_deref(), Some("1\n2\n"));
        for lines in 0..100 {
            list.write(&"3\n".repeat(lines));
            assert_eq!(list.after(90).as_deref(), Some("1\n2\n"));
        }
        assert_eq!(list.after(100).as_deref(), Some(&*"3\n".repeat(99)));
    }

    #[test]
    fn a_file_that_is_rewritten_with_the_same_text_is_never_empty() {
        let mut list = Watched::new();
        list.write("1\n");
        list.after(0);
        assert_eq!(list.after(100).as_deref(), Some("1\n"));
        for _ in 0..102 {
            list.write("1\n");
            list.write("");
            // It is read while it is empty, each time.
            assert_eq!(list.after(100).as_deref(), Some("1\n"));
        }
        let [changing] = &list.files.unsettled(list.now)[..] else { panic!() };
        assert_eq!(changing.reason, UnsettledReason::Changing);
        list.after(100);
        assert_eq!(
            (list.after(100).as_deref(), list.files.unsettled(list.now)),
            (Some(""), vec![])
        );
    }

    #[test]
    fn a_change_of_ten_seconds_is_reported_and_a_missing_file_is_one_too() {
        let mut list = Watched::new();
        assert_eq!(list.after(0), None);
        assert_eq!(list.after(100).as_deref(), Some("entity not found"));
        list.write("0");
        for change in 1..100 {
            list.after(100);
            list.write(&change.to_string());
        }
        assert_eq!(list.files.unsettled(list.now), []);
        list.after(100);
        list.write("x");
        list.after(100);
        assert_eq!(list.files.unsettled(list.now).len(), 1);
        assert!(!list.files.are_settled());
        assert_eq!(list.after(100).as_deref(), Some("x"));
        assert!(list.files.are_settled());
    }

    #[test]
    fn a_file_that_has_not_changed_for_seconds_is_whole_at_once() {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let files = SettledFiles::new(u64::MAX, SETTLE_TIME);
        files.read(std::slice::from_ref(&path), |_, read| read.unwrap().len());
        assert!(files.whole(&path).is_some_and(|(_, length)| length > 100));
    }

    #[test]
    fn a_file_whose_read_blocks_keeps_what_it_had_and_is_reported() {
        let mut list = Watched::new();
        list.write("1");
        list.after(0);
        list.after(100);
        let started = list.now;
        let other = list.directory.path().join("other");
        let block = |seconds| {
            let now = started + Duration::from_secs(seconds);
            let paths = [list.paths()[0].clone(), other.clone()];
            let read = [0; 2].map(|_| Worked { result: None, waiting: Some(started) });
            list.files.update(&paths, read.into(), now, |_, read| read.unwrap_err().to_string());
            let whole = paths.map(|path| list.files.whole(&path).map(|(_, whole)| whole));
            (whole, list.files.unsettled(now).len())
        };
        assert_eq!(block(4), ([Some("1".to_owned()), None], 0));
        let error = "reading it does not end".to_owned();
        assert_eq!(block(5), ([Some("1".to_owned()), Some(error)], 2));
        assert_eq!(list.after(6_000).as_deref(), Some("1"));
        assert_eq!(list.files.unsettled(list.now).len(), 1);
    }
}

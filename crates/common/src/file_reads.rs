//! Reads rules, certificates and secrets again while the service runs. A file whose read does not end, as on a network
//! mount whose server is gone, delays no other, and is reported.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::bounded_work::{BoundedWork, Worked};
use crate::regular::{self, FileContent};

/// How long a read may take before it is reported.
pub const BLOCKED_AFTER: Duration = Duration::from_secs(5);

/// How long a read may take after one that did not end.
const SHORT: Duration = Duration::from_millis(100);

/// A file by its path and its identity (device and inode): a new file in place of one that blocks is read.
type Identity = (PathBuf, Option<(u64, u64)>);

/// Reads files that may block.
#[derive(Debug)]
pub struct FileReads {
    identities: BoundedWork<PathBuf, Option<(u64, u64)>>,
    reads: BoundedWork<Identity, io::Result<FileContent>>,
    is_blocked: AtomicBool,
}

impl FileReads {
    /// Reads files up to one byte beyond `max_bytes`, so that a longer one can be told.
    pub fn new(max_bytes: u64) -> FileReads {
        let identity = |path: &PathBuf| {
            fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
        };
        FileReads {
            identities: BoundedWork::new(identity),
            reads: BoundedWork::new(move |(path, _): &Identity| regular::read(path, max_bytes)),
            is_blocked: AtomicBool::new(false),
        }
    }

    /// Reads regular files, and waits until all are read or none ends for `wait`. Returns for each, in their order,
    /// what is known.
    pub fn read_all(
        &self,
        paths: &[PathBuf],
        wait: Duration,
    ) -> Vec<Worked<io::Result<FileContent>>> {
        let identities = self.identities.run(paths, wait);
        let known = paths.iter().zip(&identities);
        let known = known.filter_map(|(path, identity)| Some((path.clone(), identity.result?)));
        let known: Vec<Identity> = known.collect();
        let mut read = self.reads.run(&known, wait).into_iter();
        let mut next = |identity: Worked<_>| match identity.result {
            Some(_) => read.next(),
            None => Some(Worked { result: None, waiting: identity.waiting }),
        };
        identities.into_iter().filter_map(&mut next).collect()
    }

    /// Reads a regular file; an error if reading it does not end.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let wait = if self.is_blocked.load(Ordering::Relaxed) { SHORT } else { BLOCKED_AFTER };
        let read = self.read_all(&[path.to_owned()], wait).pop();
        let is_blocked = matches!(
            read, Some(Worked { result: None, waiting: Some(since) }) if since.elapsed() >= wait
        );
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
        match read.and_then(|read| read.result) {
            Some(read) => Ok(read?.bytes),
            None if is_blocked => Err(blocked()),
            None => Err(io::Error::other("the system has no room for a thread")),
        }
    }
}

/// The error of a file whose read does not end.
pub fn blocked() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "reading it does not end")
}

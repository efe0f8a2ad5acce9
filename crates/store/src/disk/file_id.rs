//! Names of the disk store's logs and snapshots, and a check that no other program has removed or replaced them.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weir_common::named_enum;

named_enum! {
    /// The kinds of files that contain records of keys, in the order in which files of one number are read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum DiskFileKind, name {
        Snapshot = "snap",
        Log = "log",
    }
}

/// Identifies a snapshot or a log, `snap.N` or `log.N`. The order is that in which files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    pub number: u64,
    pub kind: DiskFileKind,
}

impl FileId {
    pub fn snapshot(number: u64) -> FileId {
        FileId { number, kind: DiskFileKind::Snapshot }
    }

    pub fn log(number: u64) -> FileId {
        FileId { number, kind: DiskFileKind::Log }
    }

    pub fn name(self) -> String {
        format!("{}.{}", self.kind.name(), self.number)
    }

    pub fn unfinished_name(self) -> String {
        format!("{}.tmp", self.name())
    }

    pub fn of_name(name: &str) -> Option<FileId> {
        let (kind, number) = name.split_once('.')?;
        let kind = DiskFileKind::ALL.into_iter().find(|known| known.name() == kind)?;
        let file = FileId { number: number.parse().ok()?, kind };
        (file.name() == name).then_some(file)
    }
}

/// What a path has to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    /// The length; none while the file is written, and for a directory.
    length: Option<u64>,
}

impl FileIdentity {
    pub fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino(), length: None }
    }

    pub fn with_length(self, bytes: u64) -> FileIdentity {
        FileIdentity { length: Some(bytes), ..self }
    }

    /// Checks that a path leads to the file or directory of this identity; else the error starts with `name`.
    pub fn check(self, path: &Path, name: &str) -> io::Result<()> {
        let error = |what: &str| Err(io::Error::other(format!("{name} {what}")));
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(found) if found.kind() == ErrorKind::NotFound => return error("was removed"),
            Err(found) => return error(&format!("cannot be found: {found}")),
        };
        if (metadata.dev(), metadata.ino()) != (self.device, self.inode) {
            return error("was replaced");
        }
        match self.length.filter(|&bytes| bytes != metadata.len()) {
            None => Ok(()),
            Some(bytes) => error(&format!("has {} bytes instead of {bytes}", metadata.len())),
        }
    }
}

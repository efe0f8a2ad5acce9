//! The files of the directory with records, and their names.

/// The kinds of files with records, in the order in which files of one number are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// The keys of when the log of the same number was started, or later.
    Snapshot,
    /// What changed since then.
    Log,
}

/// A file with records. The order is that in which files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    pub number: u64,
    pub kind: FileKind,
}

impl FileId {
    pub fn snapshot(number: u64) -> FileId {
        FileId { number, kind: FileKind::Snapshot }
    }

    pub fn log(number: u64) -> FileId {
        FileId { number, kind: FileKind::Log }
    }

    pub fn name(self) -> String {
        match self.kind {
            FileKind::Snapshot => format!("snap.{}", self.number),
            FileKind::Log => format!("log.{}", self.number),
        }
    }

    pub fn unfinished_name(self) -> String {
        format!("{}.tmp", self.name())
    }

    /// Returns the file of a name; none if it is none of ours.
    pub fn of_name(name: &str) -> Option<FileId> {
        let (kind, number) = name.split_once('.')?;
        let number = number.parse().ok()?;
        let file = match kind {
            "snap" => FileId::snapshot(number),
            "log" => FileId::log(number),
            _ => return None,
        };
        (file.name() == name).then_some(file)
    }
}

//! The directory: its lock, its files, and their names.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::OpenError;
use super::closed;
use super::frame::Seal;
use super::meta::{Meta, MetaFile, VERSION};

/// More keys in a shard than it is made for, as a factor: more would hold its lock for too long.
const MAX_SHARD_GROWTH_BITS: u8 = 3;

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

/// A directory that no other process uses.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    meta: Meta,
    /// Whether `meta` was damaged, or missing beside other files.
    lost_meta: bool,
    /// Locked while it is open.
    _lock: File,
}

impl Directory {
    /// Locks a directory, and creates what it lacks. With fewer `shard_bits` than the directory has,
    /// they are all that is used from now on; with more, they are not used.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or another process uses it, or its format is unknown. No file with
    /// counters is changed then.
    pub fn open(path: &Path, shard_bits: u8) -> Result<Directory, OpenError> {
        let failed = |error| OpenError::Io(path.to_owned(), error);
        if !path.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
            // Makes the new directory last. Its parent may not be readable.
            let parent = path.parent().filter(|parent| *parent != Path::new(""));
            let _ = File::open(parent.unwrap_or(Path::new("."))).and_then(|it| it.sync_all());
        }
        let lock = create_or_open(&path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let read = Meta::read(path).map_err(failed)?;
        let meta = match read {
            MetaFile::Valid(meta) | MetaFile::OneCopy(meta) => {
                Meta { shard_bits: meta.shard_bits.min(shard_bits), ..meta }
            }
            MetaFile::Version(version) => {
                return Err(OpenError::Version { path: path.to_owned(), version, known: VERSION });
            }
            MetaFile::Absent | MetaFile::Damaged => Meta::random(shard_bits),
        };
        if meta.shard_bits + MAX_SHARD_GROWTH_BITS < shard_bits {
            let max_keys = (2048 << (meta.shard_bits + MAX_SHARD_GROWTH_BITS)) - 1;
            return Err(OpenError::TooManyKeys { path: path.to_owned(), max_keys });
        }
        let mut directory =
            Directory { path: path.to_owned(), meta, lost_meta: false, _lock: lock };
        let files = directory.files().map_err(failed)?;
        for &file in &files {
            // What cannot be read now may be whole: it must not be replaced.
            directory.check(file).map_err(|error| directory.unreadable(file, error))?;
        }
        if read == MetaFile::Damaged || (read == MetaFile::Absent && !files.is_empty()) {
            directory.lost_meta = true;
            tracing::error!(
                path = %path.display(),
                "the file meta of store.disk.path is damaged or missing: all keys start over"
            );
        }
        if read != MetaFile::Valid(meta) {
            meta.write(path).map_err(failed)?;
        }
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn meta(&self) -> Meta {
        self.meta
    }

    pub fn lost_meta(&self) -> bool {
        self.lost_meta
    }

    /// Returns the error of a file that cannot be read.
    pub fn unreadable(&self, file: FileId, error: io::Error) -> OpenError {
        OpenError::Unreadable { path: self.path.clone(), file: file.name(), error }
    }

    /// Opens a file, unless it is no regular one.
    fn check(&self, file: FileId) -> io::Result<()> {
        if fs::metadata(self.path.join(file.name()))?.is_file() {
            self.read(file)?;
        }
        Ok(())
    }

    /// Returns the seal of a file.
    pub fn seal(&self, file: FileId) -> Seal {
        Seal::new(self.meta.directory, file.kind as u8, file.number)
    }

    /// Lists the files with records, in order.
    ///
    /// # Errors
    ///
    /// The directory cannot be read.
    pub fn files(&self) -> io::Result<Vec<FileId>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            files.extend(entry?.file_name().to_str().and_then(FileId::of_name));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn read(&self, file: FileId) -> io::Result<File> {
        File::open(self.path.join(file.name()))
    }

    /// Returns the sizes of files that were closed by the last process, if it has closed all.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub fn closed(&self) -> io::Result<Vec<(FileId, u64)>> {
        closed::read(&self.path)
    }

    /// Removes the sizes, before any of the files changes.
    ///
    /// # Errors
    ///
    /// They cannot be removed.
    pub fn remove_sizes(&self) -> io::Result<()> {
        closed::remove(&self.path)?;
        self.sync()
    }

    /// Records the sizes of all files: nothing is written any more.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn close(&self) -> io::Result<()> {
        let size = |file: FileId| Ok((file, fs::metadata(self.path.join(file.name()))?.len()));
        let sizes = self.files()?.into_iter().map(size).collect::<io::Result<Vec<_>>>()?;
        closed::write(&self.path, &sizes)
    }

    /// Creates a log, or a snapshot under the name that it has until it is whole.
    ///
    /// # Errors
    ///
    /// The file cannot be created, or exists.
    pub fn create(&self, file: FileId) -> io::Result<File> {
        let name = match file.kind {
            FileKind::Snapshot => file.unfinished_name(),
            FileKind::Log => {
                closed::remove(&self.path)?;
                file.name()
            }
        };
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path.join(name))
    }

    /// Gives a whole snapshot its name.
    ///
    /// # Errors
    ///
    /// The file cannot be renamed.
    pub fn finish(&self, file: FileId) -> io::Result<()> {
        fs::rename(self.path.join(file.unfinished_name()), self.path.join(file.name()))?;
        self.sync()
    }

    /// Makes created, renamed and removed files last.
    ///
    /// # Errors
    ///
    /// The system does not confirm that.
    pub fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Removes a file, finished or not, if it exists.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn remove(&self, file: FileId) -> io::Result<()> {
        for name in [file.name(), file.unfinished_name()] {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes snapshots that a process had begun, and logs without a record.
    ///
    /// # Errors
    ///
    /// A file cannot be removed.
    pub fn remove_unused(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_unfinished = name.strip_suffix(".tmp").and_then(FileId::of_name).is_some();
            let is_log = FileId::of_name(name).is_some_and(|file| file.kind == FileKind::Log);
            if is_unfinished || is_log && entry.metadata().is_ok_and(|file| file.len() == 0) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
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

    fn unfinished_name(self) -> String {
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

/// Opens a file to write it, which only its owner can read.
///
/// # Errors
///
/// It cannot be opened or created.
pub fn create_or_open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

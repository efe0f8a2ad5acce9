//! The directory of the disk store: locks it, makes and removes its files, notices files that others replaced.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::closed;
use super::file_id::{DiskFileKind, FileId, FileIdentity};
use super::frame::Seal;
use super::meta::{Meta, MetaFile, VERSION};
use weir_common::regular;

/// A shard may have at most `2^3` times the keys that it was made for: more would hold its lock for too long.
const MAX_SHARD_GROWTH_BITS: u8 = 3;

/// The greatest N of a `log.N` or `snap.N` at the start: there are more numbers above it than can be needed.
const MAX_NUMBER: u64 = u64::MAX / 2;

/// Why a directory is not used. The messages follow the name of the setting.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system does not allow it.
    #[error("store.disk.path is {0:?}: {1}")]
    Io(PathBuf, io::Error),
    /// Another process has locked it.
    #[error(
        "store.disk.path is {0:?}, which another process uses: give each process its own directory"
    )]
    InUse(PathBuf),
    /// Another version of weir wrote it, in this format.
    #[error(
        "store.disk.path is {0:?}, which has format {1}, and this version of weir knows \
         format {VERSION}: use the version that wrote it, or name an empty directory"
    )]
    Version(PathBuf, u32),
    /// The file of this name in it cannot be read.
    #[error(
        "store.disk.path is {0:?}, and {1} in it cannot be read: {2}: repair that, \
         or remove the file to lose what was counted in it"
    )]
    Unreadable(PathBuf, String, io::Error),
    /// It was made for far fewer keys: at most this number.
    #[error(
        "store.disk.path is {0:?}, which was made for fewer keys: set store.memory.max_keys to \
         at most {1}, or name an empty directory"
    )]
    TooManyKeys(PathBuf, usize),
}

/// A directory that no other process uses.
#[derive(Debug)]
pub struct Directory {
    pub path: PathBuf,
    pub meta: Meta,
    /// Whether `meta` was damaged, or missing beside other files.
    pub lost_meta: bool,
    /// The directory itself; while it is open, no other one can have its identity.
    opened: File,
    lock: File,
    meta_identity: FileIdentity,
    /// The files with records that a start needs.
    kept: BTreeMap<FileId, FileIdentity>,
}

impl Directory {
    /// Locks a directory, and creates what it lacks. With fewer `shard_bits` than the directory has, they are all that
    /// is used from now on; with more, they are not used. If that fails, no file with counters is changed.
    pub fn open(path: &Path, shard_bits: u8) -> Result<Directory, OpenError> {
        let failed = |error| OpenError::Io(path.to_owned(), error);
        let opened = create(path).map_err(failed)?;
        let lock = lock(path)?;
        let read = read_meta(path)?;
        let meta = match read {
            MetaFile::Valid(meta) | MetaFile::OneCopy(meta) => {
                Meta { shard_bits: meta.shard_bits.min(shard_bits), ..meta }
            }
            MetaFile::Version(version) => return Err(OpenError::Version(path.to_owned(), version)),
            MetaFile::Absent | MetaFile::Damaged => Meta::random(shard_bits),
        };
        if meta.shard_bits + MAX_SHARD_GROWTH_BITS < shard_bits {
            let max_keys = (2048 << (meta.shard_bits + MAX_SHARD_GROWTH_BITS)) - 1;
            return Err(OpenError::TooManyKeys(path.to_owned(), max_keys));
        }
        let files = files_in(path).map_err(failed)?;
        for &file in &files {
            let name = file.name();
            // What cannot be read now may be whole: it must not be replaced. Further numbers must follow its own.
            let checked = match file.number {
                0..=MAX_NUMBER => regular::open(&path.join(&name)).map(drop),
                _ => Err(io::Error::other(format!("weir numbers files up to {MAX_NUMBER}"))),
            };
            checked.map_err(|error| unreadable(path, &name, error))?;
        }
        regular::check_if_any(&path.join(closed::NAME))
            .map_err(|error| unreadable(path, closed::NAME, error))?;
        let lost_meta =
            read == MetaFile::Damaged || (read == MetaFile::Absent && !files.is_empty());
        if lost_meta {
            tracing::error!(
                path = %path.display(),
                "the file meta of store.disk.path is damaged or missing: all keys start over"
            );
        }
        if read != MetaFile::Valid(meta) {
            meta.write(path).map_err(failed)?;
        }
        let meta_identity = whole(path, "meta").map_err(failed)?;
        let (path, kept) = (path.to_owned(), BTreeMap::new());
        Ok(Directory { path, meta, lost_meta, opened, lock, meta_identity, kept })
    }

    /// Turns to the directory that is at the path now, which may be another one, and creates what it lacks. Returns the
    /// greatest number of its files, which all are to be replaced.
    pub fn reopen(&mut self) -> Result<u64, OpenError> {
        let path = &self.path;
        let failed = |error| OpenError::Io(path.clone(), error);
        self.opened = create(path).map_err(failed)?;
        // Ours is locked already.
        if self.check_lock().is_err() {
            self.lock = lock(path)?;
        }
        match read_meta(path)? {
            MetaFile::Valid(meta) if meta == self.meta => {}
            MetaFile::Version(version) => return Err(OpenError::Version(path.to_owned(), version)),
            _ => self.meta.write(path).map_err(failed)?,
        }
        self.meta_identity = whole(path, "meta").map_err(failed)?;
        let last = files_in(path).map_err(failed)?.last().map_or(0, |file| file.number);
        match last {
            0..=MAX_NUMBER => Ok(last),
            _ => Err(failed(io::Error::other(format!("a file in it has the number {last}")))),
        }
    }

    /// Checks that the path leads here and that no file that a start needs was removed or replaced; the error names it.
    pub fn verify(&self) -> io::Result<()> {
        FileIdentity::of(&self.opened.metadata()?).check(&self.path, "the directory")?;
        self.check_lock()?;
        self.meta_identity.check(&self.path.join("meta"), "meta")?;
        for (file, identity) in &self.kept {
            let name = file.name();
            identity.check(&self.path.join(&name), &name)?;
        }
        Ok(())
    }

    fn check_lock(&self) -> io::Result<()> {
        FileIdentity::of(&self.lock.metadata()?).check(&self.path.join("lock"), "lock")
    }

    /// Records that a file has its final length, from which on only weir may remove it.
    pub fn keep(&mut self, file: FileId, bytes: u64) {
        if let Some(identity) = self.kept.get_mut(&file) {
            *identity = identity.with_length(bytes);
        }
    }

    /// Records that the files that were loaded are whole.
    pub fn keep_loaded(&mut self) -> io::Result<()> {
        for file in self.files()? {
            let identity = whole(&self.path, &file.name())?;
            self.kept.entry(file).or_insert(identity);
        }
        Ok(())
    }

    /// Records that no file with a lower number is needed.
    pub fn keep_from(&mut self, number: u64) {
        self.kept.retain(|file, _| file.number >= number);
    }

    pub fn record_logs(&mut self) -> io::Result<()> {
        if !self.meta.has_logs {
            let meta = Meta { has_logs: true, ..self.meta };
            meta.write(&self.path)?;
            self.meta = meta;
            self.meta_identity = whole(&self.path, "meta")?;
        }
        Ok(())
    }

    pub fn unreadable(&self, file: FileId, error: io::Error) -> OpenError {
        unreadable(&self.path, &file.name(), error)
    }

    pub fn seal(&self, file: FileId) -> Seal {
        Seal::new(self.meta.directory, file.kind as u8, file.number)
    }

    pub fn files(&self) -> io::Result<Vec<FileId>> {
        files_in(&self.path)
    }

    /// Records the sizes of all files: nothing is written any more.
    pub fn close(&self) -> io::Result<()> {
        self.verify()?;
        let size = |file: FileId| Ok((file, fs::metadata(self.path.join(file.name()))?.len()));
        let sizes = self.files()?.into_iter().map(size).collect::<io::Result<Vec<_>>>()?;
        closed::write(&self.path, &sizes)
    }

    /// Creates a log, or a snapshot under the name that it has until it is whole.
    pub fn create(&mut self, file: FileId) -> io::Result<File> {
        let name = match file.kind {
            DiskFileKind::Snapshot => file.unfinished_name(),
            DiskFileKind::Log => {
                closed::remove(&self.path)?;
                file.name()
            }
        };
        let created = regular::create(&self.path.join(name))?;
        if file.kind == DiskFileKind::Log {
            self.kept.insert(file, FileIdentity::of(&created.metadata()?));
        }
        Ok(created)
    }

    /// Gives a whole snapshot of that length its name.
    pub fn finish(&mut self, file: FileId, snapshot: &File, bytes: u64) -> io::Result<()> {
        let identity = FileIdentity::of(&snapshot.metadata()?).with_length(bytes);
        identity.check(&self.path.join(file.unfinished_name()), "the snapshot")?;
        fs::rename(self.path.join(file.unfinished_name()), self.path.join(file.name()))?;
        self.kept.insert(file, identity);
        self.sync()
    }

    /// Makes created, renamed and removed files last.
    pub fn sync(&self) -> io::Result<()> {
        self.opened.sync_all()
    }

    /// Removes a file, finished or not, if it exists.
    pub fn remove(&mut self, file: FileId) -> io::Result<()> {
        for name in [file.name(), file.unfinished_name()] {
            regular::remove_if_any(&self.path.join(name))?;
        }
        self.kept.remove(&file);
        Ok(())
    }

    /// Removes snapshots that a process had begun, and logs without a record but that of `number`.
    pub fn remove_unused(&self, number: u64) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_unfinished = name.strip_suffix(".tmp").and_then(FileId::of_name).is_some();
            let is_log = FileId::of_name(name)
                .is_some_and(|file| file.kind == DiskFileKind::Log && file.number != number);
            if is_unfinished || is_log && entry.metadata().is_ok_and(|file| file.len() == 0) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Opens a directory, which is created if it does not exist.
fn create(path: &Path) -> io::Result<File> {
    if !path.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        // Makes the new directory last. Its parent may not be readable.
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let _ = regular::open_directory(parent.unwrap_or(Path::new(".")))
            .and_then(|parent| parent.sync_all());
    }
    regular::open_directory(path)
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let lock = regular::open_or_create(&path.join("lock"));
    let lock = lock.map_err(|error| unreadable(path, "lock", error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(OpenError::Io(path.to_owned(), error)),
    }
}

fn read_meta(path: &Path) -> Result<MetaFile, OpenError> {
    Meta::read(path).map_err(|error| unreadable(path, "meta", error))
}

/// Returns the identity of a file that has its final length.
fn whole(path: &Path, file: &str) -> io::Result<FileIdentity> {
    let metadata = fs::metadata(path.join(file))?;
    Ok(FileIdentity::of(&metadata).with_length(metadata.len()))
}

fn files_in(path: &Path) -> io::Result<Vec<FileId>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        files.extend(entry?.file_name().to_str().and_then(FileId::of_name));
    }
    files.sort_unstable();
    Ok(files)
}

fn unreadable(path: &Path, file: &str, error: io::Error) -> OpenError {
    OpenError::Unreadable(path.to_owned(), file.to_owned(), error)
}

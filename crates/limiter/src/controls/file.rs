//! The file that keeps controls over a restart: a line for each change, with its checksum, and a copy.
//!
//! ```text
//! 5a0c8d1f weir controls 2 17 0
//! 9be6a412 {"n":17,"id":"block-1","row":{…}}
//! 03d1b2c4 {"n":18,"id":"block-1","row":null}
//! ```
//!
//! The first line has the version, the number of the next line, and how many changes damage has lost so
//! far. Lines are numbered without gaps, and the last one of an id is valid. Changes are appended to the
//! file, which is synced, and then to the copy. When most lines are obsolete, both are replaced. A line
//! whose checksum is wrong is taken from the copy if that has it, else it is lost.

mod read;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) use self::read::{Found, read};

/// The version of the format.
const VERSION: u64 = 2;

/// The lines beyond twice the rows with which the file is replaced.
const SPARE_LINES: usize = 1_000;

/// A row to write: its id, and its text; without one the row is removed.
pub(super) type RowText = (String, Option<String>);

/// Writes the file.
#[derive(Debug)]
pub(super) struct ControlFile {
    path: PathBuf,
    /// The number of the next line.
    next: u64,
    lost: usize,
    /// Whether the file has to be written although no control has changed since.
    pub is_outdated: bool,
    /// What was written; none if the file is to be replaced.
    written: Option<Written>,
}

/// What was written to the file.
#[derive(Debug)]
pub(super) struct Written {
    device: u64,
    inode: u64,
    bytes: u64,
    lines: usize,
    /// The rows of the last replacement.
    rows: usize,
}

impl ControlFile {
    /// Returns the writer of a file whose first free line has the number `next`, after `lost` changes were lost. The first
    /// write replaces it.
    pub fn new(path: PathBuf, next: u64, lost: usize, is_outdated: bool) -> ControlFile {
        ControlFile { path, next, lost, is_outdated, written: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a write, and returns what it appends to; none if it replaces the file, with all rows. Until the
    /// write has succeeded, whatever ends it, the next one needs all rows.
    pub fn begin(&mut self) -> Option<Written> {
        // Else a deleted control would come back with a restart.
        self.is_outdated = true;
        let written = self.written.take()?;
        let is_there = fs::symlink_metadata(&self.path).is_ok_and(|metadata| {
            (metadata.dev(), metadata.ino(), metadata.len())
                == (written.device, written.inode, written.bytes)
        });
        (is_there && written.lines <= 2 * written.rows + SPARE_LINES).then_some(written)
    }

    /// Appends changes to what [`begin`](Self::begin) returned, or replaces the file with all rows.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&mut self, rows: &[RowText], written: Option<Written>) -> io::Result<()> {
        let are_all = written.is_none();
        let mut text = String::new();
        if are_all {
            add_line(&mut text, &format!("weir controls {VERSION} {} {}", self.next, self.lost));
        }
        for (n, (id, row)) in (self.next..).zip(rows) {
            let id = serde_json::Value::from(id.as_str());
            let row = row.as_deref().unwrap_or("null");
            add_line(&mut text, &format!(r#"{{"n":{n},"id":{id},"row":{row}}}"#));
        }
        let file = match are_all {
            true => replace(&self.path, &text)?,
            false => append(&self.path, &text)?,
        };
        self.next += rows.len() as u64;
        let copy = copy_of(&self.path);
        match are_all {
            true => drop(replace(&copy, &text)?),
            // The file itself is synced.
            false => OpenOptions::new().append(true).open(&copy)?.write_all(text.as_bytes())?,
        }
        let metadata = file.metadata()?;
        let lines = written.as_ref().map_or(0, |written| written.lines);
        self.written = Some(Written {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            lines: lines + rows.len(),
            rows: written.map_or(rows.len(), |written| written.rows),
        });
        self.is_outdated = false;
        Ok(())
    }
}

fn add_line(text: &mut String, line: &str) {
    text.push_str(&format!("{:08x} {line}\n", crc32fast::hash(line.as_bytes())));
}

fn append(path: &Path, text: &str) -> io::Result<File> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    Ok(file)
}

/// Replaces a file: a reader, and a restart after a crash, finds the old one or the new one.
fn replace(path: &Path, text: &str) -> io::Result<File> {
    let new = beside(path, ".new");
    // Controls name clients.
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The new name is durable only with its directory.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(file)
}

/// Keeps a damaged file, which the next write replaces. Returns its path.
pub(super) fn keep_damaged(path: &Path) -> Option<PathBuf> {
    let kept = damaged(path);
    fs::copy(path, &kept).ok().map(|_| kept)
}

/// Returns the path of the copy.
fn copy_of(path: &Path) -> PathBuf {
    beside(path, ".copy")
}

/// Returns the path at which a damaged file is kept.
pub(super) fn damaged(path: &Path) -> PathBuf {
    beside(path, ".damaged")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

//! Opens, reads and replaces only regular files and directories: opening a FIFO waits, and a device may have no end.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::fs::OFlags;

pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// What was read of a file, and its metadata after that.
#[derive(Debug)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    pub metadata: Metadata,
    /// When the metadata was asked for, and when it was there.
    pub times: (Instant, Instant),
}

/// Reads a regular file up to one byte beyond `max_bytes`, so that a longer one can be told.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<FileContent> {
    let file = open(path)?;
    // Some files of the kernel would report that they have nothing now.
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    let limit = max_bytes.saturating_add(1);
    // Growing step by step would take up to twice as much.
    let mut bytes = Vec::new();
    bytes.reserve_exact(file.metadata()?.len().min(limit) as usize);
    (&file).take(limit).read_to_end(&mut bytes)?;
    let asked = Instant::now();
    let metadata = file.metadata()?;
    Ok(FileContent { bytes, metadata, times: (asked, Instant::now()) })
}

/// Opens a regular file to write it, and creates one that only its owner can read if there is none.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    check_if_any(path)?;
    open_with(OpenOptions::new().write(true).create(true).truncate(false).mode(0o600), path)
}

/// Creates a new file that only its owner can read.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Replaces a file of a directory by one with these bytes, as a whole.
pub fn replace(directory: &Path, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = directory.join(name).into_os_string();
    unfinished.push(".tmp");
    let unfinished = Path::new(&unfinished);
    // Whatever is there, such as a link to another file, is not written to.
    remove_if_any(unfinished)?;
    let mut file = create(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(unfinished, directory.join(name))?;
    open_directory(directory)?.sync_all()
}

pub fn remove_if_any(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(if_absent)
}

pub fn open_directory(path: &Path) -> io::Result<File> {
    let flags = flags(OFlags::DIRECTORY | OFlags::NONBLOCK);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Checks that there is a regular file or nothing.
pub fn check_if_any(path: &Path) -> io::Result<()> {
    fs::metadata(path).and_then(|metadata| check(&metadata)).or_else(if_absent)
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Before, since opening alone has an effect on some devices; and after, since it may have been replaced meanwhile.
    check_if_any(path)?;
    let file = options.custom_flags(flags(OFlags::NONBLOCK)).open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let file_type = metadata.file_type();
    let kind = match file_type {
        _ if file_type.is_dir() => "a directory",
        _ if file_type.is_fifo() => "a FIFO",
        _ if file_type.is_socket() => "a socket",
        _ if file_type.is_char_device() || file_type.is_block_device() => "a device",
        _ => "something else",
    };
    Err(io::Error::other(format!("it is {kind} and not a regular file")))
}

fn if_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn flags(flags: OFlags) -> i32 {
    // All flags are below 2^31.
    i32::try_from(flags.bits()).unwrap_or_default()
}

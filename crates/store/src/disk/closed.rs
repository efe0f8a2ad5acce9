//! Reads and writes the file `closed` of the disk store: the sizes of its other files after a clean shutdown.
//!
//! A line with name and bytes for each file, and one with the checksum (CRC-32) of the lines before. It is there only
//! while no process uses the directory, and only if the last one has saved everything: then a log that ends early was
//! not torn by a crash.

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::file_id::FileId;
use weir_common::regular;

pub const NAME: &str = "closed";

/// More than the lines of all files that a directory can have.
const MAX_BYTES: u64 = 16 << 20;

pub fn read(directory: &Path) -> io::Result<Vec<(FileId, u64)>> {
    let bytes = match regular::read(&directory.join(NAME), MAX_BYTES) {
        Ok(content) => content.bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    decode(&bytes).ok_or_else(|| io::Error::other("the file is damaged"))
}

pub fn write(directory: &Path, sizes: &[(FileId, u64)]) -> io::Result<()> {
    // A crash must not leave half of it.
    regular::replace(directory, NAME.as_ref(), encode(sizes).as_bytes())
}

/// Removes the file, if it exists, before any of the sizes changes.
pub fn remove(directory: &Path) -> io::Result<()> {
    regular::remove_if_any(&directory.join(NAME))
}

fn encode(sizes: &[(FileId, u64)]) -> String {
    let mut text = String::new();
    for (file, bytes) in sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {bytes}", file.name());
    }
    let checksum = crc32fast::hash(text.as_bytes());
    let _ = writeln!(text, "{checksum:08x}");
    text
}

fn decode(bytes: &[u8]) -> Option<Vec<(FileId, u64)>> {
    let text = str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let end = text.rfind('\n').map_or(0, |end| end + 1);
    let (lines, checksum) = text.split_at_checked(end)?;
    if u32::from_str_radix(checksum, 16).ok()? != crc32fast::hash(lines.as_bytes()) {
        return None;
    }
    let size = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        Some((FileId::of_name(name)?, bytes.parse().ok()?))
    };
    lines.lines().map(size).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn sizes_are_read_back_unless_a_byte_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, path) = (directory.path(), directory.path().join(NAME));
        assert_eq!(read(directory).unwrap(), []);
        for sizes in [vec![], vec![(FileId::snapshot(4), 93_464), (FileId::log(u64::MAX), 0)]] {
            write(directory, &sizes).unwrap();
            assert_eq!(read(directory).unwrap(), sizes);
            let bytes = fs::read(&path).unwrap();
            for at in 0..bytes.len() {
                assert_eq!(decode(&bytes[..at]), None);
                let mut flipped = bytes.clone();
                flipped[at] ^= 4;
                assert_eq!(decode(&flipped), None, "{at}");
            }
        }
        remove(directory).unwrap();
        assert_eq!(read(directory).unwrap(), []);
        remove(directory).unwrap();
    }
}

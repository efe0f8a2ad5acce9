//! Recognizes files that were removed or replaced by another program.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a path has to lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
    /// The length; none while the file is written, and for a directory.
    length: Option<u64>,
}

impl Identity {
    /// Returns the identity of a file or directory, whatever its length.
    pub fn of(metadata: &Metadata) -> Identity {
        Identity { device: metadata.dev(), inode: metadata.ino(), length: None }
    }

    pub fn with_length(self, bytes: u64) -> Identity {
        Identity { length: Some(bytes), ..self }
    }

    /// Checks that a path leads to the file or directory of this identity.
    ///
    /// # Errors
    ///
    /// The path leads to something else; the error starts with `name`.
    pub fn check(self, path: &Path, name: &str) -> io::Result<()> {
        let error = |what: &str| Err(io::Error::other(format!("{name} {what}")));
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(io::Error::other(format!("{name} was removed")));
            }
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

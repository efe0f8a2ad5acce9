//! Unix sockets in the file system.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::BoundSocket;

/// The file of a listening Unix socket, removed when this is dropped.
#[derive(Debug)]
pub struct UnixSocketFile {
    path: PathBuf,
    /// The file's device and inode: another process may have replaced it.
    id: Option<(u64, u64)>,
}

impl UnixSocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && self.id == id(&self.path) {
            // If this fails, the next start replaces the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and inode of a file.
fn id(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl BoundSocket {
    /// Listens on a Unix socket. Replaces the file of a socket on which no process accepts.
    ///
    /// # Errors
    ///
    /// Another process listens there, the file is not a socket, or it cannot be created.
    pub async fn unix(path: &Path) -> io::Result<BoundSocket> {
        let other = |message: &str| Err(io::Error::other(message.to_owned()));
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return other("the file exists and is not a socket");
            }
            Ok(_) => match UnixStream::connect(path).await.map_err(|error| error.kind()) {
                Err(io::ErrorKind::ConnectionRefused) => std::fs::remove_file(path)?,
                // It does not accept now.
                Ok(_) | Err(io::ErrorKind::WouldBlock) => {
                    return other("another process listens on it");
                }
                Err(error) => return Err(error.into()),
            },
        }
        let listener = UnixListener::bind(path)?;
        let file = UnixSocketFile { path: path.to_owned(), id: id(path) };
        listener.set_nonblocking(true)?;
        Ok(BoundSocket::Unix(listener, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_sockets_without_a_process_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let first = BoundSocket::unix(&path).await.unwrap();
        let error = BoundSocket::unix(&path).await.unwrap_err().to_string();
        assert_eq!(error, "another process listens on it");
        drop(first);
        assert!(!path.exists(), "removed with the listener");
        // As a process that was killed leaves it.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(BoundSocket::unix(&path).await.unwrap());
        std::fs::write(&path, "precious").unwrap();
        let error = BoundSocket::unix(&path).await.unwrap_err().to_string();
        assert_eq!(error, "the file exists and is not a socket");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn the_file_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let first = BoundSocket::unix(&path).await.unwrap();
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        let second = BoundSocket::unix(&path).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}

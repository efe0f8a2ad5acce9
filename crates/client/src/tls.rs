//! TLS of weir's connections to servers: certificate files and their renewal. The files are read again before each
//! connection and from time to time; the last good set stays in use while a new one is unusable.

#![warn(missing_docs)]

pub(crate) mod config;
mod pem;
#[cfg(test)]
mod tests;

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep;

pub use config::{ClientTls, ClientTlsError, ServerVerifier};
pub use pem::{ClientPem, PemFile};
use weir_common::error::SetupError;
use weir_common::file_reads::FileReads;
use weir_common::threads;
use weir_common::throttle::Throttle;

/// How often files are checked between connections: an unusable new set is reported before one needs it.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The certificate files of a TLS client. A certificate needs its key, and the other way round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificates to trust; none: the system's roots.
    pub ca: Option<PemFile>,
    /// The client certificate, with its chain.
    pub cert: Option<PemFile>,
    /// Its key.
    pub key: Option<PemFile>,
}

/// Files that are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedFiles {
    /// Why they are not used.
    pub error: String,
    /// Since when none have been good.
    pub since: Instant,
}

impl RejectedFiles {
    /// Notes an error after those of `before`.
    pub fn new(error: &impl ToString, before: Option<RejectedFiles>) -> RejectedFiles {
        let since = before.map_or_else(Instant::now, |before| before.since);
        RejectedFiles { error: error.to_string(), since }
    }
}

/// The files of a client and their last good content.
#[derive(Debug)]
pub struct ClientCertificates {
    files: ClientFiles,
    reads: FileReads,
    /// Locked while the files are read, which may take long.
    reading: Mutex<()>,
    last_good: Mutex<Option<Arc<ClientPem>>>,
    rejected: Mutex<Option<RejectedFiles>>,
    unusable: Throttle,
}

impl Default for ClientCertificates {
    fn default() -> ClientCertificates {
        ClientCertificates::new(ClientFiles::default())
    }
}

impl ClientCertificates {
    /// Does not read the files yet.
    pub fn new(files: ClientFiles) -> ClientCertificates {
        ClientCertificates {
            files,
            reads: FileReads::new(u64::MAX),
            reading: Mutex::default(),
            last_good: Mutex::default(),
            rejected: Mutex::default(),
            unusable: Throttle::new(LOG_INTERVAL),
        }
    }

    /// Returns the files, with the settings that name them.
    pub fn files(&self) -> &ClientFiles {
        &self.files
    }

    /// Returns the last good content; none before it was first read.
    pub fn in_use(&self) -> Option<Arc<ClientPem>> {
        self.last_good.lock().clone()
    }

    /// Returns why the newest files are unusable; none if they are not.
    pub fn rejected(&self) -> Option<RejectedFiles> {
        self.rejected.lock().clone()
    }

    /// Reads the files. Where they are unusable, logs that and returns the last good content.
    ///
    /// # Errors
    /// The files are unusable, and there was no good content before. The message names the setting and the fix.
    pub fn read(&self) -> Result<Arc<ClientPem>, SetupError> {
        let _reading = self.reading.lock();
        let last_good = self.in_use();
        let fresh = read(&self.files, &self.reads, last_good.is_none());
        let mut rejected = self.rejected.lock();
        *rejected = fresh.as_ref().err().map(|error| RejectedFiles::new(error, rejected.take()));
        drop(rejected);
        match (fresh, last_good) {
            (Ok(fresh), Some(last)) if fresh == *last => Ok(last),
            (Ok(fresh), last) => {
                if last.is_some() {
                    let file = self.files.cert.as_ref().or(self.files.ca.as_ref());
                    let file = file.map(|file| file.path.display().to_string());
                    tracing::info!(file, "certificates reloaded");
                }
                Ok(self.last_good.lock().insert(Arc::new(fresh)).clone())
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(last)) => {
                if let Some(suppressed) = self.unusable.pass() {
                    tracing::error!(
                        %error, suppressed,
                        "cannot load new certificates, the previous ones stay in use"
                    );
                }
                Ok(last)
            }
        }
    }

    /// [`read`](Self::read), outside the serving threads.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if no thread can start.
    pub async fn read_in_background(self: &Arc<Self>) -> Result<Arc<ClientPem>, SetupError> {
        let certificates = self.clone();
        let read = threads::run_blocking(move || certificates.read()).await;
        read.map_err(|error| {
            SetupError::Unavailable(format!("certificates are not read: {error}"))
        })?
    }

    /// Checks the files from time to time. Never returns.
    pub async fn follow(self: &Arc<Self>) {
        if self.files == ClientFiles::default() {
            return pending().await;
        }
        loop {
            sleep(CHECK_INTERVAL).await;
            // Without a last good set, the next connection reports the error.
            let _ = self.read_in_background().await;
        }
    }
}

/// Reads and checks all files; the first time, also the system's roots if they are used.
fn read(files: &ClientFiles, reads: &FileReads, first: bool) -> Result<ClientPem, SetupError> {
    if first && files.ca.is_none() {
        pem::check_system_roots()?;
    }
    let ca = files.ca.as_ref().map(|ca| pem::trust_anchors(ca, reads)).transpose()?;
    let lacks = |file: &PemFile, other: &str| {
        let setting = file.setting;
        SetupError::Invalid(format!("{setting} is set without a {other}; name the {other} too"))
    };
    let identity = match (&files.cert, &files.key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(pem::identity(cert, key, reads)?),
        (Some(cert), None) => return Err(lacks(cert, "key")),
        (None, Some(key)) => return Err(lacks(key, "certificate")),
    };
    Ok(ClientPem { ca, identity })
}

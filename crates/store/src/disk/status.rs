//! What the disk store's writing thread reports to the threads that answer requests and to metrics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::recovery::Recovery;

#[derive(Debug, Default)]
pub struct DiskStatus {
    loaded: OnceLock<(Recovery, Duration)>,
    /// Why nothing is loaded, if that has failed. Notified when loading has ended, well or not.
    pub load_error: watch::Sender<Option<String>>,
    /// Whether the thread has ended as it was asked to.
    pub has_saved_all: AtomicBool,
    /// The instant until which all changes are on disk; none while loading.
    pub synced: Mutex<Option<Instant>>,
    pub snapshot_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub written_records: AtomicU64,
    pub snapshots: AtomicU64,
    pub write_errors: AtomicU64,
    pub files_lost: AtomicU64,
    /// The error with which nothing is saved, until it is again.
    pub not_saved_because: Mutex<Option<String>>,
}

impl DiskStatus {
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.loaded.get().is_some()
    }

    /// Returns what was loaded, and in which time; nothing in no time while loading.
    pub fn recovery(&self) -> (Recovery, Duration) {
        self.loaded.get().cloned().unwrap_or_default()
    }

    pub fn loaded(&self, recovery: Recovery, took: Duration) {
        self.snapshot_bytes.store(recovery.snapshot_bytes, Ordering::Relaxed);
        self.log_bytes.store(recovery.log_bytes, Ordering::Relaxed);
        *self.synced.lock() = Some(Instant::now());
        // What was loaded is seen then, also where a lock was not taken since.
        let _ = self.loaded.set((recovery, took));
        self.load_error.send_replace(None);
    }

    pub fn not_loaded(&self, error: String) {
        self.load_error.send_replace(Some(error));
    }

    pub async fn wait_until_loaded(&self) {
        // The sender is in `self`, so the channel does not close.
        let _ = self.load_error.subscribe().wait_for(|_| self.is_loaded()).await;
    }

    /// The age of the oldest change that may not be on disk yet; zero while loading.
    pub fn sync_age(&self) -> Duration {
        self.synced.lock().map_or(Duration::ZERO, |synced| synced.elapsed())
    }
}

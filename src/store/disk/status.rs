//! What the writing thread reports to the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::recovery::Recovery;

/// Counts and times for metrics, and whether the store is loaded.
#[derive(Debug)]
pub struct Status {
    /// The same as `loading`, for the path of requests.
    is_loaded: AtomicBool,
    loading: watch::Sender<bool>,
    /// Whether the thread has ended as it was told to.
    has_saved_all: AtomicBool,
    /// All changes until then are on disk.
    synced: Mutex<Instant>,
    pub loaded_records: AtomicU64,
    pub load_micros: AtomicU64,
    pub damaged_frames: AtomicU64,
    pub damaged_records: AtomicU64,
    pub damaged_files: AtomicU64,
    pub snapshot_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub written_records: AtomicU64,
    pub snapshots: AtomicU64,
    pub write_errors: AtomicU64,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            is_loaded: AtomicBool::new(false),
            loading: watch::Sender::new(true),
            has_saved_all: AtomicBool::new(false),
            synced: Mutex::new(Instant::now()),
            loaded_records: AtomicU64::new(0),
            load_micros: AtomicU64::new(0),
            damaged_frames: AtomicU64::new(0),
            damaged_records: AtomicU64::new(0),
            damaged_files: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            written_records: AtomicU64::new(0),
            snapshots: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
        }
    }
}

impl Status {
    #[inline]
    pub fn is_loaded(&self) -> bool {
        // Acquire: what was loaded is seen, also where a lock was not taken since.
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Records that everything is loaded.
    pub fn loaded(&self, recovery: &Recovery, took: Duration) {
        let set = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        set(&self.loaded_records, recovery.records);
        set(&self.load_micros, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        set(&self.damaged_frames, recovery.damage.frames);
        set(&self.damaged_records, recovery.damage.records);
        set(&self.damaged_files, recovery.damage.files);
        set(&self.snapshot_bytes, recovery.snapshot_bytes);
        set(&self.log_bytes, recovery.log_bytes);
        self.synced(Instant::now());
        self.is_loaded.store(true, Ordering::Release);
        self.loading.send_replace(false);
    }

    /// Records that the thread ends as it was told to.
    pub fn saved_all(&self) {
        self.has_saved_all.store(true, Ordering::Release);
    }

    pub fn has_saved_all(&self) -> bool {
        self.has_saved_all.load(Ordering::Acquire)
    }

    /// Resolves when everything is loaded.
    pub async fn wait_until_loaded(&self) {
        // The sender is in `self`, so the channel does not close.
        let _ = self.loading.subscribe().wait_for(|loading| !loading).await;
    }

    /// Records that all changes until `instant` are on disk.
    pub fn synced(&self, instant: Instant) {
        *self.synced.lock() = instant;
    }

    /// The age of the oldest change that may not be on disk yet; zero while loading.
    pub fn sync_age(&self) -> Duration {
        if self.is_loaded() { self.synced.lock().elapsed() } else { Duration::ZERO }
    }
}

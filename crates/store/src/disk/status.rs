//! What the writing thread reports to the others.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::recovery::Recovery;

/// How far loading is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Loading {
    Going,
    Done,
    /// Loading failed, with this error.
    Failed(String),
}

/// Counts and times for metrics, and whether the store is loaded.
#[derive(Debug)]
pub struct Status {
    /// Whether all is loaded: `loading` for the path of requests.
    is_loaded: AtomicBool,
    loading: watch::Sender<Loading>,
    /// Whether the thread has ended as it was asked to.
    has_saved_all: AtomicBool,
    /// All changes until then are on disk.
    synced: Mutex<Instant>,
    pub loaded_records: AtomicU64,
    pub load_micros: AtomicU64,
    pub damaged_frames: AtomicU64,
    pub damaged_records: AtomicU64,
    pub damaged_files: AtomicU64,
    pub torn_logs: AtomicU64,
    pub snapshot_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub written_records: AtomicU64,
    pub snapshots: AtomicU64,
    pub write_errors: AtomicU64,
    /// How often files were removed or replaced by another program.
    pub files_lost: AtomicU64,
    /// Why changes are not saved.
    not_saved_because: Mutex<Option<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            is_loaded: AtomicBool::new(false),
            loading: watch::Sender::new(Loading::Going),
            has_saved_all: AtomicBool::new(false),
            synced: Mutex::new(Instant::now()),
            loaded_records: AtomicU64::new(0),
            load_micros: AtomicU64::new(0),
            damaged_frames: AtomicU64::new(0),
            damaged_records: AtomicU64::new(0),
            damaged_files: AtomicU64::new(0),
            torn_logs: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            written_records: AtomicU64::new(0),
            snapshots: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            files_lost: AtomicU64::new(0),
            not_saved_because: Mutex::default(),
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
        set(&self.torn_logs, recovery.torn_logs);
        set(&self.snapshot_bytes, recovery.snapshot_bytes);
        set(&self.log_bytes, recovery.log_bytes);
        self.synced(Instant::now());
        self.is_loaded.store(true, Ordering::Release);
        self.loading.send_replace(Loading::Done);
    }

    /// Records that the files cannot be loaded.
    pub fn not_loaded(&self, error: String) {
        self.loading.send_replace(Loading::Failed(error));
    }

    /// Records that the thread ends as it was asked to.
    pub fn saved_all(&self) {
        self.has_saved_all.store(true, Ordering::Release);
    }

    pub fn has_saved_all(&self) -> bool {
        self.has_saved_all.load(Ordering::Acquire)
    }

    /// Resolves when everything is loaded.
    pub async fn wait_until_loaded(&self) {
        // The sender is in `self`, so the channel does not close.
        let _ = self.loading.subscribe().wait_for(|loading| *loading == Loading::Done).await;
    }

    /// Resolves when loading has failed, with the error.
    pub async fn wait_until_failed(&self) -> String {
        let mut loading = self.loading.subscribe();
        let failed = loading.wait_for(|loading| matches!(loading, Loading::Failed(_))).await;
        match failed.as_deref() {
            Ok(Loading::Failed(error)) => error.clone(),
            _ => String::new(),
        }
    }

    /// Records that nothing is saved, with the error, until [`saves_again`](Self::saves_again).
    pub fn does_not_save(&self, error: &impl ToString) {
        *self.not_saved_because.lock() = Some(error.to_string());
    }

    /// Returns whether nothing was saved until now.
    pub fn saves_again(&self) -> bool {
        self.not_saved_because.lock().take().is_some()
    }

    pub fn not_saved_because(&self) -> Option<String> {
        self.not_saved_because.lock().clone()
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

//! The disk store: counts in memory, and keeps what was counted on disk, so that a restart continues.
//!
//! Memory is the truth; nothing is read from disk but at the start. A thread appends what changed to a log, every
//! interval with one sync, and replaces all files by a snapshot now and then. A directory has these files:
//!
//! | File | |
//! | --- | --- |
//! | `lock` | locked by the process that uses the directory |
//! | `meta` | version, secret of the fingerprints (hashes of keys), number of shards (parts of all keys) |
//! | `closed` | the sizes of the other files, if the last process shut down cleanly |
//! | `snap.N` | all keys and reservations of when `log.N` was started, or later |
//! | `log.N` | what changed since then |
//!
//! Snapshots and logs consist of frames, which have a checksum, with records, one for each key or reservation.

mod closed;
mod copy;
mod directory;
mod file_id;
mod frame;
mod meta;
mod operations;
pub(crate) mod record;
mod record_file;
mod recovery;
mod schedule;
mod status;
#[cfg(test)]
mod tests;
mod writer;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use self::copy::Copier;
use self::directory::Directory;
pub use self::directory::OpenError;
/// What reads and writes files, for fuzzing.
#[cfg(feature = "testsuite")]
pub use self::frame::{Frame, FrameBuilder, FrameKind, FrameReader, MAX_FRAME_BYTES, Seal};
use self::schedule::{Commands, Finish, Schedule};
use self::status::DiskStatus;
use self::writer::{THREAD, Writer};
use crate::charge::{Answers, Batch};
use crate::error::StoreError;
use crate::memory::MemoryStore;
use crate::memory::saving::shard_bits;
use crate::states::{Grant, StateKey, States};
use crate::store::Store;
use weir_common::clock::Clock;
use weir_common::threads::Failures;
use weir_limit::{KeyState, Micros};

/// What a store on disk is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The directory, which is created if it does not exist, and locked until the store is finished or dropped.
    pub path: PathBuf,
    /// How often changes are written and synced: about what a crash loses at most.
    pub sync: Duration,
    /// The maximum number of keys. A directory that was made for far fewer is rejected.
    pub max_keys: usize,
}

/// Keeps states in memory, and on disk what they were at the last sync.
///
/// **Exact.** As the [memory store](MemoryStore). Until everything is loaded, charges wait within their timeout.
///
/// **Durable.** [`finish`](Self::finish) loses nothing. A process that is killed loses at most what changed since the
/// last completed sync: hits are admitted again, and refunded hits count again until they expire.
///
/// **Reservations** are written together with the key that was charged: a restart has both or neither. After damage
/// there are none, since they might be older than their keys; their hits stay charged.
///
/// **Bounded.** As the memory store, up to 22 bytes a key and 130 a reservation for the lists of changes, and while a
/// long log is saved three times its size. If writing fails, charges go on, and what changed is written later. A
/// directory takes at most two snapshots and a log as large as one or 64 MiB, unless writing a snapshot fails.
#[derive(Debug)]
pub struct DiskStore<C> {
    memory: Arc<MemoryStore<C>>,
    status: Arc<DiskStatus>,
    writer: SyncSender<Finish>,
    path: PathBuf,
    sync: Duration,
}

impl<C: Clock> DiskStore<C> {
    /// Locks the directory and starts the thread that loads it and writes to it.
    ///
    /// # Errors
    ///
    /// The directory cannot be used. No file with counters is changed then.
    pub fn open(
        clock: C,
        options: DiskOptions,
        failures: &Failures,
    ) -> Result<DiskStore<C>, OpenError> {
        let (sync, compact) = (options.sync, Duration::from_secs(600));
        let schedule = Schedule { sync, compact, min_obsolete_bytes: 64 << 10 };
        DiskStore::open_with(clock, options, schedule, failures.clone())
    }

    fn open_with(
        clock: C,
        options: DiskOptions,
        schedule: Schedule,
        failures: Failures,
    ) -> Result<DiskStore<C>, OpenError> {
        let DiskOptions { path, sync, max_keys } = options;
        let directory = Directory::open(&path, shard_bits(max_keys))?;
        let meta = directory.meta;
        let memory = MemoryStore::listing_changes(clock, max_keys, meta.shard_bits, meta.secret);
        let (memory, status) = (Arc::new(memory), Arc::new(DiskStatus::default()));
        let (writer, commands) = sync_channel(1);
        let copier = Copier::new(memory.clone(), Commands::new(commands));
        let thread = Writer::new(copier, directory, status.clone(), schedule);
        let started = std::thread::Builder::new().name(THREAD.to_owned());
        let spawned = started.spawn(move || thread.run(&failures));
        spawned.map_err(|error| OpenError::Io(path.clone(), error))?;
        Ok(DiskStore { memory, status, writer, path, sync })
    }

    /// Resolves if the files cannot be loaded, with the error. No file is changed then.
    pub async fn load_error(&self) -> String {
        let mut error = self.status.load_error.subscribe();
        let failed = error.wait_for(Option::is_some).await;
        failed.ok().and_then(|error| error.clone()).unwrap_or_default()
    }

    /// Saves all changes and ends the thread that writes; later charges are not saved. Resolves when that is done; at
    /// once while nothing is loaded yet, and for a second caller. Logs what is not saved when this ends or is dropped.
    pub fn finish(&self) -> impl Future<Output = ()> + Send + use<C> {
        let (done, finished) = oneshot::channel();
        let sent = self.status.is_loaded().then(|| self.writer.try_send(done));
        let is_concerned = matches!(sent, Some(Ok(()) | Err(TrySendError::Disconnected(_))));
        let unsaved = is_concerned.then(|| Unsaved(self.status.clone()));
        async move {
            // Dropped last.
            let _unsaved = unsaved;
            if let Some(Ok(())) = sent {
                // An error means that the thread has failed while loading.
                let _ = finished.await;
            }
        }
    }

    async fn loaded_within(&self, max_wait: Duration) -> Result<(), StoreError> {
        if self.status.is_loaded() {
            return Ok(());
        }
        let loaded = timeout(max_wait, self.status.wait_until_loaded()).await;
        loaded.map_err(|_| StoreError::Unavailable)
    }
}

/// Logs when it is dropped that not all is saved.
#[derive(Debug)]
struct Unsaved(Arc<DiskStatus>);

impl Drop for Unsaved {
    fn drop(&mut self) {
        if self.0.is_loaded() && !self.0.has_saved_all.load(Ordering::Acquire) {
            tracing::error!(
                sync_age_ms = self.0.sync_age().as_millis(),
                "not all counters are saved: a restart loses the latest hits"
            );
        }
    }
}

impl<C: Clock> Store for DiskStore<C> {
    #[inline]
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, C>> {
        if self.status.is_loaded() {
            self.memory.charge_now(&batch, answers);
            return None;
        }
        Some(async move {
            let mut answers = Answers::new();
            match self.loaded_within(batch.timeout).await {
                Ok(()) => self.memory.charge_now(&batch, &mut answers),
                Err(error) => answers.extend(batch.charges.iter().map(|_| Err(error))),
            }
            answers
        })
    }
}

impl<C: Clock> States for DiskStore<C> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        self.loaded_within(timeout).await?;
        Ok(self.memory.read_now(key, spans))
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        self.loaded_within(timeout).await?;
        self.memory.reset_now(key);
        Ok(())
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        self.loaded_within(batch.timeout).await?;
        self.memory.grant_now(batch)
    }
}

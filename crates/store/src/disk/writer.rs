//! The disk store's thread: loads all files, then writes what changed, every interval, and now and then a snapshot.
//!
//! **When a slot (a key's state in memory) stops counting as changed.** When its record is copied, under the lock of
//! its shard: a charge after that lists it again, and a charge before that is in the record. To wait for the sync would
//! hide the changes between. In return, what was copied must not be forgotten if writing fails: then the log is
//! abandoned, and a new log starts with a snapshot of everything in memory.
//!
//! **After an error nothing is retried on the same file.** A sync that failed may have dropped what it was to write,
//! and the next one succeeds nevertheless. So the log stays as it is until a snapshot that does not depend on it is
//! whole.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::closed;
use super::copy::Copier;
use super::directory::{Directory, OpenError};
use super::file_id::FileId;
use super::record::RECORD_BYTES;
use super::record_file::RecordFile;
use super::recovery::{self, Recovery};
use super::schedule::{Next, Retry, Schedule};
use super::status::DiskStatus;
use crate::memory::changes::Changed;
use weir_common::clock::Clock;
use weir_common::threads::Failures;
use weir_common::throttle::Throttle;

mod snapshot;

pub(super) const THREAD: &str = "weir-disk";

/// Logs are not compacted below this size.
const MIN_LOG_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub struct Writer<C> {
    directory: Directory,
    status: Arc<DiskStatus>,
    schedule: Schedule,
    copier: Copier<C>,
    /// The log that is being written; none after an error.
    log: Option<RecordFile>,
    log_number: u64,
    /// Bytes of the logs since the last snapshot, without the one that is being written.
    older_log_bytes: u64,
    snapshot_bytes: u64,
    snapshot_records: u64,
    /// Whether files that no snapshot replaced yet are damaged.
    is_damaged: bool,
    next_number: u64,
    next_sync: Instant,
    compact_at: Instant,
    saving: Retry,
    compacting: Retry,
    /// Throttles the log lines about files that were removed or replaced.
    lost_log: Throttle,
}

impl<C: Clock> Writer<C> {
    pub fn new(
        copier: Copier<C>,
        directory: Directory,
        status: Arc<DiskStatus>,
        schedule: Schedule,
    ) -> Writer<C> {
        let now = Instant::now();
        Writer {
            directory,
            status,
            schedule,
            copier,
            log: None,
            log_number: 0,
            older_log_bytes: 0,
            snapshot_bytes: 0,
            snapshot_records: 0,
            is_damaged: false,
            next_number: 1,
            next_sync: now,
            // At the first sync: much may have expired before the start.
            compact_at: now,
            saving: Retry::new(),
            compacting: Retry::new(),
            lost_log: Throttle::default(),
        }
    }

    /// Loads everything, then writes until a command ends that or the store is dropped.
    pub fn run(mut self, failures: &Failures) {
        if let Err(error) = self.load() {
            // The store does not get ready, and no file is changed.
            return self.status.not_loaded(error.to_string());
        }
        let mut is_restarted = false;
        let ended = failures.restart(THREAD, || {
            if std::mem::replace(&mut is_restarted, true) {
                // What it has copied may not be written.
                self.fail(&io::Error::other("the thread that saves counters has failed"));
                self.saving.at = Instant::now();
            }
            self.write()
        });
        if ended == Next::Dropped {
            return;
        }
        if self.log.is_some() {
            self.status.has_saved_all.store(true, Ordering::Release);
            if let Err(error) = self.directory.close() {
                tracing::warn!(%error, "cannot record the sizes of the files of counters");
            }
        }
        // Unlocks the directory first.
        let done = self.copier.commands.finishing.take();
        drop(self);
        // The receiver may have been dropped.
        let _ = done.map(|done| done.send(()));
    }

    fn write(&mut self) -> Next {
        loop {
            let due = if self.log.is_some() { self.next_sync } else { self.saving.at };
            match self.copier.commands.wait(due.saturating_duration_since(Instant::now())) {
                Next::Work => self.tick(),
                Next::Finish => {
                    self.save_all();
                    return Next::Finish;
                }
                Next::Dropped => return Next::Dropped,
            }
        }
    }

    fn load(&mut self) -> Result<(), OpenError> {
        let started = Instant::now();
        let recovery = recovery::load(&self.directory, &self.copier.memory)?;
        let took = started.elapsed();
        self.next_number = recovery.last_number.saturating_add(1);
        (self.snapshot_bytes, self.older_log_bytes) = (recovery.snapshot_bytes, recovery.log_bytes);
        self.snapshot_records = recovery.snapshot_records;
        self.is_damaged = recovery.damage.is_any();
        self.log_recovery(&recovery, took);
        if let Err(error) = self.start_first_log(&recovery.replaced) {
            self.fail(&error);
        }
        self.status.loaded(recovery, took);
        self.next_sync = Instant::now() + self.schedule.sync;
        Ok(())
    }

    fn log_recovery(&self, recovery: &Recovery, took: Duration) {
        let path = self.directory.path.display();
        let Recovery { records, logs, torn_logs, damage, .. } = *recovery;
        let keys = self.copier.memory.stats().keys;
        let elapsed_ms = took.as_millis();
        tracing::info!(%path, keys, records, logs, torn_logs, elapsed_ms, "counters loaded from disk");
        if recovery.lacks_logs {
            tracing::error!(%path, "all logs of counters are missing: keys start over");
        }
        if damage.is_any() {
            tracing::error!(
                %path,
                damaged_frames = damage.frames,
                damaged_records = damage.records,
                damaged_files = damage.files,
                "files of counters are damaged: some keys start over or with older counts"
            );
        }
    }

    /// Starts the first log of this process, and removes files that are not needed.
    fn start_first_log(&mut self, replaced: &[FileId]) -> io::Result<()> {
        // The sizes first: they list files that are removed. Then the log: without one, the next start would report
        // that all are missing.
        closed::remove(&self.directory.path)?;
        self.directory.sync()?;
        let number = self.start_log()?;
        self.directory.remove_unused(number)?;
        self.remove(replaced);
        self.directory.keep_loaded()
    }

    /// Starts a new log. A log of before is never appended to.
    fn start_log(&mut self) -> io::Result<u64> {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let file = FileId::log(number);
        let log = self.directory.create(file)?;
        if let Err(error) = self.directory.sync().and_then(|()| self.directory.record_logs()) {
            self.discard(file);
            return Err(error);
        }
        let log = RecordFile::new(log, self.directory.seal(file), self.directory.meta.shard_bits);
        if let Some(older) = self.log.replace(log) {
            self.older_log_bytes += older.bytes;
            self.directory.keep(FileId::log(self.log_number), older.bytes);
        }
        self.log_number = number;
        Ok(number)
    }

    /// Saves what is due.
    fn tick(&mut self) {
        let now = Instant::now();
        self.next_sync = now + self.schedule.sync;
        if self.log.is_none() {
            if now >= self.saving.at {
                self.start_over();
            }
            return;
        }
        self.save_changes_or_all();
        if self.log.is_some() && self.is_compaction_due() {
            self.compact();
        }
        self.report_sizes();
    }

    fn save_all(&mut self) {
        if self.log.is_some() {
            self.save_changes_or_all();
        }
        // Also after an error just now: it is the last chance.
        if self.log.is_none() {
            self.start_over();
        }
    }

    fn save_changes_or_all(&mut self) {
        if let Err(error) = self.verify() {
            self.warn_lost(&error);
            return self.start_over();
        }
        match self.save_changes() {
            Ok(true) => {}
            Ok(false) => self.start_over(),
            Err(error) => self.fail(&error),
        }
    }

    /// Checks that what was saved is where the next start looks for it.
    fn verify(&self) -> io::Result<()> {
        self.log.as_ref().map_or(Ok(()), RecordFile::verify)?;
        self.directory.verify()
    }

    /// Appends what changed to the log and syncs it. Returns false if more has changed than was listed.
    fn save_changes(&mut self) -> io::Result<bool> {
        let started = Instant::now();
        let Some(log) = &mut self.log else { return Ok(false) };
        let (bytes, records) = (log.bytes, log.records);
        for shard in 0..self.copier.memory.shards() {
            match self.copier.memory.take_changes(shard) {
                Changed::Keys(prints) => self.copier.changes(shard, &prints, log)?,
                Changed::TooMany => return Ok(false),
            }
        }
        log.sync()?;
        self.status.written_bytes.fetch_add(log.bytes - bytes, Ordering::Relaxed);
        self.status.written_records.fetch_add(log.records - records, Ordering::Relaxed);
        *self.status.synced.lock() = Some(started);
        Ok(true)
    }

    fn is_compaction_due(&mut self) -> bool {
        let (now, log_bytes) = (Instant::now(), self.log_bytes());
        if now < self.compacting.at {
            return false;
        }
        if log_bytes > self.snapshot_bytes.max(MIN_LOG_BYTES) {
            return true;
        }
        if now < self.compact_at {
            return false;
        }
        // To count the keys, all shards are locked.
        self.compact_at = now + self.schedule.compact;
        let in_snapshot = self.snapshot_bytes.checked_div(self.snapshot_records).unwrap_or(0);
        let stats = self.copier.memory.stats();
        let live = (stats.keys + stats.reservations) as u64 * in_snapshot.max(RECORD_BYTES);
        self.is_damaged
            || log_bytes + self.snapshot_bytes > 2 * live + self.schedule.min_obsolete_bytes
    }

    fn log_bytes(&self) -> u64 {
        self.older_log_bytes + self.log.as_ref().map_or(0, |log| log.bytes)
    }

    /// Abandons the log. Everything has to be saved, after a wait.
    fn fail(&mut self, error: &io::Error) {
        self.abandon_log();
        self.warn(error);
    }

    fn abandon_log(&mut self) {
        if let Some(log) = self.log.take() {
            self.older_log_bytes += log.bytes;
        }
    }

    fn warn_lost(&mut self, error: &io::Error) {
        self.status.files_lost.fetch_add(1, Ordering::Relaxed);
        *self.status.not_saved_because.lock() = Some(error.to_string());
        if let Some(suppressed) = self.lost_log.pass() {
            tracing::error!(
                path = %self.directory.path.display(),
                %error,
                sync_age_ms = self.status.sync_age().as_millis(),
                suppressed,
                "files of counters were removed or replaced: all keys are saved again"
            );
        }
    }

    /// Removes files that a snapshot replaces, the oldest first: whatever is left after a crash is whole.
    fn remove(&mut self, replaced: &[FileId]) {
        for &file in replaced {
            if let Err(error) = self.directory.remove(file) {
                // The next start or snapshot tries it again.
                return self.warn_compaction(&error);
            }
        }
    }

    /// Counts and logs an error after which the log goes on.
    fn warn_compaction(&mut self, error: &io::Error) {
        self.status.write_errors.fetch_add(1, Ordering::Relaxed);
        let retry_ms = self.compacting.back_off().as_millis();
        if let Some(suppressed) = self.compacting.log.pass() {
            tracing::error!(
                path = %self.directory.path.display(),
                %error,
                retry_ms,
                suppressed,
                "cannot replace files of counters by a snapshot: counters are saved, but files grow"
            );
        }
    }

    /// Counts and logs a write error, and sets when to try again.
    fn warn(&mut self, error: &io::Error) {
        self.status.write_errors.fetch_add(1, Ordering::Relaxed);
        *self.status.not_saved_because.lock() = Some(error.to_string());
        let retry_ms = self.saving.back_off().as_millis();
        if let Some(suppressed) = self.saving.log.pass() {
            tracing::error!(
                path = %self.directory.path.display(),
                %error,
                retry_ms,
                sync_age_ms = self.status.sync_age().as_millis(),
                suppressed,
                "cannot save counters: limits are enforced, but a restart loses the latest hits"
            );
        }
    }

    fn report_sizes(&self) {
        self.status.snapshot_bytes.store(self.snapshot_bytes, Ordering::Relaxed);
        self.status.log_bytes.store(self.log_bytes(), Ordering::Relaxed);
    }
}

impl<C> Drop for Writer<C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = "the thread that loads counters from disk has failed";
            self.status.not_loaded(error.to_owned());
        }
    }
}

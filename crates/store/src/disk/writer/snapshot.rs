//! Writes a snapshot of all keys, which replaces the older files of the disk store: now and then, and after an error.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Writer;
use crate::disk::file_id::FileId;
use crate::disk::record_file::RecordFile;
use crate::disk::schedule::Next;
use weir_common::clock::Clock;

/// A snapshot is synced after that many bytes: one sync at its end would delay the log's.
const SYNC_BYTES: u64 = 16 << 20;

const TOO_MANY: &str = "more reservations have changed meanwhile than can be listed";

impl<C: Clock> Writer<C> {
    /// Replaces all files by a snapshot and a new log, while changes are saved as ever.
    pub(super) fn compact(&mut self) {
        self.compact_at = Instant::now() + self.schedule.compact;
        // All that the older log lacks goes to the new one.
        let number = match self.start_log() {
            Ok(number) => number,
            // The older log is as good as it was.
            Err(error) => return self.warn_compaction(&error),
        };
        match self.write_snapshot(number, true) {
            Ok(true) => self.replaced_by(number),
            Ok(false) => {}
            Err(error) => self.warn_compaction(&error),
        }
    }

    /// Saves everything, and starts a new log: the last one has failed or lacks changes.
    pub(super) fn start_over(&mut self) {
        let started = Instant::now();
        self.abandon_log();
        let reopened = self.directory.reopen().map_err(io::Error::other);
        let log = reopened.and_then(|last| {
            self.next_number = self.next_number.max(last.saturating_add(1));
            self.start_log()
        });
        match log {
            Ok(number) => match self.write_snapshot(number, false) {
                Ok(_) => {
                    *self.status.synced.lock() = Some(started);
                    self.replaced_by(number);
                }
                Err(error) => {
                    self.log = None;
                    self.discard(FileId::log(number));
                    self.warn(&error);
                }
            },
            Err(error) => self.warn(&error),
        }
        self.report_sizes();
    }

    /// Writes all keys to a snapshot, and discards it unless it gets whole. With `saves_changes` it saves changes
    /// meanwhile, and returns false if the log that was started with it has failed, or the thread is to end; without, it
    /// drops the lists of changes, which it contains.
    ///
    /// A snapshot is whole only once it has, or its log has, the changes of reservations that were listed meanwhile:
    /// otherwise a restart could return hits that were returned before.
    fn write_snapshot(&mut self, number: u64, saves_changes: bool) -> io::Result<bool> {
        let file = FileId::snapshot(number);
        let (seal, bits) = (self.directory.seal(file), self.directory.meta.shard_bits);
        let snapshot = RecordFile::new(self.directory.create(file)?, seal, bits);
        let ended = self.fill_snapshot(file, snapshot, saves_changes);
        if !matches!(ended, Ok(true)) {
            self.discard(file);
        }
        ended
    }

    fn fill_snapshot(
        &mut self,
        file: FileId,
        mut snapshot: RecordFile,
        saves_changes: bool,
    ) -> io::Result<bool> {
        let shards = 0..self.copier.memory.shards();
        if !saves_changes {
            shards.clone().for_each(|shard| self.copier.memory.forget_changes(shard));
        }
        // Before their keys: what changes meanwhile is listed.
        self.copier.reservations(&mut snapshot)?;
        for shard in shards {
            if !saves_changes {
                // Before the keys are copied: what changes later is listed again.
                self.copier.memory.take_changes(shard);
            }
            self.copier.snapshot(shard, !saves_changes, &mut snapshot)?;
            if snapshot.unsynced_bytes() >= SYNC_BYTES {
                snapshot.sync()?;
            }
            if Instant::now() >= self.next_sync {
                if saves_changes {
                    self.save_changes_or_all();
                    self.report_sizes();
                } else {
                    self.append_changed_reservations(&mut snapshot)?;
                }
                // From its end: if it took longer than that, the snapshot goes on nevertheless.
                self.next_sync = Instant::now() + self.schedule.sync;
            }
            if saves_changes && self.is_abandoned(file) {
                return Ok(false);
            }
        }
        // A key may have been copied after a charge that changed a reservation, and the reservation before.
        if saves_changes {
            self.save_changes_or_all();
            if self.is_abandoned(file) {
                return Ok(false);
            }
        } else {
            self.append_changed_reservations(&mut snapshot)?;
        }
        snapshot.finish()?;
        self.directory.finish(file, &snapshot.file, snapshot.bytes)?;
        self.snapshot_bytes = snapshot.bytes;
        self.snapshot_records = snapshot.records;
        self.status.written_bytes.fetch_add(snapshot.bytes, Ordering::Relaxed);
        self.status.written_records.fetch_add(snapshot.records, Ordering::Relaxed);
        self.status.snapshots.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Appends the reservations that have changed since they were copied, each with its key.
    fn append_changed_reservations(&mut self, snapshot: &mut RecordFile) -> io::Result<()> {
        for shard in 0..self.copier.memory.shards() {
            let keys = self.copier.memory.keys_of_changed_reservations(shard);
            let keys = keys.ok_or_else(|| io::Error::other(TOO_MANY))?;
            self.copier.changes(shard, &keys, snapshot)?;
        }
        Ok(())
    }

    fn is_abandoned(&mut self, snapshot: FileId) -> bool {
        let log_goes_on = self.log.is_some() && self.log_number == snapshot.number;
        !log_goes_on || self.copier.commands.wait(Duration::ZERO) == Next::Finish
    }

    /// Records that a snapshot is whole, and removes the files that it replaces.
    fn replaced_by(&mut self, number: u64) {
        self.older_log_bytes = 0;
        self.is_damaged = false;
        self.compacting.backoff.reset();
        self.directory.keep_from(number);
        self.saving.backoff.reset();
        if self.status.not_saved_because.lock().take().is_some() {
            let path = self.directory.path.display();
            tracing::info!(%path, "counters are saved again");
        }
        let mut replaced = self.directory.files().unwrap_or_default();
        replaced.retain(|file| file.number < number);
        self.remove(&replaced);
    }

    /// Removes a file that is of no use. If that fails, the next start or snapshot does it.
    pub(super) fn discard(&mut self, file: FileId) {
        let _ = self.directory.remove(file);
    }
}

//! Loads the files of the disk store into memory, once, at the start.
//!
//! The newest whole snapshot, then the logs since it was begun, in order; the last record of a key or a reservation
//! wins. Without a whole snapshot, all that can be read, in order. Nothing is written meanwhile.
//!
//! A file that was closed is damaged if it has another size now. Other logs may end within a frame.

use std::io;

use super::closed;
use super::directory::{Directory, OpenError};
use super::file_id::{DiskFileKind, FileId};
use super::frame::{Damage, Frame, FrameKind, FrameReader};
use super::record::{self, Record};
use crate::memory::MemoryStore;
use weir_common::clock::Clock;
use weir_common::regular;

/// What was loaded, and what was damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub last_number: u64,
    pub snapshot_bytes: u64,
    pub snapshot_records: u64,
    pub logs: u64,
    pub log_bytes: u64,
    pub records: u64,
    /// Logs that end within a frame, as after a crash.
    pub torn_logs: u64,
    pub damage: DamageCounts,
    /// Whether there is no log, although there was one; also counted as damage.
    pub lacks_logs: bool,
    /// Files that a newer snapshot replaces, in order.
    pub replaced: Vec<FileId>,
}

/// What is not as it was written, other than the end of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageCounts {
    pub frames: u64,
    /// Records without a meaning in valid frames.
    pub records: u64,
    /// Snapshots that are not whole, files that are missing or shorter than when they were closed, a lost `meta`, and
    /// all logs if there is none.
    pub files: u64,
}

impl DamageCounts {
    pub fn is_any(&self) -> bool {
        *self != DamageCounts::default()
    }
}

/// Loads all into `memory`, which has no keys yet. Fails if a file cannot be read, which is no damage: it may be whole.
pub fn load<C: Clock>(
    directory: &Directory,
    memory: &MemoryStore<C>,
) -> Result<Recovery, OpenError> {
    let mut recovery = Recovery::default();
    let damage = &mut recovery.damage;
    damage.files += u64::from(directory.lost_meta);
    let path = || directory.path.clone();
    let files = directory.files().map_err(|error| OpenError::Io(path(), error))?;
    let closed = closed::read(&directory.path).unwrap_or_else(|error| {
        let path = directory.path.display();
        tracing::warn!(%path, %error, "cannot read the sizes of the files of counters in `closed`");
        damage.files += 1;
        Vec::new()
    });
    let missing = closed.iter().filter(|(file, _)| !files.contains(file)).count();
    damage.files += missing as u64;
    // Without sizes, nothing else shows that files are missing.
    let has_log = files.iter().any(|file| file.kind == DiskFileKind::Log);
    recovery.lacks_logs = directory.meta.has_logs && !has_log && closed.is_empty();
    damage.files += u64::from(recovery.lacks_logs);
    recovery.last_number = files.last().map_or(0, |file| file.number);
    let start = recovery.newest_whole_snapshot(directory, &files)?;
    for &file in &files {
        let is_skipped = |start: FileId| file.kind == DiskFileKind::Snapshot && file != start;
        if start.is_some_and(|start| file < start) {
            recovery.replaced.push(file);
        } else if !start.is_some_and(is_skipped) {
            let size = closed.iter().find(|(closed, _)| *closed == file);
            recovery.load_file(directory, memory, file, size.map(|(_, bytes)| *bytes))?;
        }
    }
    if recovery.damage.is_any() {
        // What is missing may have settled some of them: they must not return the same hits again.
        memory.forget_reservations();
    }
    memory.loaded();
    Ok(recovery)
}

impl Recovery {
    /// Returns the snapshot to load first; none if all files are to be loaded in order. A snapshot that no file is
    /// older than is that, whole or not.
    fn newest_whole_snapshot(
        &mut self,
        directory: &Directory,
        files: &[FileId],
    ) -> Result<Option<FileId>, OpenError> {
        let snapshots = files.iter().copied().filter(|file| file.kind == DiskFileKind::Snapshot);
        for (damaged, file) in snapshots.rev().enumerate() {
            if files.first() == Some(&file) || is_whole(directory, file)? {
                self.damage.files += damaged as u64;
                return Ok(Some(file));
            }
        }
        // All are loaded, and counted then.
        Ok(None)
    }

    /// Loads a file, which had `closed_bytes` if the last process has closed it.
    fn load_file<C: Clock>(
        &mut self,
        directory: &Directory,
        memory: &MemoryStore<C>,
        file: FileId,
        closed_bytes: Option<u64>,
    ) -> Result<(), OpenError> {
        let bits = directory.meta.shard_bits;
        let (mut records, mut invalid) = (0, 0);
        let read = read_file(directory, file, |bytes, shard_bits| {
            // Shards are numbered in order: with half as many, two neighbours are one.
            let Some(shift) = shard_bits.checked_sub(bits).filter(|&shift| shift <= 16) else {
                invalid += 1;
                return;
            };
            while !bytes.is_empty() {
                let Some(record) = record::read(bytes) else {
                    invalid += 1;
                    return;
                };
                let shard = |number| usize::from(number) >> shift;
                records += 1;
                match record {
                    Record::Slot(number, slot) => memory.load(shard(number), slot),
                    Record::Removed(number, print) => memory.forget(shard(number), &print),
                    Record::Reservation(saved) => memory.load_reservation(saved),
                }
            }
        });
        self.records += records;
        self.damage.records += invalid;
        let ended = read.map_err(|error| directory.unreadable(file, error))?;
        self.damage.frames += ended.damage.frames;
        match file.kind {
            DiskFileKind::Log => {
                self.logs += 1;
                self.log_bytes += ended.bytes;
                let is_cut = closed_bytes.is_some_and(|bytes| bytes != ended.bytes);
                self.damage.files += u64::from(is_cut);
                self.torn_logs += u64::from(ended.damage.torn && !is_cut);
            }
            DiskFileKind::Snapshot => {
                (self.snapshot_bytes, self.snapshot_records) = (ended.bytes, records);
                let whole = ended.is_whole_snapshot(records);
                self.damage.files += u64::from(!whole && ended.damage.frames == 0);
            }
        }
        Ok(())
    }
}

fn is_whole(directory: &Directory, file: FileId) -> Result<bool, OpenError> {
    let mut records = 0;
    let ended = read_file(directory, file, |bytes, _| {
        while record::read(bytes).is_some() {
            records += 1;
        }
    });
    let ended = ended.map_err(|error| directory.unreadable(file, error))?;
    Ok(ended.is_whole_snapshot(records))
}

#[derive(Clone, Copy, Debug, Default)]
struct FileEnd {
    bytes: u64,
    damage: Damage,
    /// The number of records in the footer, if that was the last frame.
    footer: Option<u64>,
}

impl FileEnd {
    fn is_whole_snapshot(&self, records: u64) -> bool {
        self.damage == Damage::default() && self.footer == Some(records)
    }
}

/// Calls `records` with the bytes of whole records, and the number of shards that they are of.
fn read_file(
    directory: &Directory,
    file: FileId,
    mut records: impl FnMut(&mut &[u8], u8),
) -> io::Result<FileEnd> {
    let source = regular::open(&directory.path.join(file.name()))?;
    let mut ended = FileEnd { bytes: source.metadata()?.len(), ..FileEnd::default() };
    let mut frames = FrameReader::new(source, directory.seal(file));
    // The parts so far of a record that is longer than a frame.
    let mut parts: Option<Vec<u8>> = None;
    while let Some(Frame { kind, shard_bits, follows, mut payload }) = frames.read()? {
        ended.footer = None;
        let mut joined = parts.take().filter(|_| follows);
        joined.iter_mut().for_each(|parts| parts.extend_from_slice(payload));
        match kind {
            FrameKind::Records => records(&mut payload, shard_bits),
            FrameKind::FirstPart => parts = Some(payload.to_vec()),
            FrameKind::Part => parts = joined,
            FrameKind::LastPart => {
                joined.iter().for_each(|record| records(&mut &**record, shard_bits));
            }
            FrameKind::Footer => {
                ended.footer = payload.first_chunk().copied().map(u64::from_le_bytes)
            }
        }
    }
    ended.damage = frames.damage();
    Ok(ended)
}

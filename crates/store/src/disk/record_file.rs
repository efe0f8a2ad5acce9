//! A log or a snapshot of the disk store while it is written.

use std::fs::File;
use std::io::{self, Write};

use super::frame::{FrameBuilder, FrameKind, MAX_PAYLOAD_BYTES, Seal};

/// Appends records to a new file, in frames. After an error it must not be used any more: how much of a frame was
/// written, and what a failed sync has dropped, is unknown.
#[derive(Debug)]
pub struct RecordFile {
    pub file: File,
    frame: FrameBuilder,
    pub bytes: u64,
    pub records: u64,
    synced_bytes: u64,
}

impl RecordFile {
    pub fn new(file: File, seal: Seal, shard_bits: u8) -> RecordFile {
        let frame = FrameBuilder::new(seal, shard_bits);
        RecordFile { file, frame, bytes: 0, records: 0, synced_bytes: 0 }
    }

    /// Checks that no other program has changed the length of the file.
    pub fn verify(&self) -> io::Result<()> {
        let bytes = self.file.metadata()?.len();
        if bytes == self.bytes {
            return Ok(());
        }
        let error = format!("the log has {bytes} bytes instead of {}", self.bytes);
        Err(io::Error::other(error))
    }

    pub fn unsynced_bytes(&self) -> u64 {
        self.bytes - self.synced_bytes
    }

    /// Appends `count` records, of which a reader finds all or none; writes when a frame is full.
    pub fn append(&mut self, records: &[u8], count: usize) -> io::Result<()> {
        self.records += count as u64;
        if records.len() > self.frame.room() {
            self.flush()?;
        }
        if records.len() <= self.frame.room() {
            self.frame.append(records);
            return Ok(());
        }
        let mut parts = records.chunks(MAX_PAYLOAD_BYTES).peekable();
        let mut kind = FrameKind::FirstPart;
        while let Some(part) = parts.next() {
            self.frame.append(part);
            self.write(if parts.peek().is_some() { kind } else { FrameKind::LastPart })?;
            kind = FrameKind::Part;
        }
        Ok(())
    }

    /// Writes what is left of the last frame, and waits until all is on disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if self.unsynced_bytes() > 0 {
            self.file.sync_data()?;
            self.synced_bytes = self.bytes;
        }
        Ok(())
    }

    /// Ends a snapshot with a footer, by which it is known to be whole, and syncs it.
    pub fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.frame.append(&self.records.to_le_bytes());
        self.write(FrameKind::Footer)?;
        self.sync()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() { Ok(()) } else { self.write(FrameKind::Records) }
    }

    fn write(&mut self, kind: FrameKind) -> io::Result<()> {
        let frame = self.frame.seal(kind);
        self.file.write_all(frame)?;
        self.bytes += frame.len() as u64;
        self.frame.clear();
        Ok(())
    }
}

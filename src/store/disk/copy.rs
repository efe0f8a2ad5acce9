//! Copies slots from memory to files, without locking a shard for long.

use std::io;

use super::record;
use super::record_file::RecordFile;
use crate::clock::Clock;
use crate::store::memory::MemoryStore;
use crate::store::memory::fingerprint::Print;

/// A shard is unlocked after that many keys or bytes: some tens of microseconds.
const SLICE_KEYS: usize = 256;
const SLICE_BYTES: usize = 64 << 10;

/// Copies slots in slices, each under the lock of its shard, and writes them after that.
#[derive(Debug, Default)]
pub struct Copier {
    bytes: Vec<u8>,
    /// Where each record of `bytes` ends.
    ends: Vec<usize>,
}

impl Copier {
    /// Appends the records of keys that changed. A key without a slot was removed.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn changes<C: Clock>(
        &mut self,
        memory: &MemoryStore<C>,
        shard: usize,
        prints: &[Print],
        log: &mut RecordFile,
    ) -> io::Result<()> {
        self.copy(memory, shard, prints, None, log)
    }

    /// Appends the records of all keys of a shard that have not expired.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub fn snapshot<C: Clock>(
        &mut self,
        memory: &MemoryStore<C>,
        shard: usize,
        snapshot: &mut RecordFile,
    ) -> io::Result<()> {
        // Keys that are inserted meanwhile are listed as changed.
        let prints = memory.prints(shard);
        self.copy(memory, shard, &prints, Some(memory.now_seconds()), snapshot)
    }

    /// With a time, keys that have expired then or have no slot are left out.
    fn copy<C: Clock>(
        &mut self,
        memory: &MemoryStore<C>,
        shard: usize,
        prints: &[Print],
        live_at: Option<u64>,
        file: &mut RecordFile,
    ) -> io::Result<()> {
        // There are at most 2^16 shards.
        let shard_number = shard as u16;
        let mut left = prints;
        while !left.is_empty() {
            let Copier { bytes, ends } = self;
            bytes.clear();
            ends.clear();
            let mut looked = 0;
            left = memory.copy_slots(shard, left, |print, slot| {
                looked += 1;
                let is_left_out =
                    live_at.is_some_and(|now| slot.is_none_or(|slot| slot.expires <= now));
                if !is_left_out {
                    record::write(shard_number, print, slot, bytes);
                    ends.push(bytes.len());
                }
                looked < SLICE_KEYS && bytes.len() < SLICE_BYTES
            });
            let mut start = 0;
            for &end in ends.iter() {
                file.append(bytes.get(start..end).unwrap_or_default())?;
                start = end;
            }
        }
        // One long log must not stay allocated.
        self.bytes.shrink_to(2 * SLICE_BYTES);
        Ok(())
    }
}

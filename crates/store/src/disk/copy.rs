//! Copies keys and their states from the memory store to a log or snapshot, without locking a shard of keys for long.

use std::io;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::record;
use super::record_file::RecordFile;
use super::schedule::Commands;
use crate::memory::MemoryStore;
use crate::memory::changes::{SavedReservation, SavedSlot, SavedValue};
use crate::memory::fingerprint::Print;
use weir_common::clock::Clock;
use weir_limit::{LogCopy, NextPart, State};

/// A shard is unlocked after that many keys or bytes, and one state more: within 0.1 ms, except for a state of many
/// thousand holds, all of which every charge of its key reads too. Longer logs of hits are copied in parts.
const SLICE_KEYS: usize = 256;
const SLICE_BYTES: usize = 64 << 10;

/// How often a copy in parts is tried before a log is copied as a whole.
const MAX_TRIES: usize = 4;

/// The time between two parts of a long log. Without it, requests would find the shard locked most of the time, and a
/// thread that sleeps until it is unlocked wakes up late on a busy machine.
const PART_PAUSE: Duration = Duration::from_micros(50);

/// Copies slots (a slot has a key's state) in slices, each under the lock of its shard, then writes them, then rests.
#[derive(Debug)]
pub struct Copier<C> {
    pub memory: Arc<MemoryStore<C>>,
    pub commands: Commands,
    bytes: Vec<u8>,
    /// Where each record of `bytes` ends, and the reservations that belong to it.
    ends: Vec<(usize, Vec<SavedReservation>)>,
    /// The record of a key, followed by the records of its reservations.
    unit: Vec<u8>,
}

impl<C: Clock> Copier<C> {
    pub fn new(memory: Arc<MemoryStore<C>>, commands: Commands) -> Copier<C> {
        let (bytes, ends, unit) = Default::default();
        Copier { memory, commands, bytes, ends, unit }
    }

    /// Appends the records of changed keys, each with those of its changed reservations, which are taken.
    pub fn changes(
        &mut self,
        shard: usize,
        prints: &[Print],
        log: &mut RecordFile,
    ) -> io::Result<()> {
        self.copy(shard, prints, None, true, log)
    }

    pub fn reservations(&mut self, snapshot: &mut RecordFile) -> io::Result<()> {
        for shard in 0.. {
            let Some(reservations) = self.memory.saved_reservations(shard) else { break };
            for saved in reservations {
                self.unit.clear();
                record::write_reservation(&saved, &mut self.unit);
                snapshot.append(&self.unit, 1)?;
            }
            self.commands.rest();
        }
        Ok(())
    }

    /// Appends the records of all keys of a shard that have not expired.
    pub fn snapshot(
        &mut self,
        shard: usize,
        takes_reservations: bool,
        snapshot: &mut RecordFile,
    ) -> io::Result<()> {
        // Keys that are inserted meanwhile are listed as changed.
        let prints = self.memory.prints(shard);
        let live_at = Some(self.memory.now_seconds());
        self.copy(shard, &prints, live_at, takes_reservations, snapshot)
    }

    /// Appends the records of keys. With `live_at`, those that have expired then or have no slot are skipped. If it
    /// `takes_reservations`, the changed reservations of the keys are copied with them, and taken.
    fn copy(
        &mut self,
        shard: usize,
        prints: &[Print],
        live_at: Option<u64>,
        takes_reservations: bool,
        file: &mut RecordFile,
    ) -> io::Result<()> {
        // There are at most 2^16 shards.
        let shard_number = shard as u16;
        let mut left = prints;
        while !left.is_empty() {
            let Copier { memory, bytes, ends, unit, .. } = self;
            bytes.clear();
            bytes.reserve(2 * SLICE_BYTES);
            ends.clear();
            // Keys whose logs are to be copied in parts.
            let mut long = Vec::new();
            let mut looked = 0;
            left = memory.copy_slots(shard, left, takes_reservations, |print, slot, changed| {
                looked += 1;
                let is_skipped = changed.is_empty()
                    && live_at.is_some_and(|now| slot.is_none_or(|slot| slot.expires <= now));
                // Nothing is reserved where each hit is in a log.
                match changed.is_empty() && has_long_log(&slot) {
                    _ if is_skipped => {}
                    true => long.push(*print),
                    false => {
                        record::write(shard_number, print, slot, bytes);
                        ends.push((bytes.len(), changed));
                    }
                }
                looked < SLICE_KEYS && bytes.len() < SLICE_BYTES
            });
            let mut start = 0;
            for (end, changed) in ends.drain(..) {
                let key = bytes.get(start..end).unwrap_or_default();
                start = end;
                if changed.is_empty() {
                    file.append(key, 1)?;
                    continue;
                }
                unit.clear();
                unit.extend_from_slice(key);
                changed.iter().for_each(|saved| record::write_reservation(saved, unit));
                file.append(unit, 1 + changed.len())?;
            }
            for print in long {
                self.copy_long(shard, &print, file)?;
            }
            self.commands.rest();
        }
        // One large state must not stay allocated.
        self.bytes.shrink_to(2 * SLICE_BYTES);
        self.unit.shrink_to(SLICE_BYTES);
        Ok(())
    }

    fn copy_long(&mut self, shard: usize, print: &Print, file: &mut RecordFile) -> io::Result<()> {
        let mut log = LogCopy::default();
        for tries in 0.. {
            let Copier { memory, bytes, .. } = self;
            bytes.clear();
            log.clear();
            let mut started = None;
            memory.copy_slots(shard, slice::from_ref(print), false, |print, slot, _| {
                match slot {
                    Some(slot @ SavedSlot { value: SavedValue::Boxed(state), .. })
                        if LogCopy::is_long(state.log()) && tries < MAX_TRIES =>
                    {
                        started =
                            Some(record::write_without_log(shard as u16, &slot, state, bytes));
                        log.begin(state.log());
                    }
                    // It is not long any more.
                    slot => record::write(shard as u16, print, slot, bytes),
                }
                false
            });
            match started {
                None => break,
                Some(start) if self.copy_rest(shard, print, &mut log) => {
                    log.save(&mut self.bytes);
                    record::end_state(start, &mut self.bytes);
                    break;
                }
                Some(_) => {}
            }
        }
        file.append(&self.bytes, 1)
    }

    /// Copies the rest of a log. Returns false if that has to start over.
    fn copy_rest(&mut self, shard: usize, print: &Print, log: &mut LogCopy) -> bool {
        loop {
            log.prepare();
            self.commands.wait(PART_PAUSE);
            match self.memory.read_boxed(shard, print, |state| log.copy_next(state.log())) {
                Some(NextPart::More) => {}
                Some(NextPart::None) => return true,
                Some(NextPart::Moved) | None => return false,
            }
        }
    }
}

fn has_long_log(slot: &Option<SavedSlot<SavedValue<&State>>>) -> bool {
    let state = slot.as_ref().map(|slot| &slot.value);
    matches!(state, Some(SavedValue::Boxed(state)) if LogCopy::is_long(state.log()))
}

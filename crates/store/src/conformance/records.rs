//! What the disk store reads of any bytes, it must read back once it has written it.

use crate::disk::record::{Record, read, write, write_reservation};
use crate::memory::changes::{SavedSlot, SavedValue};

/// Reads records, and those again that are written of them. Returns whether these are the same.
pub fn are_kept(mut bytes: &[u8]) -> bool {
    let mut written = Vec::new();
    while let Some(record) = read(&mut bytes) {
        written.clear();
        match &record {
            Record::Removed(shard, print) => write(*shard, print, None, &mut written),
            Record::Reservation(saved) => write_reservation(saved, &mut written),
            Record::Slot(shard, SavedSlot { print, fill, expires, value }) => {
                let value = match value {
                    SavedValue::Packed(packed) => SavedValue::Packed(*packed),
                    SavedValue::Boxed(state) => SavedValue::Boxed(&**state),
                };
                let slot = SavedSlot { print: *print, fill: *fill, expires: *expires, value };
                write(*shard, print, Some(slot), &mut written);
            }
        }
        if read(&mut &*written) != Some(record) {
            return false;
        }
    }
    true
}

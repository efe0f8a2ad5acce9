//! Encodes records: what the disk store's logs and snapshots have of one key, or of one reservation.
//!
//! A key:
//!
//! | Bytes | |
//! | --- | --- |
//! | 1 | what the key has (removed, a packed state of 12 bytes, or a boxed longer one), and how full that is |
//! | 2 | shard |
//! | 11 | fingerprint |
//! | 5 | when it expires, in seconds since the Unix epoch; all ones for never |
//! | 12, or 4 and more | packed state, or length and bytes of a boxed state |
//!
//! Numbers are little-endian. A removed key has only the first three: it went before its written expiry, as after a
//! refund. Otherwise its old hits would return at the next start.
//!
//! A reservation, hits charged under an id before it is known how many are used:
//!
//! | Bytes | |
//! | --- | --- |
//! | 1 | whether it is open or ended |
//! | 11 | fingerprint of key and id |
//! | 5 | when it lapses, in seconds since the Unix epoch |
//! | 4 | hits |
//! | 2 | the number of reservations that they are the sum of |
//! | 2 | the limits that charged them, a bit each |
//! | 8 | the time for which they count, in microseconds since the Unix epoch |
//! | 2 | the tag of the request that made it, or 0 |
//!
//! One that has ended has only the first two. Reservations follow, without a gap, the key whose charges have changed
//! them; in a snapshot also on their own. Other fingerprints need other numbers in the first byte, as a test checks.

use crate::memory::changes::{NEVER, SavedReservation, SavedSlot, SavedValue};
use crate::memory::fingerprint::Print;
use weir_limit::{Fill, Reservation, SECOND, State};

/// The bytes of most records.
pub const RECORD_BYTES: u64 = 31;

const REMOVED: u8 = 0;
const PACKED: u8 = 1;
const BOXED: u8 = 2;
pub const RESERVATION: u8 = 5;
const RESERVATION_ENDED: u8 = 6;

/// The largest expiry that five bytes can say is never.
const WRITTEN_NEVER: u64 = (1 << 40) - 1;

#[derive(Debug, PartialEq)]
pub enum Record {
    Removed(u16, Print),
    Slot(u16, SavedSlot<SavedValue<Box<State>>>),
    Reservation(SavedReservation),
}

/// Appends the record of a key; without a slot it is removed.
pub fn write(
    shard: u16,
    print: &Print,
    slot: Option<SavedSlot<SavedValue<&State>>>,
    out: &mut Vec<u8>,
) {
    let Some(slot) = slot else { return write_head(REMOVED, shard, print, out) };
    match slot.value {
        SavedValue::Packed(packed) => {
            write_slot(PACKED, shard, &slot, out);
            packed.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        SavedValue::Boxed(state) => {
            let start = write_without_log(shard, &slot, state, out);
            state.log().save(out);
            end_state(start, out);
        }
    }
}

/// Appends the record of a key with a boxed state, up to the log of the state, which is to follow. Returns where the
/// state has its length.
pub fn write_without_log<V>(
    shard: u16,
    slot: &SavedSlot<V>,
    state: &State,
    out: &mut Vec<u8>,
) -> usize {
    write_slot(BOXED, shard, slot, out);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    state.save_limits(out);
    start
}

fn write_slot<V>(kind: u8, shard: u16, slot: &SavedSlot<V>, out: &mut Vec<u8>) {
    write_head(kind | (slot.fill as u8) << 4, shard, &slot.print, out);
    out.extend_from_slice(&slot.expires.min(WRITTEN_NEVER).to_le_bytes()[..5]);
}

fn write_head(kind: u8, shard: u16, print: &Print, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&shard.to_le_bytes());
    out.extend_from_slice(print);
}

/// Fills in the length of a boxed state, which is at `start`.
pub fn end_state(start: usize, out: &mut [u8]) {
    let end = start + 4;
    let length = (out.len() - end) as u32;
    if let Some(field) = out.get_mut(start..end) {
        field.copy_from_slice(&length.to_le_bytes());
    }
}

pub fn write_reservation(saved: &SavedReservation, out: &mut Vec<u8>) {
    let SavedReservation { print, reservation } = saved;
    out.push(if reservation.is_some() { RESERVATION } else { RESERVATION_ENDED });
    out.extend_from_slice(print);
    if let Some(reservation) = reservation {
        let lapses = (reservation.lapses / SECOND).min(WRITTEN_NEVER);
        out.extend_from_slice(&lapses.to_le_bytes()[..5]);
        out.extend_from_slice(&reservation.hits.to_le_bytes());
        out.extend_from_slice(&reservation.count.to_le_bytes());
        out.extend_from_slice(&reservation.limits.to_le_bytes());
        out.extend_from_slice(&reservation.taken.to_le_bytes());
        out.extend_from_slice(&reservation.tag.to_le_bytes());
    }
}

fn read_reservation(is_open: bool, bytes: &mut &[u8]) -> Option<SavedReservation> {
    let print = take(bytes)?;
    if !is_open {
        return Some(SavedReservation { print, reservation: None });
    }
    let lapses = read_seconds(bytes)? * SECOND;
    let hits = u32::from_le_bytes(take(bytes)?);
    let count = u16::from_le_bytes(take(bytes)?);
    let limits = u16::from_le_bytes(take(bytes)?);
    let taken = u64::from_le_bytes(take(bytes)?);
    let tag = u16::from_le_bytes(take(bytes)?);
    let reservation = Some(Reservation { hits, count, limits, taken, lapses, tag });
    Some(SavedReservation { print, reservation })
}

fn read_seconds(bytes: &mut &[u8]) -> Option<u64> {
    let [a, b, c, d, e] = take(bytes)?;
    Some(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
}

/// Takes the record at the start of `bytes`; none if there is no valid one.
pub fn read(bytes: &mut &[u8]) -> Option<Record> {
    let [kind] = take(bytes)?;
    if let RESERVATION | RESERVATION_ENDED = kind {
        return read_reservation(kind == RESERVATION, bytes).map(Record::Reservation);
    }
    let shard = u16::from_le_bytes(take(bytes)?);
    let print: Print = take(bytes)?;
    let fill = *[Fill::Low, Fill::High, Fill::Full].get(usize::from(kind >> 4))?;
    let kind = kind & 0xf;
    if kind == REMOVED {
        return Some(Record::Removed(shard, print));
    }
    let expires = match read_seconds(bytes)? {
        WRITTEN_NEVER => NEVER,
        seconds => seconds,
    };
    let value = match kind {
        PACKED => {
            let mut word = || Some(u32::from_le_bytes(take(bytes)?));
            SavedValue::Packed([word()?, word()?, word()?])
        }
        BOXED => {
            let length = u32::from_le_bytes(take(bytes)?) as usize;
            let (state, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            SavedValue::Boxed(Box::new(State::restore(state)?))
        }
        _ => return None,
    };
    Some(Record::Slot(shard, SavedSlot { print, fill, expires, value }))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::conformance::records::are_kept;

    const PRINT: Print = *b"fingerprint";

    fn slot<V>(fill: Fill, expires: u64, value: V) -> SavedSlot<V> {
        SavedSlot { print: PRINT, fill, expires, value }
    }

    #[test]
    fn records_are_read_back() {
        let packed = [1, u32::MAX, 3];
        let mut bytes = Vec::new();
        write(0, &PRINT, None, &mut bytes);
        for (fill, expires) in [(Fill::Low, 7), (Fill::High, NEVER), (Fill::Full, 1 << 39)] {
            let value = SavedValue::Packed(packed);
            write(u16::MAX, &PRINT, Some(slot(fill, expires, value)), &mut bytes);
        }
        let state = State::default();
        let boxed = slot(Fill::Low, 1, SavedValue::Boxed(&state));
        write(9, &PRINT, Some(boxed), &mut bytes);

        let mut rest = &*bytes;
        assert_eq!(read(&mut rest), Some(Record::Removed(0, PRINT)));
        for (fill, expires) in [(Fill::Low, 7), (Fill::High, NEVER), (Fill::Full, 1 << 39)] {
            let left = rest.len();
            let expected = Record::Slot(u16::MAX, slot(fill, expires, SavedValue::Packed(packed)));
            assert_eq!(read(&mut rest), Some(expected));
            assert_eq!((left - rest.len()) as u64, RECORD_BYTES);
        }
        let expected = slot(Fill::Low, 1, SavedValue::Boxed(Box::new(State::default())));
        assert_eq!(read(&mut rest), Some(Record::Slot(9, expected)));
        assert_eq!((rest.len(), read(&mut rest)), (0, None));
    }

    #[test]
    fn reservations_are_read_back() {
        let open = |lapses| {
            let (hits, count, limits, taken) = (u32::MAX, 1, 1 << 15, u64::MAX - 1);
            let reservation = Some(Reservation { hits, count, limits, taken, lapses, tag: 258 });
            SavedReservation { print: PRINT, reservation }
        };
        let ended = SavedReservation { print: PRINT, reservation: None };
        let saved = [open(0), ended, open(((1 << 40) - 1) * SECOND)];
        let mut bytes = Vec::new();
        saved.iter().for_each(|saved| write_reservation(saved, &mut bytes));
        assert_eq!(bytes.len(), 35 + 12 + 35);
        let mut rest = &*bytes;
        for saved in saved {
            assert_eq!(read(&mut rest), Some(Record::Reservation(saved)));
        }
        assert_eq!((rest.len(), read(&mut rest)), (0, None));
        // Later than can be written.
        write_reservation(&open(u64::MAX), &mut bytes);
        assert_eq!(read(&mut &bytes[82..]), Some(Record::Reservation(saved[2])));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn any_bytes_are_harmless(
            kind in 0..8_u8,
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            // A plausible length of a boxed state, and few limits.
            if let (2, Some(length)) = (kind, bytes.get_mut(19..24)) {
                length.copy_from_slice(&[100, 0, 0, 0, 1]);
            }
            prop_assert!(are_kept(&bytes));
        }
    }
}

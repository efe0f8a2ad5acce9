//! Reads records of reservations: hits that were reserved under an id, to be settled later. Each has a key of its own.

use super::format::{LuaModule, Reader};
use super::numbers::LAYOUT;
use weir_limit::{Reservation, SECOND};

pub(super) const MODULE: LuaModule = LuaModule::new(
    15,
    concat!(include_str!("../lua/records.lua"), include_str!("../lua/reservations.lua")),
);

pub(crate) const RESERVATIONS: u16 = 1 << MODULE.number;

/// Reads what an id has reserved from a reply: the length of the record, and the record. `None` if it is invalid.
pub(crate) fn read_reservation(reply: &mut Reader<'_>) -> Option<Option<Reservation>> {
    let len = reply.short()?;
    match reply.bytes(len as usize)? {
        [] => Some(None),
        record => Some(Some(read_record(record)?)),
    }
}

/// Reads what an id has reserved from its record; `None` if that is invalid.
pub(crate) fn read_record(record: &[u8]) -> Option<Reservation> {
    let mut record = Reader(record);
    if record.bytes(1)? != [LAYOUT] {
        return None;
    }
    let reservation = Reservation {
        hits: record.short()?,
        count: record.half()?,
        limits: record.half()?,
        taken: record.wide()?,
        lapses: record.seconds()?.saturating_mul(SECOND),
        tag: record.half()?,
    };
    record.0.is_empty().then_some(reservation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_layout_that_records_have_for_good() {
        let record = [1, 9, 0, 0, 0, 2, 0, 5, 0, 7, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 1, 6, 1];
        let reply = |record: &[u8]| [&(record.len() as u32).to_le_bytes(), record].concat();
        let read = |reply: &[u8]| read_reservation(&mut Reader(reply));
        let reservation = Reservation {
            hits: 9,
            count: 2,
            limits: 0b101,
            taken: (1 << 48) + 7,
            lapses: ((1 << 32) + 3) * SECOND,
            tag: 262,
        };
        assert_eq!(read(&reply(&record)), Some(Some(reservation)));
        assert_eq!(read(&reply(&[])), Some(None));
        for bad in [&record[..22], &[&[2], &record[1..]].concat(), &[&record[..], &[0]].concat()] {
            assert_eq!(read(&reply(bad)), None);
        }
        assert_eq!(read(&reply(&record)[..20]), None);
    }
}

//! The states of keys as bytes, as the disk store saves and loads them.
//!
//! A state is a sequence of [varints](put_varint): the number of limits; for each its
//! [tag](crate::algorithm::LimitAlgorithm::TAG) and the numbers that its algorithm writes; then the length of the log
//! of hits and its stamps (times), each as the difference to the one before. What is written stays readable by later
//! versions: an algorithm whose numbers change takes a new tag.

pub(crate) mod log_copy;

use crate::time::Micros;

/// Writes a number as a varint, as Protobuf does: seven bits a byte, lowest first, the eighth set on all but the last.
/// `push` appends a byte to a buffer of any type.
// Inlined everywhere, as each decision writes some into its key and its response.
#[inline(always)]
pub fn put_varint(mut number: u64, mut push: impl FnMut(u8)) {
    while number >= 0x80 {
        push(number as u8 | 0x80);
        number >>= 7;
    }
    push(number as u8);
}

pub(super) fn put(out: &mut Vec<u8>, number: u64) {
    put_varint(number, |byte| out.push(byte));
}

/// Appends the length of a log and its stamps, the oldest first.
pub(super) fn put_log<'s>(out: &mut Vec<u8>, len: usize, stamps: impl Iterator<Item = &'s Micros>) {
    put(out, len as u64);
    let mut before = 0;
    for &stamp in stamps {
        put(out, stamp.wrapping_sub(before));
        before = stamp;
    }
}

/// The numbers of a state that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedNumbers<'a>(pub &'a [u8]);

impl SavedNumbers<'_> {
    /// Takes the next number; none at the end, or if it has more than 64 bits.
    pub fn next(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && bits > 1) {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub fn next_u32(&mut self) -> Option<u32> {
        u32::try_from(self.next()?).ok()
    }

    /// Takes the number of values that follow, of at least one byte each.
    pub fn next_len(&mut self) -> Option<usize> {
        let len = usize::try_from(self.next()?).ok()?;
        (len <= self.0.len()).then_some(len)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

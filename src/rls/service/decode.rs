//! Decodes a `RateLimitRequest` of Envoy in place: its strings are borrowed from the message.
//!
//! Accepts and rejects what prost does, field by field: the last of a repeated scalar field wins,
//! repeated messages are merged, unknown fields are skipped. Values of entries, however, may be any bytes.

#[cfg(test)]
mod tests;

use std::iter::zip;
use std::str::from_utf8;

use prost::encoding::{WireType, encode_key, encode_varint};
use smallvec::SmallVec;

use weir_common::value;
use weir_limiter::{Descriptor, Override, Request};
use weir_store::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is not a RateLimitRequest: {0}")]
pub struct DecodeError(&'static str);

/// The entries of all descriptors of a request, in order: what [`decode`](Self::decode) fills. Strings are borrowed from
/// the message.
#[derive(Debug, Default)]
pub struct RequestView<'a> {
    entries: SmallVec<[Entry<'a>; 8]>,
}

/// The descriptors of a request, each with its entries: what [`RequestView::decode`] fills.
pub type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

#[derive(Debug)]
pub struct Decoded<'a> {
    pub request: Request<'a>,
    /// The heap bytes that decoding has taken in addition to the message: 0 for small requests.
    pub heap_bytes: usize,
}

/// What a message has besides entries and descriptors.
#[derive(Debug, Default)]
struct Parts<'a> {
    domain: &'a str,
    hits_addend: u32,
    /// How many entries each descriptor has.
    entry_counts: SmallVec<[usize; 4]>,
    /// The number of descriptors beyond these, which were not kept.
    beyond: usize,
    /// The bytes of the message with texts in place of values that are not UTF-8; 0 if it has none.
    text_bytes: usize,
}

impl<'a> RequestView<'a> {
    /// Decodes a message into an empty view and an empty list of the caller: to return them would copy them. Of descriptors
    /// beyond `max_descriptors` only the number is kept. `texts` gets a copy of a message with values that are not UTF-8,
    /// which has their texts.
    #[inline]
    pub fn decode<'v: 'd, 'd>(
        &'v mut self,
        bytes: &'a [u8],
        max_descriptors: usize,
        texts: &'a mut Vec<u8>,
        descriptors: &'d mut Descriptors<'v>,
    ) -> Result<Decoded<'d>, DecodeError> {
        let parts = match self.read(bytes, max_descriptors, false, descriptors) {
            Ok(parts) => parts,
            Err(_) => self.read_texts(bytes, max_descriptors, texts, descriptors)?,
        };
        let mut rest = self.entries.as_slice();
        for (descriptor, count) in zip(descriptors.iter_mut(), &parts.entry_counts) {
            (descriptor.entries, rest) = rest.split_at(*count);
        }
        let heap_bytes = parts.text_bytes + heap_bytes(&self.entries, descriptors);
        let Parts { domain, hits_addend, beyond, .. } = parts;
        let (span, no_settling) = (None, None);
        let request = Request { domain, descriptors, beyond, hits_addend, span, no_settling };
        Ok(Decoded { request, heap_bytes })
    }

    #[cold]
    fn read_texts(
        &mut self,
        bytes: &[u8],
        max_descriptors: usize,
        texts: &'a mut Vec<u8>,
        descriptors: &mut Descriptors<'_>,
    ) -> Result<Parts<'a>, DecodeError> {
        *texts = with_texts(bytes, &PATH_OF_VALUES)?;
        self.entries = SmallVec::new();
        *descriptors = SmallVec::new();
        let text_bytes = texts.capacity();
        Ok(Parts { text_bytes, ..self.read(texts, max_descriptors, true, descriptors)? })
    }

    // This and what it calls are part of `decode`: calls would cost a tenth of it.
    #[inline(always)]
    fn read(
        &mut self,
        bytes: &'a [u8],
        max_descriptors: usize,
        has_texts: bool,
        descriptors: &mut Descriptors<'_>,
    ) -> Result<Parts<'a>, DecodeError> {
        let mut parts = Parts::default();
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field.number {
                1 => parts.domain = message.text(field)?,
                2 => {
                    let inner = message.message(field)?;
                    let entries = self.entries.len();
                    let descriptor = self.descriptor(inner, has_texts)?;
                    if descriptors.len() < max_descriptors {
                        descriptors.push(descriptor);
                        parts.entry_counts.push(self.entries.len() - entries);
                    } else {
                        self.entries.truncate(entries);
                        parts.beyond += 1;
                    }
                }
                3 => parts.hits_addend = message.varint(field)? as u32,
                _ => message.skip(field)?,
            }
        }
        Ok(parts)
    }

    /// Reads a descriptor. Its entries are added to the others.
    #[inline(always)]
    fn descriptor(
        &mut self,
        mut message: Message<'a>,
        has_texts: bool,
    ) -> Result<Descriptor<'static>, DecodeError> {
        let mut descriptor = Descriptor {
            entries: &[],
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
            budget: None,
        };
        while let Some(field) = message.next()? {
            match field.number {
                1 => self.entries.push(entry(message.message(field)?, has_texts)?),
                2 => limit(message.message(field)?, descriptor.limit.get_or_insert_default())?,
                3 => {
                    let hits = descriptor.hits_addend.get_or_insert_default();
                    wrapped(message.message(field)?, hits)?;
                }
                4 => descriptor.is_negative_hits = message.varint(field)? != 0,
                _ => message.skip(field)?,
            }
        }
        Ok(descriptor)
    }
}

#[inline(always)]
fn entry(mut message: Message<'_>, has_texts: bool) -> Result<Entry<'_>, DecodeError> {
    let (mut key, mut value) = ("", "");
    while let Some(field) = message.next()? {
        match field.number {
            1 => key = message.text(field)?,
            2 => {
                value = message.text(field)?;
                if value::is_encoded(value) && !has_texts {
                    return Err(NOT_UTF8);
                }
            }
            _ => message.skip(field)?,
        }
    }
    Ok((key, value))
}

fn heap_bytes(entries: &SmallVec<[Entry<'_>; 8]>, descriptors: &Descriptors<'_>) -> usize {
    /// Bytes for a key and its charge.
    const CHARGE_BYTES: usize = 1 << 10;
    let entries = if entries.spilled() { entries.capacity() } else { 0 };
    let descriptors = if descriptors.spilled() { descriptors.capacity() } else { 0 };
    let descriptor = size_of::<usize>() + size_of::<Descriptor<'_>>() + CHARGE_BYTES;
    entries * size_of::<Entry<'_>>() + descriptors * descriptor
}

/// The fields that lead from a request to a value: descriptors, their entries, the value.
const PATH_OF_VALUES: [u32; 3] = [2, 1, 2];

/// Returns a message with the texts of the values at the end of `path`.
fn with_texts(bytes: &[u8], path: &[u32]) -> Result<Vec<u8>, DecodeError> {
    let [number, rest @ ..] = path else { return Ok(value::encode(bytes).into_owned().into()) };
    let (mut message, mut written) = (Message::new(bytes), Vec::with_capacity(bytes.len()));
    loop {
        let before = message.rest;
        let Some(field) = message.next()? else { return Ok(written) };
        if field.number == *number {
            let inner = with_texts(message.bytes(field)?, rest)?;
            encode_key(*number, WireType::LengthDelimited, &mut written);
            encode_varint(inner.len() as u64, &mut written);
            written.extend(inner);
        } else {
            message.skip(field)?;
            written.extend(&before[..before.len() - message.rest.len()]);
        }
    }
}

fn limit(mut message: Message<'_>, limit: &mut Override) -> Result<(), DecodeError> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => limit.requests_per_unit = message.varint(field)? as u32,
            2 => limit.unit = message.varint(field)? as i32,
            3 => {
                let mut wide = limit.unit_multiplier.map_or(0, u64::from);
                wrapped(message.message(field)?, &mut wide)?;
                limit.unit_multiplier = Some(wide as u32);
            }
            _ => message.skip(field)?,
        }
    }
    Ok(())
}

/// Decodes a `google.protobuf.UInt64Value` or `UInt32Value`.
fn wrapped(mut message: Message<'_>, number: &mut u64) -> Result<(), DecodeError> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => *number = message.varint(field)?,
            _ => message.skip(field)?,
        }
    }
    Ok(())
}

/// How deeply messages and groups may be nested. prost has the same limit.
const MAX_DEPTH: u32 = 100;

/// The part of a message that has not been read.
struct Message<'a> {
    rest: &'a [u8],
    /// How many more levels may be nested in it.
    depth: u32,
}

#[derive(Clone, Copy)]
struct WireField {
    pub number: u32,
    wire_type: u8,
}

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FOUR_BYTES: u8 = 5;

const TRUNCATED: DecodeError = DecodeError("it ends within a field");
const WRONG_WIRE_TYPE: DecodeError = DecodeError("a field has the wrong wire type");
const NOT_UTF8: DecodeError = DecodeError("a domain or a key is not UTF-8");

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { rest: bytes, depth: MAX_DEPTH }
    }

    pub fn next(&mut self) -> Result<Option<WireField>, DecodeError> {
        if self.rest.is_empty() { Ok(None) } else { self.field().map(Some) }
    }

    fn field(&mut self) -> Result<WireField, DecodeError> {
        let key = u32::try_from(self.raw_varint()?)
            .map_err(|_| DecodeError("a field number is too large"))?;
        let field = WireField { number: key >> 3, wire_type: (key & 7) as u8 };
        if field.number == 0 || field.wire_type > FOUR_BYTES {
            return Err(DecodeError("a field has an invalid number or wire type"));
        }
        Ok(field)
    }

    /// Reads a varint: seven bits per byte, the lowest first.
    #[inline]
    fn raw_varint(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for (i, byte) in self.rest.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                if i == 9 && *byte > 1 {
                    return Err(DecodeError("a varint exceeds 64 bits"));
                }
                self.rest = &self.rest[i + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 {
            TRUNCATED
        } else {
            DecodeError("a varint is longer than 10 bytes")
        })
    }

    pub fn varint(&mut self, field: WireField) -> Result<u64, DecodeError> {
        if field.wire_type == VARINT { self.raw_varint() } else { Err(WRONG_WIRE_TYPE) }
    }

    fn bytes(&mut self, field: WireField) -> Result<&'a [u8], DecodeError> {
        if field.wire_type != LENGTH {
            return Err(WRONG_WIRE_TYPE);
        }
        let length = self.raw_varint()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn text(&mut self, field: WireField) -> Result<&'a str, DecodeError> {
        from_utf8(self.bytes(field)?).map_err(|_| NOT_UTF8)
    }

    pub fn message(&mut self, field: WireField) -> Result<Message<'a>, DecodeError> {
        Ok(Message { rest: self.bytes(field)?, depth: self.depth - 1 })
    }

    /// Skips a field, including all fields of a group.
    pub fn skip(&mut self, field: WireField) -> Result<(), DecodeError> {
        self.skip_nested(field, self.depth)
    }

    fn skip_nested(&mut self, field: WireField, depth: u32) -> Result<(), DecodeError> {
        if depth == 0 {
            return Err(DecodeError("groups are nested too deeply"));
        }
        match field.wire_type {
            VARINT => drop(self.raw_varint()?),
            EIGHT_BYTES => drop(self.take(8)?),
            FOUR_BYTES => drop(self.take(4)?),
            LENGTH => drop(self.bytes(field)?),
            GROUP => loop {
                let inner = self.field()?;
                if inner.wire_type == GROUP_END {
                    if inner.number != field.number {
                        return Err(DecodeError("a group ends that was not started"));
                    }
                    break;
                }
                self.skip_nested(inner, depth - 1)?;
            },
            _ => return Err(DecodeError("a group ends that was not started")),
        }
        Ok(())
    }
}

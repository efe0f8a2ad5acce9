//! Reads a `RateLimitRequest` in place: its text stays where it arrived.
//!
//! Takes and refuses what prost takes and refuses, field for field: the last of a field that is
//! sent twice counts, messages sent twice are merged, unknown fields are passed over.

use std::str::from_utf8;

use smallvec::SmallVec;

use crate::limiter::{Descriptor, Override, Request};
use crate::store::Entry;

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is not a RateLimitRequest: {0}")]
pub struct DecodeError(&'static str);

/// A request as it was sent.
#[derive(Debug, Default)]
pub struct RequestView<'a> {
    domain: &'a str,
    hits_addend: u32,
    descriptors: SmallVec<[DescriptorHeader; 4]>,
    /// Descriptors sent beyond these.
    beyond: usize,
    /// The entries of all descriptors, one after the other.
    entries: SmallVec<[Entry<'a>; 8]>,
}

/// A descriptor without its entries.
#[derive(Debug, Default)]
struct DescriptorHeader {
    entries: usize,
    limit: Option<Override>,
    hits_addend: Option<u64>,
    is_negative_hits: bool,
}

/// The descriptors of a request, each with its entries.
pub type Descriptors<'a> = SmallVec<[Descriptor<'a>; 4]>;

impl<'a> RequestView<'a> {
    /// Reads a whole message. Of descriptors beyond `most` nothing is kept but their number.
    pub fn decode(bytes: &'a [u8], most: usize) -> Result<RequestView<'a>, DecodeError> {
        let mut sent = RequestView::default();
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field.number {
                1 => sent.domain = message.text(field)?,
                2 => {
                    let inner = message.message(field)?;
                    let entries = sent.entries.len();
                    let head = sent.descriptor(inner)?;
                    if sent.descriptors.len() < most {
                        sent.descriptors.push(head);
                    } else {
                        sent.entries.truncate(entries);
                        sent.beyond += 1;
                    }
                }
                3 => sent.hits_addend = message.varint(field)? as u32,
                _ => message.skip(field, message.depth)?,
            }
        }
        Ok(sent)
    }

    fn descriptor(&mut self, mut message: Message<'a>) -> Result<DescriptorHeader, DecodeError> {
        let mut head = DescriptorHeader::default();
        while let Some(field) = message.next()? {
            match field.number {
                1 => {
                    self.entries.push(entry(message.message(field)?)?);
                    head.entries += 1;
                }
                2 => limit(message.message(field)?, head.limit.get_or_insert_default())?,
                3 => wrapped(message.message(field)?, head.hits_addend.get_or_insert_default())?,
                4 => head.is_negative_hits = message.varint(field)? != 0,
                _ => message.skip(field, message.depth)?,
            }
        }
        Ok(head)
    }

    /// Bytes that this, its descriptors and the keys made of them take beside the message and what
    /// lies in place: those of large requests.
    pub fn heap_bytes(&self) -> usize {
        /// A key and what its charge needs.
        const CHARGE: usize = 1 << 10;
        let entries = if self.entries.spilled() { self.entries.capacity() } else { 0 };
        let descriptors = if self.descriptors.spilled() { self.descriptors.capacity() } else { 0 };
        let descriptor = size_of::<DescriptorHeader>() + size_of::<Descriptor<'_>>() + CHARGE;
        entries * size_of::<Entry<'_>>() + descriptors * descriptor
    }

    /// The descriptors, to be asked for with [`request`](RequestView::request).
    pub fn descriptors(&self) -> Descriptors<'_> {
        let mut rest = self.entries.as_slice();
        let mut descriptors = Descriptors::with_capacity(self.descriptors.len());
        for head in &self.descriptors {
            let (entries, others) = rest.split_at(head.entries);
            rest = others;
            descriptors.push(Descriptor {
                entries,
                limit: head.limit,
                hits_addend: head.hits_addend,
                is_negative_hits: head.is_negative_hits,
            });
        }
        descriptors
    }

    /// What is asked.
    pub fn request<'b>(&'b self, descriptors: &'b [Descriptor<'b>]) -> Request<'b> {
        let RequestView { domain, beyond, hits_addend, .. } = *self;
        Request { domain, descriptors, beyond, hits_addend }
    }
}

fn entry<'a>(mut message: Message<'a>) -> Result<Entry<'a>, DecodeError> {
    let (mut key, mut value) = ("", "");
    while let Some(field) = message.next()? {
        match field.number {
            1 => key = message.text(field)?,
            2 => value = message.text(field)?,
            _ => message.skip(field, message.depth)?,
        }
    }
    Ok((key, value))
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
            _ => message.skip(field, message.depth)?,
        }
    }
    Ok(())
}

/// A number in a message of its own, so that its absence can be told from 0.
fn wrapped(mut message: Message<'_>, number: &mut u64) -> Result<(), DecodeError> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => *number = message.varint(field)?,
            _ => message.skip(field, message.depth)?,
        }
    }
    Ok(())
}

/// How deep messages and groups may lie in each other.
const MAX_DEPTH: u32 = 100;

/// What is left of a message.
struct Message<'a> {
    rest: &'a [u8],
    /// How many levels more there may be.
    depth: u32,
}

#[derive(Clone, Copy)]
struct Field {
    number: u32,
    wire: u8,
}

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FOUR_BYTES: u8 = 5;

const TRUNCATED: DecodeError = DecodeError("it ends within a field");
const WRONG_WIRE_TYPE: DecodeError = DecodeError("a field has another type");

impl<'a> Message<'a> {
    fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { rest: bytes, depth: MAX_DEPTH }
    }

    fn next(&mut self) -> Result<Option<Field>, DecodeError> {
        if self.rest.is_empty() { Ok(None) } else { self.field().map(Some) }
    }

    fn field(&mut self) -> Result<Field, DecodeError> {
        let key = u32::try_from(self.number()?)
            .map_err(|_| DecodeError("a field's number is too large"))?;
        let field = Field { number: key >> 3, wire: (key & 7) as u8 };
        if field.number == 0 || field.wire > FOUR_BYTES {
            return Err(DecodeError("a field has no number or no type"));
        }
        Ok(field)
    }

    /// A number of seven bits a byte, the lowest first.
    #[inline]
    fn number(&mut self) -> Result<u64, DecodeError> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for (i, byte) in self.rest.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                if i == 9 && *byte > 1 {
                    return Err(DecodeError("a number is too large"));
                }
                self.rest = &self.rest[i + 1..];
                return Ok(number);
            }
        }
        Err(if self.rest.len() < 10 { TRUNCATED } else { DecodeError("a number is too long") })
    }

    fn varint(&mut self, field: Field) -> Result<u64, DecodeError> {
        if field.wire == VARINT { self.number() } else { Err(WRONG_WIRE_TYPE) }
    }

    fn bytes(&mut self, field: Field) -> Result<&'a [u8], DecodeError> {
        if field.wire != LENGTH {
            return Err(WRONG_WIRE_TYPE);
        }
        let length = self.number()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    fn text(&mut self, field: Field) -> Result<&'a str, DecodeError> {
        from_utf8(self.bytes(field)?).map_err(|_| DecodeError("a text is not UTF-8"))
    }

    fn message(&mut self, field: Field) -> Result<Message<'a>, DecodeError> {
        Ok(Message { rest: self.bytes(field)?, depth: self.depth - 1 })
    }

    /// Passes over a field, and over what is in it where it is a group.
    fn skip(&mut self, field: Field, depth: u32) -> Result<(), DecodeError> {
        if depth == 0 {
            return Err(DecodeError("groups lie too deep in each other"));
        }
        match field.wire {
            VARINT => drop(self.number()?),
            EIGHT_BYTES => drop(self.take(8)?),
            FOUR_BYTES => drop(self.take(4)?),
            LENGTH => drop(self.bytes(field)?),
            GROUP => loop {
                let inner = self.field()?;
                if inner.wire == GROUP_END {
                    if inner.number != field.number {
                        return Err(DecodeError("a group ends that did not begin"));
                    }
                    break;
                }
                self.skip(inner, depth - 1)?;
            },
            _ => return Err(DecodeError("a group ends that did not begin")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

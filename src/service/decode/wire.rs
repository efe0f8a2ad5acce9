//! A reader of Protobuf's wire format.

use std::str::from_utf8;

use super::DecodeError;

/// How deeply messages and groups may be nested. prost has the same limit.
const MAX_DEPTH: u32 = 100;

/// The part of a message that has not been read.
pub(super) struct Message<'a> {
    rest: &'a [u8],
    /// How many more levels may be nested in it.
    depth: u32,
}

/// A field's key.
#[derive(Clone, Copy)]
pub(super) struct WireField {
    pub number: u32,
    wire_type: u8,
}

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FOUR_BYTES: u8 = 5;

pub(super) const TRUNCATED: DecodeError = DecodeError("it ends within a field");
const WRONG_WIRE_TYPE: DecodeError = DecodeError("a field has the wrong wire type");

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { rest: bytes, depth: MAX_DEPTH }
    }

    /// Returns the key of the next field, or none at the end of the message.
    ///
    /// # Errors
    ///
    /// The message ends within the key, or the key is invalid.
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
        from_utf8(self.bytes(field)?).map_err(|_| DecodeError("a string is not UTF-8"))
    }

    pub fn message(&mut self, field: WireField) -> Result<Message<'a>, DecodeError> {
        Ok(Message { rest: self.bytes(field)?, depth: self.depth - 1 })
    }

    /// Skips a field, including all fields of a group.
    ///
    /// # Errors
    ///
    /// The message ends within the field.
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

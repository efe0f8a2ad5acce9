//! Parses requests of the Redis protocol: arrays of bulk strings, and inline commands. Public for fuzzing.
//!
//! A parser remembers how far it has come, so that it reads each byte of a slow request once. It allocates nothing for
//! the lengths that a client announces, only for what it has sent.

use std::ops::Range;

use memchr::{memchr, memchr2};
use smallvec::SmallVec;

pub const MAX_ARGUMENTS: usize = 1_024;

/// The longest line: a number, or an inline command.
const MAX_LINE_BYTES: usize = 4 << 10;

/// The arguments of a request, as ranges of the buffer that has it.
pub type Arguments = SmallVec<[Range<usize>; 16]>;

#[derive(Debug, Default)]
pub struct Parser {
    /// How much of the buffer is read.
    at: usize,
    /// How many arguments of the request have not arrived yet; none before its first line.
    lacking: Option<usize>,
    arguments: Arguments,
}

/// A request, which is at the start of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct RespRequest {
    /// Empty for an empty line or array, which gets no reply.
    pub arguments: Arguments,
    /// The length of the command in bytes.
    pub length: usize,
}

/// Why a connection cannot be read any further, in the words of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    ArrayLength,
    #[error("Protocol error: invalid bulk length")]
    StringLength,
    #[error("Protocol error: expected '$'")]
    NotAString,
    #[error("Protocol error: too big inline request")]
    LongLine,
    #[error("Protocol error: too big count string")]
    LongNumber,
    #[error("Protocol error: unbalanced quotes or escapes in request")]
    Quotes,
    #[error("Protocol error: the request is larger than 64 KiB")]
    TooLarge,
    #[error("Protocol error: unauthenticated bulk length")]
    Unauthenticated,
}

impl Parser {
    /// Reads the request at the start of `buffer`, which is the one of the call before with more bytes at its end.
    /// None if it is not complete. `max` is the largest request, in bytes.
    pub fn read(
        &mut self,
        buffer: &[u8],
        max: usize,
    ) -> Result<Option<RespRequest>, ProtocolError> {
        match self.advance(buffer, max) {
            Ok(true) if self.at > max => Err(ProtocolError::TooLarge),
            Ok(true) => {
                let Parser { at, arguments, .. } = std::mem::take(self);
                Ok(Some(RespRequest { arguments, length: at }))
            }
            Ok(false) if buffer.len() >= max => Err(ProtocolError::TooLarge),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads on. Returns whether the request is complete.
    fn advance(&mut self, buffer: &[u8], max: usize) -> Result<bool, ProtocolError> {
        let mut lacking = match self.lacking {
            Some(lacking) => lacking,
            None => {
                match buffer.first() {
                    None => return Ok(false),
                    Some(b'*') => {}
                    Some(_) => return self.read_inline(buffer),
                }
                let Some((length, next)) = read_length(buffer, 0)? else { return Ok(false) };
                self.at = next;
                match usize::try_from(length.ok_or(ProtocolError::ArrayLength)?) {
                    Ok(length) if length > MAX_ARGUMENTS => return Err(ProtocolError::ArrayLength),
                    Ok(length) => length,
                    // As in Redis, a negative length is an empty request.
                    Err(_) => 0,
                }
            }
        };
        while lacking > 0 {
            self.lacking = Some(lacking);
            match buffer.get(self.at) {
                None => return Ok(false),
                Some(b'$') => {}
                Some(_) => return Err(ProtocolError::NotAString),
            }
            let Some((length, start)) = read_length(buffer, self.at)? else { return Ok(false) };
            let length = length.and_then(|length| usize::try_from(length).ok());
            let length = length.ok_or(ProtocolError::StringLength)?;
            if length > max {
                return Err(ProtocolError::TooLarge);
            }
            // Redis does not look at the two bytes after a string.
            if buffer.len() < start + length + 2 {
                return Ok(false);
            }
            self.arguments.push(start..start + length);
            self.at = start + length + 2;
            lacking -= 1;
        }
        Ok(true)
    }

    /// Reads a line of words, as people type them. Quotes keep blanks together; escapes are not supported.
    fn read_inline(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let Some(end) = memchr(b'\n', &buffer[..buffer.len().min(MAX_LINE_BYTES)]) else {
            let is_long = buffer.len() >= MAX_LINE_BYTES;
            return if is_long { Err(ProtocolError::LongLine) } else { Ok(false) };
        };
        self.at = end + 1;
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        let mut at = 0;
        while let Some(first) = line.get(at) {
            let rest = &line[at + 1..];
            match first {
                b' ' | b'\t' => at += 1,
                quote @ (b'"' | b'\'') => {
                    let length = memchr(*quote, rest).ok_or(ProtocolError::Quotes)?;
                    let is_word = matches!(rest.get(length + 1), None | Some(b' ' | b'\t'));
                    if !is_word || memchr(b'\\', &rest[..length]).is_some() {
                        return Err(ProtocolError::Quotes);
                    }
                    self.add(at + 1..at + 1 + length)?;
                    at += length + 2;
                }
                _ => {
                    let length = memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
                    // Redis joins quoted parts to a word.
                    if memchr2(b'"', b'\'', &rest[..length]).is_some() {
                        return Err(ProtocolError::Quotes);
                    }
                    self.add(at..at + 1 + length)?;
                    at += 1 + length;
                }
            }
        }
        Ok(true)
    }

    fn add(&mut self, argument: Range<usize>) -> Result<(), ProtocolError> {
        if self.arguments.len() >= MAX_ARGUMENTS {
            return Err(ProtocolError::ArrayLength);
        }
        self.arguments.push(argument);
        Ok(())
    }
}

/// A number, none if the text is not one; and the start of the line after it.
type Length = (Option<i64>, usize);

/// Reads the number after the byte at `at`. None if its line is not complete.
fn read_length(buffer: &[u8], at: usize) -> Result<Option<Length>, ProtocolError> {
    /// The sign, the digits of 2⁶³ and the line break.
    const MAX: usize = 32;
    let line = &buffer[at + 1..];
    let Some(end) = memchr(b'\r', &line[..line.len().min(MAX)]) else {
        return if line.len() >= MAX { Err(ProtocolError::LongNumber) } else { Ok(None) };
    };
    if line.len() < end + 2 {
        return Ok(None);
    }
    Ok(Some((read_integer(&line[..end]), at + 1 + end + 2)))
}

/// Reads an integer as Redis does: no plus sign, no blanks, no leading zeros.
pub fn read_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

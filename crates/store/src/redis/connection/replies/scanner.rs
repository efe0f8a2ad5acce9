//! A scanner of RESP2: finds the lengths in replies, and where they end.

use super::BadReply;

/// The most nested arrays: those of `CLUSTER SLOTS`.
pub(super) const MAX_DEPTH: usize = 4;

/// The memory that the parser takes for an element, besides its text.
const ELEMENT_BYTES: usize = size_of::<redis::Value>();

/// Scans the bytes of a connection, in parts of any size.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    at: Position,
    /// The missing elements of the arrays around the next value.
    missing: [u64; MAX_DEPTH],
    depth: usize,
}

/// The position in a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Before the type of a value.
    #[default]
    Type,
    /// In a line; `ends` after its CR.
    Line { ends: bool },
    /// In the length of a text or an array; `ends` after its CR.
    Length { is_array: bool, length: Length, ends: bool },
    /// In a text and the CRLF after it, with this number of bytes left.
    Text(u64),
}

/// A length, as far as its digits have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Empty,
    Number(u64),
    /// A negative length, of a value that does not exist.
    Negative,
}

/// What was found in a part of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// Replies that end in this part.
    pub replies: usize,
    /// The memory that this part takes, or announces.
    pub bytes: usize,
}

impl Scanner {
    /// Scans the next bytes.
    ///
    /// # Errors
    ///
    /// The bytes are invalid, or their arrays are nested too deep. Nothing after them can be scanned.
    pub fn scan(&mut self, mut bytes: &[u8]) -> Result<Scanned, BadReply> {
        let mut seen = Scanned::default();
        while let Some((&first, rest)) = bytes.split_first() {
            // A text was counted with its length.
            if let Position::Text(left) = self.at {
                let part = left.min(bytes.len() as u64);
                self.at = Position::Text(left - part);
                bytes = bytes.get(part as usize..).unwrap_or_default();
                if part == left {
                    seen.replies += usize::from(self.end_value());
                }
                continue;
            }
            bytes = rest;
            seen.bytes = seen.bytes.saturating_add(1);
            match self.at {
                Position::Type => self.at = Position::of(first)?,
                Position::Line { ends: true } if first == b'\n' => {
                    seen.replies += usize::from(self.end_value());
                }
                Position::Line { .. } => self.at = Position::Line { ends: first == b'\r' },
                Position::Length { is_array, length, ends: true } if first == b'\n' => {
                    seen.bytes = seen.bytes.saturating_add(self.begin(is_array, length)?);
                    if self.at == Position::Type {
                        seen.replies += usize::from(self.end_value_or_array(is_array, length));
                    }
                }
                Position::Length { is_array, length, ends: false } => {
                    let ends = first == b'\r';
                    let length = if ends { length } else { length.push(first)? };
                    self.at = Position::Length { is_array, length, ends };
                }
                Position::Length { .. } | Position::Text(_) => return Err(BadReply::Invalid),
            }
        }
        Ok(seen)
    }

    /// Begins a text or an array. Returns the memory that it takes.
    fn begin(&mut self, is_array: bool, length: Length) -> Result<usize, BadReply> {
        self.at = Position::Type;
        match (is_array, length) {
            (_, Length::Empty) => Err(BadReply::Invalid),
            (_, Length::Negative) | (true, Length::Number(0)) => Ok(0),
            (false, Length::Number(length)) => {
                self.at = Position::Text(length.saturating_add(2));
                Ok(usize::try_from(length).unwrap_or(usize::MAX))
            }
            (true, Length::Number(elements)) => {
                *self.missing.get_mut(self.depth).ok_or(BadReply::TooDeep)? = elements;
                self.depth += 1;
                Ok(usize::try_from(elements).unwrap_or(usize::MAX).saturating_mul(ELEMENT_BYTES))
            }
        }
    }

    /// Ends a value without content; an array with elements goes on.
    fn end_value_or_array(&mut self, is_array: bool, length: Length) -> bool {
        match (is_array, length) {
            (true, Length::Number(1..)) => false,
            _ => self.end_value(),
        }
    }

    /// Ends a value, and the arrays whose last element it is. Returns whether a reply ends.
    fn end_value(&mut self) -> bool {
        self.at = Position::Type;
        while let Some(missing) = self.depth.checked_sub(1).and_then(|at| self.missing.get_mut(at))
        {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.depth -= 1;
        }
        true
    }
}

impl Position {
    fn of(first: u8) -> Result<Position, BadReply> {
        let length = |is_array| Position::Length { is_array, length: Length::Empty, ends: false };
        match first {
            b'+' | b'-' | b':' => Ok(Position::Line { ends: false }),
            b'$' => Ok(length(false)),
            b'*' => Ok(length(true)),
            _ => Err(BadReply::Invalid),
        }
    }
}

impl Length {
    fn push(self, digit: u8) -> Result<Length, BadReply> {
        let value = u64::from(digit.wrapping_sub(b'0'));
        match (self, digit) {
            (Length::Empty, b'-') => Ok(Length::Negative),
            (Length::Empty, b'0'..=b'9') => Ok(Length::Number(value)),
            (Length::Number(number), b'0'..=b'9') => {
                Ok(Length::Number(number.saturating_mul(10).saturating_add(value)))
            }
            (Length::Negative, b'0'..=b'9') => Ok(Length::Negative),
            _ => Err(BadReply::Invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans a text in parts of `size` bytes.
    fn scan(text: &str, size: usize) -> Result<(usize, usize), BadReply> {
        let mut scanner = Scanner::default();
        let (mut replies, mut bytes) = (0, 0);
        for part in text.as_bytes().chunks(size) {
            let seen = scanner.scan(part)?;
            (replies, bytes) = (replies + seen.replies, bytes + seen.bytes);
        }
        Ok((replies, bytes))
    }

    #[test]
    fn replies_end_where_the_parser_ends_them() {
        for (text, replies) in [
            ("+OK\r\n", 1),
            ("+a\rb\nc\r\r\n", 1),
            ("-ERR x\r\n:5\r\n", 2),
            ("$5\r\na\r\nbc\r\n", 1),
            ("$0\r\n\r\n$-1\r\n", 2),
            ("*0\r\n*-1\r\n", 2),
            ("*2\r\n$1\r\na\r\n:1\r\n+OK\r\n", 2),
            ("*2\r\n*1\r\n*2\r\n:1\r\n:2\r\n*0\r\n", 1),
            ("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", 1),
            ("*1\r\n:1", 0),
        ] {
            for size in 1..=text.len() {
                assert_eq!(scan(text, size).map(|seen| seen.0), Ok(replies), "{text:?} {size}");
            }
            let mut reader = text.as_bytes();
            let mut parser = redis::Parser::new();
            let parsed = std::iter::from_fn(|| parser.parse_value(&mut reader).ok()).count();
            assert_eq!(parsed, replies, "{text:?}");
        }
    }

    #[test]
    fn what_is_announced_counts_before_it_comes() {
        assert_eq!(scan("$1000\r\n", 100), Ok((0, 7 + 1_000)));
        assert_eq!(scan("*1000\r\n", 100), Ok((0, 7 + 1_000 * ELEMENT_BYTES)));
        assert_eq!(scan("$99999999999999999999999\r\n", 100), Ok((0, usize::MAX)));
        assert_eq!(scan("*99999999999999999999999\r\n", 100), Ok((0, usize::MAX)));
        assert_eq!(scan("+aaaa", 1), Ok((0, 5)));
    }

    #[test]
    fn what_the_parser_would_read_otherwise_is_invalid() {
        for text in ["x", "%1\r\n", "$\r\n", "$ 5\r\n", "$+5\r\n", "$5\r1", "*1\n", "$5\n", "\r\n"]
        {
            assert_eq!(scan(text, 100), Err(BadReply::Invalid), "{text:?}");
        }
        assert_eq!(scan(&"*1\r\n".repeat(5), 3), Err(BadReply::TooDeep));
    }
}

//! Encodes replies of the Redis protocol, in version 2 or 3.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    Two,
    Three,
}

/// A buffer of encoded replies, to which each method appends one.
#[derive(Debug, Default)]
pub struct Replies {
    pub version: Version,
    text: Vec<u8>,
}

impl Replies {
    pub fn new(version: Version) -> Replies {
        Replies { version, text: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.text.len()
    }

    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    /// Removes the replies from a length on, and returns them.
    pub fn split_off(&mut self, length: usize) -> Replies {
        Replies { version: self.version, text: self.text.split_off(length) }
    }

    pub fn append(&mut self, others: &Replies) {
        self.text.extend_from_slice(&others.text);
    }

    /// A text without line breaks.
    pub fn simple(&mut self, text: &str) {
        self.text.push(b'+');
        self.text.extend_from_slice(text.as_bytes());
        self.end_line();
    }

    /// An error, whose first word is its code: `ERR unknown command`. Characters that would end it are replaced.
    pub fn error(&mut self, text: &str) {
        self.text.push(b'-');
        self.text.extend(text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }));
        self.end_line();
    }

    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    pub fn bulk(&mut self, text: &[u8]) {
        self.number(b'$', text.len() as i64);
        self.text.extend_from_slice(text);
        self.end_line();
    }

    pub fn null(&mut self) {
        match self.version {
            Version::Two => self.text.extend_from_slice(b"$-1\r\n"),
            Version::Three => self.text.extend_from_slice(b"_\r\n"),
        }
    }

    /// Starts an array of `length` replies, which follow.
    pub fn array(&mut self, length: usize) {
        self.number(b'*', length as i64);
    }

    /// Starts a map of `length` pairs of replies, which follow. In version 2 it is an array.
    pub fn map(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(2 * length),
            Version::Three => self.number(b'%', length as i64),
        }
    }

    fn number(&mut self, kind: u8, value: i64) {
        self.text.push(kind);
        self.text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.end_line();
    }

    fn end_line(&mut self) {
        self.text.extend_from_slice(b"\r\n");
    }
}

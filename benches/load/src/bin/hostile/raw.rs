//! A connection that need not follow HTTP/2.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;

pub struct Raw {
    stream: TcpStream,
    /// Not yet written.
    out: Vec<u8>,
}

impl Raw {
    /// Connects, and writes `opening`.
    pub fn open(addr: &str, opening: Vec<u8>) -> Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: opening })
    }

    /// Appends to the write buffer if everything before has been written.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.out.is_empty() {
            write(&mut self.out);
        }
    }

    /// Writes as much as the socket accepts. Returns whether that was everything.
    pub fn flush(&mut self) -> Result<bool> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Reads and discards what has arrived. Fails if the server has closed the connection.
    pub fn discard(&mut self) -> Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}

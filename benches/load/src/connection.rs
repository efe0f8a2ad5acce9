//! One HTTP/2 connection with many calls in flight.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use httlib_hpack::Decoder;

use crate::frames::{self, Call, FrameHeader, HEADER_LEN};
use crate::message::Decision;
use crate::socket::{Socket, TlsClient};

/// Room for thousands of responses, but small enough for thousands of idle connections.
const BUFFER: usize = 64 * 1024;
/// Renew the receive window after this many bytes, far below the maximum.
const WINDOW_REFILL: u32 = 1 << 28;

/// How a call ended.
pub struct Outcome {
    pub started: Instant,
    /// `None` if it was reset, or ended without a message with a decision.
    pub decision: Option<Decision>,
}

#[derive(Clone, Copy)]
struct InFlight {
    stream: u32,
    started: Instant,
    decision: Option<Decision>,
}

pub struct Connection {
    socket: Socket,
    /// Encoded but not yet written.
    out: Vec<u8>,
    /// Read but not yet parsed, from `parsed` on.
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
    next_stream: u32,
    /// The call on stream `s` is at `s / 2 % len`. A stream number whose slot is still in use is
    /// skipped.
    calls: Vec<Option<InFlight>>,
    in_flight: usize,
    send_window: i64,
    max_concurrent: usize,
    received: u32,
    /// Present if headers are decoded, to print why a call failed.
    decoder: Option<Decoder<'static>>,
    last_headers: String,
}

impl Connection {
    /// Connects and exchanges settings.
    pub fn open(
        addr: &str,
        tls: Option<&TlsClient>,
        concurrency: usize,
        decode_headers: bool,
    ) -> Result<Self> {
        let mut connection = Self {
            socket: Socket::open(addr, tls)?,
            out: frames::preface(frames::MAX_WINDOW),
            input: vec![0; BUFFER],
            parsed: 0,
            filled: 0,
            next_stream: 1,
            calls: vec![None; (4 * concurrency).next_power_of_two()],
            in_flight: 0,
            send_window: frames::DEFAULT_WINDOW.into(),
            max_concurrent: 0,
            received: 0,
            decoder: decode_headers.then(Decoder::default),
            last_headers: String::new(),
        };
        connection.flush()?;
        while connection.max_concurrent == 0 {
            connection.read_some()?;
            connection.parse(&mut |_| ())?;
        }
        connection.max_concurrent = connection.max_concurrent.min(concurrency);
        connection.flush()?;
        connection.socket.set_nonblocking()?;
        Ok(connection)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether another call may be started now.
    pub fn has_room(&self, call: &Call) -> bool {
        self.in_flight < self.max_concurrent && self.send_window >= call.window()
    }

    /// Encodes a call; `flush` sends it.
    pub fn start(&mut self, call: &Call, key: u64, started: Instant) {
        let first = self.next_stream == 1;
        let stream = loop {
            let stream = self.next_stream;
            self.next_stream += 2;
            if self.calls[self.place(stream)].is_none() {
                break stream;
            }
        };
        let place = self.place(stream);
        self.calls[place] = Some(InFlight { stream, started, decision: None });
        self.in_flight += 1;
        self.send_window -= call.window();
        call.append(&mut self.out, first, stream, key);
    }

    fn place(&self, stream: u32) -> usize {
        (stream as usize / 2) & (self.calls.len() - 1)
    }

    pub fn wants_write(&self) -> bool {
        !self.out.is_empty() || self.socket.wants_write()
    }

    pub fn flush(&mut self) -> Result<()> {
        let mut written = 0;
        while written < self.out.len() {
            match self.socket.write(&self.out[written..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.out.drain(..written);
        match self.socket.flush() {
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Reads what has arrived and reports the calls that ended.
    pub fn receive(&mut self, ended: &mut impl FnMut(Outcome)) -> Result<()> {
        loop {
            let room = self.read_some()?;
            self.parse(ended)?;
            if room {
                return Ok(());
            }
        }
    }

    /// Reads once. Returns whether nothing is left to read.
    fn read_some(&mut self) -> Result<bool> {
        if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        }
        loop {
            let free = self.input.len() - self.filled;
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(n) => {
                    self.filled += n;
                    return Ok(n < free);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn parse(&mut self, ended: &mut impl FnMut(Outcome)) -> Result<()> {
        while let Some(header) = FrameHeader::parse(&self.input[self.parsed..self.filled]) {
            let (begin, end) = (self.parsed + HEADER_LEN, self.parsed + HEADER_LEN + header.len);
            if end > self.filled {
                break;
            }
            self.parsed = end;
            self.frame(header, begin..end, ended)?;
        }
        Ok(())
    }

    fn frame(
        &mut self,
        header: FrameHeader,
        at: std::ops::Range<usize>,
        ended: &mut impl FnMut(Outcome),
    ) -> Result<()> {
        let payload = &self.input[at.clone()];
        match header.kind {
            frames::DATA => {
                self.received += header.len as u32;
                if self.received >= WINDOW_REFILL {
                    frames::window_update(&mut self.out, self.received);
                    self.received = 0;
                }
                if header.flags & frames::PADDED != 0 {
                    bail!("a padded frame, which this client does not read");
                }
                // A response this small arrives in one frame.
                let decision = payload.get(5..).and_then(Decision::read);
                let place = self.place(header.stream);
                if let Some(call) = &mut self.calls[place] {
                    call.decision = decision;
                }
                self.end_if(header, ended);
            }
            frames::HEADERS => {
                if header.flags & frames::END_HEADERS == 0 {
                    bail!("a header block in several frames, which this client does not read");
                }
                if self.decoder.is_some() {
                    self.decode(header, at)?;
                }
                self.end_if(header, ended);
            }
            frames::RST_STREAM => self.end(header.stream, ended),
            frames::SETTINGS if header.flags & frames::ACK == 0 => {
                let mut max_concurrent = usize::MAX;
                for setting in payload.chunks_exact(6) {
                    let id = u16::from_be_bytes([setting[0], setting[1]]);
                    let value =
                        u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                    if id == frames::SETTING_MAX_CONCURRENT_STREAMS {
                        max_concurrent = value as usize;
                    }
                }
                if self.max_concurrent == 0 {
                    self.max_concurrent = max_concurrent;
                }
                frames::frame(&mut self.out, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if header.flags & frames::ACK == 0 => {
                let payload = payload.to_vec();
                frames::frame(&mut self.out, frames::PING, frames::ACK, 0, &payload);
            }
            frames::WINDOW_UPDATE if header.stream == 0 => {
                let increment: [u8; 4] = payload.try_into().context("WINDOW_UPDATE's length")?;
                self.send_window += i64::from(u32::from_be_bytes(increment));
            }
            frames::GOAWAY => {
                bail!("GOAWAY: {}", String::from_utf8_lossy(payload.get(8..).unwrap_or_default()))
            }
            frames::CONTINUATION => bail!("an unexpected CONTINUATION"),
            _ => {}
        }
        Ok(())
    }

    /// Decodes a header block. The last one of a failed call has the reason.
    fn decode(&mut self, header: FrameHeader, at: std::ops::Range<usize>) -> Result<()> {
        let skip = if header.flags & frames::PRIORITY != 0 { 5 } else { 0 };
        let mut block = self.input[at.start + skip..at.end].to_vec();
        let mut fields = Vec::new();
        let decoder = self.decoder.as_mut().context("no decoder")?;
        decoder.decode(&mut block, &mut fields).context("a header block that HPACK cannot read")?;
        self.last_headers = fields
            .iter()
            .map(|(name, value, _)| {
                format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
            })
            .collect::<Vec<_>>()
            .join(", ");
        Ok(())
    }

    /// Returns the headers or trailers decoded last, if headers are decoded.
    pub fn last_headers(&self) -> Option<&str> {
        self.decoder.is_some().then_some(&self.last_headers)
    }

    fn end_if(&mut self, header: FrameHeader, ended: &mut impl FnMut(Outcome)) {
        if header.flags & frames::END_STREAM != 0 {
            self.end(header.stream, ended);
        }
    }

    fn end(&mut self, stream: u32, ended: &mut impl FnMut(Outcome)) {
        let place = self.place(stream);
        if let Some(call) = self.calls[place].take_if(|call| call.stream == stream) {
            self.in_flight -= 1;
            ended(Outcome { started: call.started, decision: call.decision });
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! Reads the frames of a file past whatever is damaged.

use std::io::{self, Read};

use memchr::memmem;

use super::{FrameKind, HEADER_BYTES, Header, MAGIC, MAX_FRAME_BYTES, Seal};

/// How much is read at a time.
const READ_BYTES: usize = 256 << 10;

/// A valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: FrameKind,
    pub shard_bits: u8,
    /// Whether the frame directly follows the one that was read before.
    pub follows: bool,
    pub payload: &'a [u8],
}

/// What of a file is not as it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Frames that are missing before others, as far as that can be counted.
    pub frames: u64,
    /// Whether the bytes after the last valid frame are the start of one, as where a process was killed while it wrote.
    /// Other bytes are a damaged frame.
    pub torn: bool,
}

/// Reads frames in order. Bytes that are no valid frame are skipped and counted. Keeps at most two frames in memory,
/// and takes time in proportion to the file.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    seal: Seal,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame is expected.
    at: usize,
    /// Whether the buffer has the end of the file.
    ended: bool,
    /// The sequence of the next frame.
    expected: u64,
    /// Whether bytes were skipped since the last valid frame.
    skipped: bool,
    /// Whether the first of them are the start of a frame that the file ends within.
    is_cut: bool,
    damage: Damage,
}

impl<R: Read> FrameReader<R> {
    /// Reads frames of a file with this seal from its start.
    pub fn new(source: R, seal: Seal) -> FrameReader<R> {
        let (buffer, at, ended, expected, skipped, is_cut, damage) = Default::default();
        FrameReader { source, seal, buffer, at, ended, expected, skipped, is_cut, damage }
    }

    /// What was damaged so far. `torn` is known once there are no more frames.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Returns the next valid frame; none at the end of the file.
    ///
    /// # Errors
    ///
    /// The file cannot be read any further.
    pub fn read(&mut self) -> io::Result<Option<Frame<'_>>> {
        loop {
            self.fill()?;
            let left = &self.buffer[self.at..];
            if left.is_empty() {
                self.damage.torn = self.skipped && self.is_cut;
                self.damage.frames += u64::from(self.skipped && !self.is_cut);
                self.skipped = false;
                return Ok(None);
            }
            if let Some(header) = self.valid_frame() {
                let start = self.at + HEADER_BYTES;
                let end = start + header.length as usize;
                self.at = end;
                let missing = header.sequence - self.expected;
                let missing_frames = missing.max(u64::from(self.skipped));
                self.damage.frames = self.damage.frames.saturating_add(missing_frames);
                let follows = missing == 0 && !self.skipped;
                (self.skipped, self.expected) = (false, header.sequence.saturating_add(1));
                let Header { kind, shard_bits, .. } = header;
                return Ok(Some(Frame {
                    kind,
                    shard_bits,
                    follows,
                    payload: &self.buffer[start..end],
                }));
            }
            if !self.skipped {
                let header = Header::read(self.seal, left);
                let length = header.map_or(0, |header| header.length as usize);
                self.is_cut = left.len() < HEADER_BYTES + length;
                self.skipped = true;
            }
            // To the next magic, of which the start may be at the end of the buffer.
            let next = left.get(1..).and_then(|rest| memmem::find(rest, &MAGIC));
            self.at += match next {
                Some(next) => next + 1,
                None if self.ended => left.len(),
                None => left.len().saturating_sub(MAGIC.len() - 1).max(1),
            };
        }
    }

    /// Returns the header of the frame at `at`, if header and payload are valid and the frame is not one of before.
    fn valid_frame(&self) -> Option<Header> {
        let bytes = &self.buffer[self.at..];
        let header = Header::read(self.seal, bytes)?;
        let payload = bytes.get(HEADER_BYTES..HEADER_BYTES + header.length as usize)?;
        let intact = self.seal.checksum(payload) == header.checksum;
        (intact && header.sequence >= self.expected).then_some(header)
    }

    /// Reads until the buffer has a whole frame of any size, or the end of the file.
    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.buffer.len() - self.at < MAX_FRAME_BYTES {
            self.buffer.drain(..self.at);
            self.at = 0;
            let read =
                self.source.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.buffer)?;
            self.ended = read == 0;
        }
        Ok(())
    }
}

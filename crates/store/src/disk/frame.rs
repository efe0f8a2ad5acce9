//! Frames: the blocks with checksums that the disk store's logs and snapshots consist of.
//!
//! | Bytes | |
//! | --- | --- |
//! | 4 | magic |
//! | 1 | kind |
//! | 1 | the binary logarithm of the number of shards |
//! | 2 | zero |
//! | 8 | sequence: 0 for the first frame of a file, then one more for each |
//! | 4 | length of the payload |
//! | 4 | checksum of the payload |
//! | 4 | checksum of all above |
//! | up to 256 KiB in all | payload |
//!
//! Numbers are little-endian. The checksums (CRC-32) start from the [`Seal`], a hash of the file's name and directory:
//! a frame of another file is no frame here. The header has a checksum of its own: a reader that looks for the next
//! frame among damaged bytes reads no payload for what only looks like a header.

#[cfg(test)]
mod tests;

use std::io::{self, Read};

use memchr::memmem;

/// The largest frame.
pub const MAX_FRAME_BYTES: usize = 256 << 10;

pub const MAX_PAYLOAD_BYTES: usize = MAX_FRAME_BYTES - HEADER_BYTES;

const HEADER_BYTES: usize = 28;
const MAGIC: [u8; 4] = [0xb1, b'w', 0xd5, b'f'];

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Whole records of keys and reservations.
    Records,
    /// The start of a record that is too long for one frame.
    FirstPart,
    /// A part between the start and the end of such a record.
    Part,
    /// The end of such a record.
    LastPart,
    /// The end of a snapshot: the number of its records.
    Footer,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        use FrameKind::{FirstPart, Footer, LastPart, Part, Records};
        let kinds = [Records, FirstPart, Part, LastPart, Footer];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Where the checksums of a file start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal(u32);

impl Seal {
    /// Returns the seal of a file of a directory, by what is unique of both.
    pub fn new(directory: u64, kind: u8, number: u64) -> Seal {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&directory.to_le_bytes());
        hasher.update(&[kind]);
        hasher.update(&number.to_le_bytes());
        Seal(hasher.finalize())
    }

    fn checksum(self, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// A frame that is being filled.
#[derive(Debug)]
pub struct FrameBuilder {
    seal: Seal,
    shard_bits: u8,
    sequence: u64,
    /// The header, still without numbers, and the payload so far.
    bytes: Vec<u8>,
}

impl FrameBuilder {
    /// Returns the first frame of a file.
    pub fn new(seal: Seal, shard_bits: u8) -> FrameBuilder {
        FrameBuilder { seal, shard_bits, sequence: 0, bytes: vec![0; HEADER_BYTES] }
    }

    /// The bytes that still fit.
    pub fn room(&self) -> usize {
        MAX_FRAME_BYTES - self.bytes.len()
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// Appends to the payload what fits, see [`room`](Self::room).
    pub fn append(&mut self, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
    }

    /// Returns the whole frame. [`clear`](Self::clear) starts the next one.
    pub fn seal(&mut self, kind: FrameKind) -> &[u8] {
        let (header, payload) = self.bytes.split_at_mut(HEADER_BYTES);
        let fields = Header {
            kind,
            shard_bits: self.shard_bits,
            sequence: self.sequence,
            length: payload.len() as u32,
            checksum: self.seal.checksum(payload),
        };
        fields.write(self.seal, header);
        self.sequence += 1;
        &self.bytes
    }

    /// Removes the payload.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
    }
}

#[derive(Clone, Copy, Debug)]
struct Header {
    kind: FrameKind,
    shard_bits: u8,
    sequence: u64,
    length: u32,
    checksum: u32,
}

impl Header {
    /// Writes all but the two bytes that stay zero.
    fn write(&self, seal: Seal, out: &mut [u8]) {
        out[..4].copy_from_slice(&MAGIC);
        out[4] = self.kind as u8;
        out[5] = self.shard_bits;
        out[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..20].copy_from_slice(&self.length.to_le_bytes());
        out[20..24].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = seal.checksum(&out[..24]);
        out[24..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the header at the start of `bytes`; none if there is no valid one.
    fn read(seal: Seal, bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let four = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes[..4] != MAGIC || seal.checksum(&bytes[..24]) != four(24)? {
            return None;
        }
        let header = Header {
            kind: FrameKind::from_byte(bytes[4])?,
            shard_bits: bytes[5],
            sequence: u64::from_le_bytes(*bytes[8..].first_chunk()?),
            length: four(16)?,
            checksum: four(20)?,
        };
        (header.length as usize <= MAX_PAYLOAD_BYTES).then_some(header)
    }
}

const READ_BYTES: usize = 256 << 10;

/// A frame as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it contains.
    pub kind: FrameKind,
    /// The logarithm of the number of shards.
    pub shard_bits: u8,
    /// Whether the frame directly follows the one that was read before.
    pub follows: bool,
    /// Records, or a part of one.
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
    /// Whether the first skipped bytes are the start of a frame that the file ends within.
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
                let payload = &self.buffer[start..end];
                return Ok(Some(Frame { kind, shard_bits, follows, payload }));
            }
            if !self.skipped {
                let header = Header::read(self.seal, left);
                let length = header.map_or(0, |header| header.length as usize);
                self.is_cut = left.len() < HEADER_BYTES + length;
                self.skipped = true;
            }
            // To the next magic, whose start may be at the end of the buffer.
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

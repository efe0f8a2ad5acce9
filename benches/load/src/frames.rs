//! The subset of HTTP/2 for a client that repeats one unary call.
//!
//! After the first call on a connection every request header is an index into
//! HPACK's tables, so a call is one fixed block of bytes (HEADERS, DATA) in which
//! only the stream number and the digits of the key change.

use anyhow::{Result, ensure};

use crate::message::{Template, fill};

pub const HEADER_LEN: usize = 9;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;
pub const PRIORITY: u8 = 0x20;

pub const SETTING_MAX_CONCURRENT_STREAMS: u16 = 3;
const SETTING_ENABLE_PUSH: u16 = 2;
const SETTING_INITIAL_WINDOW_SIZE: u16 = 4;

pub const DEFAULT_WINDOW: u32 = 65_535;
pub const MAX_WINDOW: u32 = i32::MAX as u32;

#[derive(Clone, Copy, Debug)]
pub struct FrameHeader {
    pub len: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl FrameHeader {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        Some(Self {
            len: u32::from_be_bytes([0, b[0], b[1], b[2]]) as usize,
            kind: b[3],
            flags: b[4],
            stream: u32::from_be_bytes([b[5], b[6], b[7], b[8]]) & 0x7fff_ffff,
        })
    }
}

pub fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The client's preface: no push, and the largest window that the protocol allows for the connection, so
/// that only a small `window` of a stream can hold responses back.
pub fn preface(window: u32) -> Vec<u8> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut settings = Vec::new();
    for (id, value) in [(SETTING_ENABLE_PUSH, 0), (SETTING_INITIAL_WINDOW_SIZE, window)] {
        settings.extend_from_slice(&id.to_be_bytes());
        settings.extend_from_slice(&u32::to_be_bytes(value));
    }
    frame(&mut out, SETTINGS, 0, 0, &settings);
    window_update(&mut out, MAX_WINDOW - DEFAULT_WINDOW);
    out
}

/// Increases the window of the connection by `increment` bytes.
pub fn window_update(out: &mut Vec<u8>, increment: u32) {
    frame(out, WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
}

/// The bytes of a call in two forms: for the first call on a connection, and for the others.
#[derive(Clone)]
pub struct Call {
    first: Encoded,
    rest: Encoded,
    width: usize,
}

#[derive(Clone)]
struct Encoded {
    bytes: Vec<u8>,
    data_at: usize,
    holes: Vec<usize>,
}

impl Call {
    pub fn new(
        authority: &str,
        path: &str,
        extra_headers: &[(String, String)],
        template: &Template,
    ) -> Result<Self> {
        let fields: Vec<(&str, &str)> = [(":path", path), (":authority", authority)]
            .into_iter()
            .chain([("content-type", "application/grpc"), ("te", "trailers")])
            .chain(extra_headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .collect();
        // `:method: POST` and `:scheme: http` are in HPACK's static table.
        let (mut first, mut rest) = (vec![0x83, 0x86], vec![0x83, 0x86]);
        for (i, (name, value)) in fields.iter().enumerate() {
            // A literal with incremental indexing and a new name, neither Huffman-coded.
            first.push(0x40);
            for text in [name, value] {
                ensure!(text.len() < 0x7f, "a header text longer than this encoder writes");
                first.push(text.len() as u8);
                first.extend_from_slice(text.as_bytes());
            }
            // Index 62 is the entry added last.
            rest.push(0x80 | (62 + fields.len() - 1 - i) as u8);
        }
        Ok(Self {
            first: Encoded::new(&first, template),
            rest: Encoded::new(&rest, template),
            width: template.width,
        })
    }

    /// Bytes of a call that count against the server's flow-control window.
    pub fn window(&self) -> i64 {
        (self.rest.bytes.len() - self.rest.data_at - HEADER_LEN) as i64
    }

    /// Appends the call for key `key` on stream `stream`.
    pub fn append(&self, out: &mut Vec<u8>, first: bool, stream: u32, key: u64) {
        let encoded = if first { &self.first } else { &self.rest };
        let base = out.len();
        out.extend_from_slice(&encoded.bytes);
        for at in [5, encoded.data_at + 5] {
            out[base + at..base + at + 4].copy_from_slice(&stream.to_be_bytes());
        }
        for hole in &encoded.holes {
            fill(&mut out[base + hole..base + hole + self.width], key);
        }
    }
}

impl Encoded {
    fn new(header_block: &[u8], template: &Template) -> Self {
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS, 0, header_block);
        let data_at = bytes.len();
        let mut message = vec![0];
        message.extend_from_slice(&(template.bytes.len() as u32).to_be_bytes());
        message.extend_from_slice(&template.bytes);
        frame(&mut bytes, DATA, END_STREAM, 0, &message);
        let base = data_at + HEADER_LEN + 5;
        Self { bytes, data_at, holes: template.holes.iter().map(|hole| base + hole).collect() }
    }
}

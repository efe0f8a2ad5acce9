//! HTTP/2 frames, for clients that do what no library does.

use super::*;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The start of a connection.
pub fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()
}

/// The header block of a call: POST, http, the path, the authority and application/grpc. The first
/// of a connection adds the last three to the dynamic table, the others refer to them.
fn header_block(is_first: bool) -> Vec<u8> {
    if !is_first {
        return vec![0x83, 0x86, 0xc0, 0xbf, 0xbe];
    }
    let mut block = vec![0x83, 0x86, 0x44, u8::try_from(PATH.len()).unwrap()];
    block.extend_from_slice(PATH.as_bytes());
    block.extend_from_slice(b"\x41\x04weir\x5f\x10application/grpc");
    block
}

/// Call `number` of a connection, with a body.
pub fn call(number: u32, body: &[u8]) -> Vec<u8> {
    [open_call(number), frame(0, 1, 2 * number + 1, body)].concat()
}

/// Resets a call.
pub fn reset(number: u32) -> Vec<u8> {
    frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes())
}

/// A call that is reset immediately.
pub fn reset_call(number: u32, body: &[u8]) -> Vec<u8> {
    [call(number, body), reset(number)].concat()
}

/// A call whose client gave it up before it wrote the body, as grpc-java does: the body follows the reset.
pub fn late_call(number: u32, body: &[u8]) -> Vec<u8> {
    [open_call(number), reset(number), frame(0, 1, 2 * number + 1, body)].concat()
}

/// A call that has no body yet.
pub fn open_call(number: u32) -> Vec<u8> {
    frame(1, 4, 2 * number + 1, &header_block(number == 0))
}

/// A received frame.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code, if this is GOAWAY.
    pub fn go_away(&self) -> Option<u32> {
        (self.kind == 7).then(|| u32::from_be_bytes(self.payload[4..8].try_into().unwrap()))
    }

    /// Whether the frame ends the response to call `number`.
    pub fn ends(&self, number: u32) -> bool {
        self.kind == 1 && self.flags & 1 > 0 && self.stream == 2 * number + 1
    }
}

/// The frames received until the connection is closed.
pub struct Frames<R>(pub R);

impl<R: Read> Iterator for Frames<R> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }
}

/// Opens a connection and sends the preface.
pub fn open(weir: &Weir) -> TcpStream {
    let mut socket = TcpStream::connect(weir.grpc).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&preface()).unwrap();
    socket
}

//! The heads of the frames in one direction of an HTTP/2 connection.

/// The length of a frame's head.
const HEAD_BYTES: usize = 9;

/// The first bytes of a client, before its first frame.
const PREFACE_BYTES: usize = 24;

const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// The part of a frame's head that is of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    kind: u8,
    flags: u8,
}

impl Head {
    /// Whether the frame starts a header block: a request, a response, or trailers.
    pub(super) fn is_headers(self) -> bool {
        self.kind == HEADERS
    }

    /// Whether the frame is a header block that others may follow: a response, not trailers.
    pub(super) fn is_open_headers(self) -> bool {
        self.is_headers() && self.flags & END_STREAM == 0
    }
}

/// Finds the frames in bytes that come in any pieces.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes before the next head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head so far.
    filled: usize,
}

impl Frames {
    pub(super) fn of_server() -> Frames {
        Frames { skip: 0, head: [0; HEAD_BYTES], filled: 0 }
    }

    pub(super) fn of_client() -> Frames {
        Frames { skip: PREFACE_BYTES, ..Frames::of_server() }
    }

    /// Calls `found` with the head of each frame that these bytes complete.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut found: impl FnMut(Head)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.filled).min(bytes.len());
            self.head[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD_BYTES {
                let [a, b, c, kind, flags, ..] = self.head;
                self.filled = 0;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                found(Head { kind, flags });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn frames_are_found_in_any_pieces() {
        let frames =
            [frame(4, 0, b""), frame(1, 4, b"abc"), frame(0, 0, &[1; 200]), frame(1, 5, b"")];
        let bytes = [vec![1; PREFACE_BYTES], frames.concat()].concat();
        for length in [1, 2, 9, 10, 24, 33, bytes.len()] {
            let (mut reader, mut found) = (Frames::of_client(), Vec::new());
            for piece in bytes.chunks(length) {
                reader.read(piece, |head| found.push(head));
            }
            let kinds: Vec<_> = found.iter().map(|head| (head.kind, head.flags)).collect();
            assert_eq!(kinds, [(4, 0), (1, 4), (0, 0), (1, 5)], "{length}");
            let open: Vec<_> = found.iter().map(|head| head.is_open_headers()).collect();
            assert_eq!(open, [false, true, false, false]);
        }
    }
}

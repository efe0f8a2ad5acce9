//! Inflates gRPC requests that are compressed with gzip.
//!
//! A message is inflated in slices. Each slice waits for a turn (see `fairness`), so other connections of the thread
//! wait for one slice at most; a connection inflates one message at a time. Inflated bytes count as memory of clients.

use std::io::{self, BufRead, ErrorKind, Read};

use bytes::{Buf, Bytes};
use flate2::bufread::GzDecoder;
use http::HeaderValue;
use tonic::Status;

use super::call::{CallContext, memory_exceeded};
use crate::net::HeldMemory;
use crate::rls::service::PREFIX_BYTES;

/// Compressed bytes per slice: some inflate to nothing.
const SLICE_INPUT_BYTES: usize = 1 << 10;

/// Inflated bytes per slice, to within [`PART_BYTES`].
const SLICE_OUTPUT_BYTES: usize = 16 << 10;

/// Inflated bytes that are copied at once.
const PART_BYTES: usize = 4 << 10;

/// The memory of the decoder: its window and its tables.
const DECODER_BYTES: usize = 48 << 10;

/// Returns the message, inflated and with a new prefix (gRPC's flag and length).
///
/// # Errors
///
/// The flag or the encoding is not that of gzip, the message is invalid, or has more than `grpc.max_message` bytes.
pub(super) async fn inflate<S>(
    message: Bytes,
    encoding: Option<&HeaderValue>,
    reservation: &mut HeldMemory,
    shared: &CallContext<S>,
) -> Result<Bytes, Status> {
    if message.first() != Some(&1) {
        return Err(Status::internal("the compressed flag of the request is neither 0 nor 1"));
    }
    match encoding.map(HeaderValue::as_bytes) {
        Some(b"gzip") => {}
        None | Some(b"identity") => {
            let text = "the request has the compressed flag, but no grpc-encoding that compresses";
            return Err(Status::internal(text));
        }
        Some(_) => {
            let text =
                "the request has an unknown grpc-encoding: compress it with gzip or not at all";
            return Err(Status::unimplemented(text));
        }
    }
    let _one_at_a_time = shared.inflating.lock().await;
    shared.scheduler.next_turn().await;
    let mut inflater = Box::new(Inflater::new(message, shared.grpc.limits.max_message)?);
    loop {
        if !reservation.resize(inflater.held_bytes()) {
            return Err(memory_exceeded());
        }
        if let Some(inflated) = inflater.next_slice()? {
            // Less than is held: it never fails.
            reservation.resize(inflated.len());
            return Ok(inflated);
        }
        shared.scheduler.next_turn().await;
    }
}

#[derive(Debug)]
pub struct Inflater {
    decoder: GzDecoder<Input>,
    compressed_bytes: usize,
    inflated: Vec<u8>,
    max_message: usize,
}

impl Inflater {
    /// Takes a message with its prefix.
    ///
    /// # Errors
    ///
    /// There is not exactly one message.
    pub fn new(message: Bytes, max_message: usize) -> Result<Inflater, Status> {
        let compressed_bytes = message.len();
        let mut rest = message;
        let announced = rest.try_get_u8().and_then(|_| rest.try_get_u32());
        if announced.is_err() || announced.is_ok_and(|length| length as usize != rest.len()) {
            return Err(Status::internal("expected exactly one compressed message"));
        }
        let decoder = GzDecoder::new(Input { rest, allowed: 0 });
        let inflated = vec![0; PREFIX_BYTES];
        Ok(Inflater { decoder, compressed_bytes, inflated, max_message })
    }

    /// Returns the bytes that this holds: the header of gzip may be as long as the message.
    fn held_bytes(&self) -> usize {
        DECODER_BYTES + 2 * self.compressed_bytes + self.inflated.capacity()
    }

    /// Inflates a slice. Returns the message with its prefix once it is complete.
    ///
    /// # Errors
    ///
    /// The message is invalid or too large, or bytes follow it.
    pub fn next_slice(&mut self) -> Result<Option<Bytes>, Status> {
        self.decoder.get_mut().allowed = SLICE_INPUT_BYTES;
        let mut part = [0; PART_BYTES];
        for _ in 0..SLICE_OUTPUT_BYTES / PART_BYTES {
            let end = self.max_message.saturating_add(PREFIX_BYTES + 1);
            let room = end.saturating_sub(self.inflated.len());
            match (&mut self.decoder).take(room as u64).read(&mut part) {
                Ok(0) => return self.finish().map(Some),
                Ok(length) if length < room => {
                    self.inflated.extend_from_slice(part.get(..length).unwrap_or_default());
                }
                Ok(_) => {
                    let max = self.max_message;
                    return Err(Status::resource_exhausted(format!(
                        "the request has more than {max} bytes when inflated (setting \
                         grpc.max_message): send fewer descriptors per request"
                    )));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => {
                    let text = format!("the request cannot be decompressed with gzip: {error}");
                    return Err(Status::internal(text));
                }
            }
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Bytes, Status> {
        if !self.decoder.get_ref().rest.is_empty() {
            return Err(Status::internal("bytes follow the end of the gzip data"));
        }
        let mut whole = std::mem::take(&mut self.inflated);
        let length = u32::try_from(whole.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
        if let Some([_, prefix @ ..]) = whole.first_chunk_mut::<PREFIX_BYTES>() {
            *prefix = length.to_be_bytes();
        }
        whole.shrink_to_fit();
        Ok(whole.into())
    }
}

/// The compressed bytes. Reading stops with `WouldBlock` when those that are allowed have been read.
#[derive(Debug)]
struct Input {
    rest: Bytes,
    allowed: usize,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.allowed == 0 && !self.rest.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(self.rest.get(..self.allowed).unwrap_or(&self.rest))
    }

    fn consume(&mut self, bytes: usize) {
        self.rest.advance(bytes);
        self.allowed -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use flate2::{Compression, GzBuilder, write::GzEncoder};
    use proptest::prelude::*;
    use tonic::Code;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn framed(flag: u8, message: &[u8]) -> Bytes {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flag], &length[..], message].concat().into()
    }

    /// Inflates a message. Returns it with its prefix, or the error; and the number of slices.
    fn inflate(compressed: &[u8], max: usize) -> (Result<Bytes, Status>, usize) {
        let mut inflater = Inflater::new(framed(1, compressed), max).unwrap();
        for slices in 1.. {
            assert!(inflater.inflated.len() <= PREFIX_BYTES + max);
            match inflater.next_slice() {
                Ok(None) => {}
                Ok(Some(whole)) => return (Ok(whole), slices),
                Err(status) => return (Err(status), slices),
            }
        }
        unreachable!()
    }

    fn error(compressed: &[u8], max: usize) -> Code {
        inflate(compressed, max).0.unwrap_err().code()
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back_in_slices_of_a_bounded_size(
            parts in prop::collection::vec((any::<Vec<u8>>(), 1..2_000_usize), 0..20),
            level in 0..10_u32,
        ) {
            let plain: Vec<u8> = parts.iter().flat_map(|(part, times)| part.repeat(*times)).collect();
            let mut encoder = GzBuilder::new()
                .filename("a name")
                .extra([7; 300])
                .write(Vec::new(), Compression::new(level));
            encoder.write_all(&plain).unwrap();
            let compressed = encoder.finish().unwrap();
            let (inflated, slices) = inflate(&compressed, plain.len());
            prop_assert_eq!(inflated.unwrap(), framed(0, &plain));
            let needed = compressed.len() / SLICE_INPUT_BYTES + plain.len() / SLICE_OUTPUT_BYTES;
            prop_assert!((needed / 2..=2 * needed + 2).contains(&slices), "{slices} for {needed}");
            if let Some(less) = plain.len().checked_sub(1) {
                prop_assert_eq!(error(&compressed, less), Code::ResourceExhausted);
            }
        }

        #[test]
        fn a_damaged_message_is_an_error(cut in 0..30_usize, at in 10..30_usize, bit in 0..8_u8) {
            let whole = gzip(b"a message that is long enough");
            let cut = &whole[..whole.len() - 1 - cut];
            prop_assert_eq!(error(cut, 1_000), Code::Internal);
            let mut damaged = whole;
            damaged[at] ^= 1_u8 << bit;
            prop_assert_eq!(error(&damaged, 1_000), Code::Internal);
        }
    }

    #[test]
    fn one_member_is_expected_and_nothing_behind_it() {
        let one = gzip(b"one");
        for more in [&one[..], &[0]] {
            assert_eq!(error(&[&one, more].concat(), 1_000), Code::Internal);
        }
        assert_eq!(error(b"", 1_000), Code::Internal);
        assert_eq!(error(&[0; 100], 1_000), Code::Internal);
        assert_eq!(inflate(&gzip(b""), 0).0.unwrap(), framed(0, b""));
        for framed in [&b""[..], &[1, 0, 0, 0], &[1, 0, 0, 0, 1], &[1, 0, 0, 0, 1, 2, 3]] {
            let status = Inflater::new(Bytes::copy_from_slice(framed), 1_000).unwrap_err();
            assert_eq!(status.code(), Code::Internal);
        }
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit_and_blocks_without_contents_take_turns() {
        let bomb = gzip(&vec![0; 8 << 20]);
        let (inflated, slices) = inflate(&bomb, 1 << 20);
        assert_eq!(inflated.unwrap_err().code(), Code::ResourceExhausted);
        assert!((64..=66).contains(&slices), "{slices}");
        // Stored blocks of no bytes.
        let empty = gzip(b"");
        let blocks = [&empty[..10], &[0, 0, 0, 0xff, 0xff].repeat(100_000), &empty[10..]].concat();
        let (inflated, slices) = inflate(&blocks, 1 << 20);
        assert_eq!(inflated.unwrap(), framed(0, b""));
        assert!(slices >= blocks.len() / SLICE_INPUT_BYTES, "{slices}");
    }
}

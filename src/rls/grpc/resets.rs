//! Counts the HTTP/2 streams of a connection that are reset (RST_STREAM), to disconnect a client that floods with them.
//!
//! Two kinds count: requests that the client resets before weir has read them, and streams that weir resets because of
//! errors, too many streams, or DATA after RST_STREAM. grpc-java sends the latter for a call that times out before it
//! is written: with twenty calls in flight and deadlines of a millisecond, up to 20 000 times a second. So resets are
//! forgiven when all that the client has sent is read, which a flood prevents.
//!
//! h2's own bound forgives nothing in the life of a connection, so such a grpc-java client reaches it some day.

use tokio::time::Instant;

/// Resets beyond which a connection is closed. A client whose requests time out while this process is stalled resets
/// all of them, so this is five seconds of 10 000 requests per second.
const MAX_RESETS: u32 = 50_000;

/// Resets that are forgiven for each request that is read: a reset costs less than a request, and of a busy client with
/// tight deadlines most requests time out.
const FORGIVEN_PER_REQUEST: u32 = 20;

/// Resets that are forgiven with time: a process with too little CPU never has all read that the client has sent.
const FORGIVEN_PER_SECOND: f64 = 2_000.0;

const RST_STREAM: u8 = 3;

/// Bytes of an HTTP/2 frame's head after its length and kind: flags and stream.
const REST_OF_HEAD: usize = 5;

/// The resets of one kind on one connection, minus those that are forgiven.
#[derive(Debug)]
pub(super) struct ResetCounter {
    excess: u32,
    /// When resets were last forgiven for the time that had passed.
    forgiven_at: Instant,
}

#[derive(Debug)]
pub(super) struct TooManyResets;

impl ResetCounter {
    pub fn new() -> ResetCounter {
        ResetCounter { excess: 0, forgiven_at: Instant::now() }
    }

    pub fn count_read(&mut self) {
        self.excess = self.excess.saturating_sub(FORGIVEN_PER_REQUEST);
    }

    /// Forgives all, since all that the client has sent is read.
    pub fn forgive(&mut self) {
        self.excess = 0;
    }

    pub fn count_resets(&mut self, resets: u32) -> Result<(), TooManyResets> {
        self.excess = self.excess.saturating_add(resets);
        // The clock is read only here.
        if self.excess > MAX_RESETS {
            let forgiven = self.forgiven_at.elapsed().as_secs_f64() * FORGIVEN_PER_SECOND;
            self.excess = self.excess.saturating_sub(forgiven as u32);
            self.forgiven_at = Instant::now();
        }
        if self.excess > MAX_RESETS { Err(TooManyResets) } else { Ok(()) }
    }
}

/// Finds RST_STREAM among the frames that are written, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct WrittenResets {
    /// Bytes until the next frame.
    skip: usize,
    /// A one, and behind it what an earlier piece had of the next frame's length and kind, which are four bytes; 0 if it
    /// had nothing.
    head: u64,
}

impl WrittenResets {
    /// Returns how many there are in `piece`, which follows the previous ones.
    pub fn count(&mut self, mut piece: &[u8]) -> u32 {
        let mut resets = 0;
        loop {
            let Some(rest) = piece.get(self.skip..) else {
                self.skip -= piece.len();
                return resets;
            };
            self.skip = 0;
            let (head, rest) = match rest.split_first_chunk() {
                Some((head, rest)) if self.head == 0 => (u32::from_be_bytes(*head), rest),
                _ => match self.split_head(rest) {
                    Some(split) => split,
                    None => return resets,
                },
            };
            piece = rest;
            self.skip = (head >> 8) as usize + REST_OF_HEAD;
            resets += u32::from(head as u8 == RST_STREAM);
        }
    }

    /// Returns the length and kind of the next frame, and what follows them, if they end in `piece`.
    #[cold]
    fn split_head<'a>(&mut self, mut piece: &'a [u8]) -> Option<(u32, &'a [u8])> {
        while self.head >> 32 == 0 {
            let (byte, rest) = piece.split_first()?;
            self.head = self.head.max(1) << 8 | u64::from(*byte);
            piece = rest;
        }
        Some((std::mem::take(&mut self.head) as u32, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_resets_all_requests_exceeds_the_limit() {
        let mut resets = ResetCounter::new();
        assert!((0..MAX_RESETS).all(|_| resets.count_resets(1).is_ok()));
        assert!(resets.count_resets(1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn resets_are_forgiven_with_time_and_floods_are_not() {
        let tenth = std::time::Duration::from_millis(100);
        let allowed = FORGIVEN_PER_SECOND as u32 / 10;
        let mut resets = ResetCounter::new();
        for _ in 0..6_000 {
            resets.count_resets(allowed).unwrap();
            tokio::time::advance(tenth).await;
        }
        // Twice the rate uses the limit up; no more is left of a quiet day than of a quiet minute.
        tokio::time::advance(std::time::Duration::from_secs(86_400)).await;
        let mut total = 0;
        while resets.count_resets(2 * allowed).is_ok() {
            total += 2 * allowed;
            tokio::time::advance(tenth).await;
        }
        assert!((MAX_RESETS..=4 * MAX_RESETS).contains(&total), "{total}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_what_it_sent_to_be_read_is_forgiven() {
        let mut resets = ResetCounter::new();
        for _ in 0..100 {
            resets.count_resets(MAX_RESETS).unwrap();
            resets.forgive();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_most_of_whose_requests_time_out_stays_connected() {
        let mut resets = ResetCounter::new();
        for i in 0..100 * MAX_RESETS {
            if i % FORGIVEN_PER_REQUEST == 0 {
                resets.count_read();
            } else {
                resets.count_resets(1).unwrap();
            }
        }
    }

    fn frame(kind: u8, length: u16) -> Vec<u8> {
        let head = [&[0], &length.to_be_bytes()[..], &[kind, 1, 3, 3, 3, 3]].concat();
        // The payload looks like frames of the kind.
        [head, vec![RST_STREAM; length.into()]].concat()
    }

    proptest! {
        #[test]
        fn resets_are_found_however_the_frames_are_written(
            frames in prop::collection::vec((0..10_u8, 0..400_u16), 0..40),
            sizes in prop::collection::vec(1..60_usize, 1..20),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(kind, length)| frame(*kind, *length)).collect();
            let (mut written, mut found, mut rest) = (WrittenResets::default(), 0, &bytes[..]);
            for size in sizes.iter().cycle() {
                let (piece, after) = rest.split_at(rest.len().min(*size));
                found += written.count(piece);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            let expected = frames.iter().filter(|(kind, _)| *kind == RST_STREAM).count();
            prop_assert_eq!(found as usize, expected);
        }
    }
}

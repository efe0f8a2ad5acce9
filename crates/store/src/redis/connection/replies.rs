//! The size of replies: no reply may take more memory than its command allows.
//!
//! The parser keeps a reply until it is whole, and reserves what an array announces. So each byte from
//! the server is measured before the parser sees it: the declared lengths of texts and arrays, and the
//! nesting. Commands say what their replies may take. Beyond it, or where nothing was asked, the
//! connection ends.
//!
//! Bounded: what is in flight, and [`SLACK_BYTES`]. Cost: a few instructions per element.

mod scanner;

use std::io;
use std::sync::OnceLock;

use parking_lot::Mutex;
use redis::RedisError;

use self::scanner::Scanner;

/// The bound of replies to administrative commands, such as `INFO`.
pub(in super::super) const ADMIN_BYTES: usize = 1 << 20;

/// The bound of a short reply, such as a number.
pub(in super::super) const SHORT_BYTES: usize = 1 << 10;

/// What a server may send besides, such as the text of an error, or a late reply.
const SLACK_BYTES: usize = 64 << 10;

/// Why a reply is not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum BadReply {
    #[error(
        "a reply is larger than the {0} bytes that its command allows; the connection is closed"
    )]
    TooLarge(usize),
    #[error("a reply has more than {} nested arrays; the connection is closed", scanner::MAX_DEPTH)]
    TooDeep,
    #[error("a reply that no command asked for; the connection is closed")]
    Unasked,
    #[error("a reply is not of the Redis protocol; the connection is closed")]
    Invalid,
}

/// What the commands in flight allow.
#[derive(Debug)]
struct Allowed {
    commands: usize,
    replies: usize,
    /// Replies to commands that nobody awaits any more. They may come late.
    late: usize,
    /// How many times commands were abandoned.
    abandoned: u64,
    /// The most bytes that the replies to all commands in flight may take.
    bytes: usize,
    /// How many of these bytes are left.
    left: usize,
}

/// Measures the replies of one connection.
#[derive(Debug)]
pub(super) struct Meter {
    allowed: Mutex<Allowed>,
    bad: OnceLock<BadReply>,
}

impl Meter {
    pub fn new() -> Meter {
        let allowed = Allowed {
            commands: 0,
            replies: 0,
            late: 0,
            abandoned: 0,
            bytes: SLACK_BYTES,
            left: SLACK_BYTES,
        };
        Meter { allowed: Mutex::new(allowed), bad: OnceLock::new() }
    }

    /// Allows up to a number of replies that together take up to `bytes`, for as long as the guard exists.
    pub fn allow(&self, replies: usize, bytes: usize) -> InFlight<'_> {
        let mut allowed = self.allowed.lock();
        allowed.commands += 1;
        allowed.replies = allowed.replies.saturating_add(replies);
        allowed.bytes = allowed.bytes.saturating_add(bytes);
        allowed.left = allowed.left.saturating_add(bytes);
        InFlight { meter: self, replies, abandoned: allowed.abandoned, is_finished: false }
    }

    /// Returns the error of a command, or why the connection was closed.
    pub fn explain(&self, error: RedisError) -> RedisError {
        match self.bad.get() {
            Some(bad) => io_error(*bad).into(),
            None => error,
        }
    }

    fn count(&self, replies: usize, bytes: usize) -> Result<(), BadReply> {
        let mut allowed = self.allowed.lock();
        let too_large = BadReply::TooLarge(allowed.bytes);
        allowed.left = allowed.left.checked_sub(bytes).ok_or(too_large)?;
        allowed.replies = allowed.replies.checked_sub(replies).ok_or(BadReply::Unasked)?;
        Ok(())
    }
}

/// Commands whose replies are awaited.
pub(super) struct InFlight<'m> {
    meter: &'m Meter,
    replies: usize,
    /// How many times commands were abandoned before this one was sent.
    abandoned: u64,
    is_finished: bool,
}

impl InFlight<'_> {
    /// Ends the wait: all replies have come.
    pub fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut allowed = self.meter.allowed.lock();
        allowed.commands -= 1;
        if !self.is_finished {
            allowed.late = allowed.late.saturating_add(self.replies);
            allowed.abandoned += 1;
        } else if allowed.abandoned == self.abandoned {
            // Replies come in order: the replies to commands that were abandoned before have come.
            allowed.late = 0;
        }
        if allowed.commands == 0 {
            // Fewer may have been sent than were allowed.
            allowed.replies = allowed.replies.min(allowed.late);
            allowed.late = allowed.replies;
            (allowed.bytes, allowed.left) = (SLACK_BYTES, SLACK_BYTES);
        }
    }
}

/// Measures what is read from one connection.
#[derive(Debug, Default)]
pub(super) struct Replies(Scanner);

impl Replies {
    /// Measures the next bytes.
    ///
    /// # Errors
    ///
    /// The bytes must not be parsed; the connection is of no use any more.
    pub fn measure(&mut self, bytes: &[u8], meter: &Meter) -> io::Result<()> {
        let measured = self.0.scan(bytes);
        let counted = measured.and_then(|seen| meter.count(seen.replies, seen.bytes));
        counted.map_err(|bad| {
            let _ = meter.bad.set(bad);
            io_error(bad)
        })
    }
}

/// An error after which the connection is replaced.
fn io_error(bad: BadReply) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allowed_and_not_sent_allows_nothing_later() {
        let meter = Meter::new();
        for _ in 0..10_000 {
            let (poll, other) = (meter.allow(3, 100), meter.allow(1, 100));
            meter.count(2, 150).unwrap();
            other.finish();
            poll.finish();
        }
        assert_eq!(meter.count(1, 1), Err(BadReply::Unasked));
    }

    #[test]
    fn replies_to_commands_that_nobody_awaits_may_come_late() {
        let meter = Meter::new();
        drop(meter.allow(2, 100));
        meter.count(1, 50).unwrap();
        let next = meter.allow(1, 100);
        meter.count(2, 50).unwrap();
        next.finish();
        assert_eq!(meter.count(1, 1), Err(BadReply::Unasked));
        // One of two was never sent.
        drop(meter.allow(2, 100));
        let next = meter.allow(1, 100);
        meter.count(2, 50).unwrap();
        next.finish();
        assert_eq!(meter.count(1, 1), Err(BadReply::Unasked));
    }
}

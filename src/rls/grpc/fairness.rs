//! Keeps a gRPC client that sends continuously, or does not read, from delaying the other connections of its thread.
//!
//! A connection reads at most [`TURN_BYTES`] while its task is polled: that is its turn. After it, the connection
//! queues for the next turn. The task of [`ReadScheduler`] grants one turn at a time and yields in
//! between, so the thread serves whatever arrived for other connections: they wait for one turn at
//! most, however many connections are queued.
//!
//! | state     | `start_poll`                         | `wait` (the turn is used up) | scheduler   |
//! | --------- | ------------------------------------ | ---------------------------- | ----------- |
//! | `Reading` | a new turn of [`TURN_BYTES`]         | → `Queued`                   |             |
//! | `Queued`  | no turn: polled for something else   | stays queued                 | → `Granted` |
//! | `Granted` | → `Reading`, [`RESUMED_TURN_BYTES`]  | → `Queued`                   |             |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::resets::WrittenResets;

/// Bytes per turn. Enough for what a client with occasional requests sends at once.
const TURN_BYTES: usize = 4 << 10;

/// Bytes per turn for which a connection has queued. Small, since the other connections wait for it.
const RESUMED_TURN_BYTES: usize = 1 << 10;

/// The connections of one thread that wait for their turn to read.
#[derive(Clone, Debug, Default)]
pub struct ReadScheduler(Arc<Mutex<ReadQueue>>);

#[derive(Debug, Default)]
struct ReadQueue {
    waiting: VecDeque<(Waker, Arc<ReadTurn>)>,
    /// Whether a task grants turns. It ends when the queue is empty.
    is_running: bool,
}

impl ReadScheduler {
    /// Returns a socket that is read in turns with the others.
    pub fn throttle<T>(&self, io: T) -> ThrottledIo<T> {
        let (turn, outbound, written) = (self.new_turn(), Arc::default(), WrittenResets::default());
        ThrottledIo { io, turn, outbound, written, read_is_deferred: false }
    }

    fn new_turn(&self) -> Arc<ReadTurn> {
        Arc::new(ReadTurn {
            scheduler: self.clone(),
            state: AtomicState::default(),
            remaining: AtomicUsize::new(TURN_BYTES),
        })
    }

    /// Waits for a turn of something other than reading.
    pub async fn next_turn(&self) {
        let turn = self.new_turn();
        poll_fn(|cx| match turn.state.get() {
            TurnState::Granted => Poll::Ready(()),
            TurnState::Reading | TurnState::Queued => {
                turn.wait(cx);
                Poll::Pending
            }
        })
        .await;
    }

    /// Grants one turn after another, and lets the thread do other work in between.
    async fn run(self) {
        loop {
            tokio::task::yield_now().await;
            let Some((waker, turn)) = self.next_waiting() else { return };
            turn.state.set(TurnState::Granted);
            waker.wake();
        }
    }

    fn next_waiting(&self) -> Option<(Waker, Arc<ReadTurn>)> {
        let mut queue = self.0.lock();
        let next = queue.waiting.pop_front();
        queue.is_running = next.is_some();
        next
    }
}

/// What one connection may read. Only the connection's task and the scheduler's use it, on one
/// thread; the atomics merely make it `Sync`.
#[derive(Debug)]
pub(super) struct ReadTurn {
    pub scheduler: ReadScheduler,
    state: AtomicState,
    remaining: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum TurnState {
    /// May read what remains of the turn.
    Reading,
    /// Used its turn up and waits for the next.
    Queued,
    /// Has the next turn, which starts with the next poll.
    Granted,
}

#[derive(Debug, Default)]
struct AtomicState(AtomicU8);

impl AtomicState {
    fn get(&self) -> TurnState {
        const READING: u8 = TurnState::Reading as u8;
        const QUEUED: u8 = TurnState::Queued as u8;
        match self.0.load(Ordering::Relaxed) {
            READING => TurnState::Reading,
            QUEUED => TurnState::Queued,
            _ => TurnState::Granted,
        }
    }

    fn set(&self, state: TurnState) {
        self.0.store(state as u8, Ordering::Relaxed);
    }
}

impl ReadTurn {
    /// Starts a turn, unless the connection is queued for one. To be called whenever the
    /// connection's task is polled.
    pub fn start_poll(&self) {
        let bytes = match self.state.get() {
            TurnState::Reading => TURN_BYTES,
            TurnState::Queued => return,
            TurnState::Granted => {
                self.state.set(TurnState::Reading);
                RESUMED_TURN_BYTES
            }
        };
        self.remaining.store(bytes, Ordering::Relaxed);
    }

    pub fn remaining(&self) -> usize {
        self.remaining.load(Ordering::Relaxed)
    }

    /// Counts bytes that were read, at most [`remaining`](Self::remaining).
    pub fn consume(&self, bytes: usize) {
        self.remaining.store(self.remaining().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Queues for the next turn. The task is woken when it is granted.
    pub fn wait(self: &Arc<Self>, cx: &Context<'_>) {
        if self.state.get() == TurnState::Queued {
            return;
        }
        self.state.set(TurnState::Queued);
        let mut queue = self.scheduler.0.lock();
        queue.waiting.push_back((cx.waker().clone(), self.clone()));
        if !std::mem::replace(&mut queue.is_running, true) {
            tokio::spawn(self.scheduler.clone().run());
        }
    }
}

/// Bytes that may be handed to h2 before it writes.
const MAX_UNWRITTEN_BYTES: usize = 128 << 10;

/// Bytes that a response takes besides its message: three frames and two header maps.
pub(super) const RESPONSE_OVERHEAD_BYTES: usize = 1 << 10;

/// The responses of one connection that h2 holds and the socket has not taken.
///
/// h2 buffers what it cannot write and does not report how much that is. So a bounded number of bytes is handed to it,
/// and then no more until it has written everything. Only the connection's task uses this; the atomics merely make it
/// `Sync`.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    unwritten_bytes: AtomicUsize,
    blocked: AtomicBool,
    /// Streams that were reset from here, and are not counted yet.
    resets: AtomicU32,
    caught_up: AtomicBool,
}

impl Outbound {
    /// Counts a response, or a part of one, that is handed to h2.
    pub fn hand_over(&self, bytes: usize) {
        let before = self.unwritten_bytes.load(Ordering::Relaxed);
        self.unwritten_bytes
            .store(before.saturating_add(bytes + RESPONSE_OVERHEAD_BYTES), Ordering::Relaxed);
    }

    pub fn is_full(&self) -> bool {
        self.unwritten_bytes.load(Ordering::Relaxed) >= MAX_UNWRITTEN_BYTES
    }

    /// Returns how many streams have been reset from here since the last call.
    pub fn take_resets(&self) -> u32 {
        match self.resets.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.resets.swap(0, Ordering::Relaxed),
        }
    }

    /// Whether all that the client had sent was read, at some time since the last call.
    pub fn take_caught_up(&self) -> bool {
        self.caught_up.swap(false, Ordering::Relaxed)
    }

    /// Whether the socket did not take all that h2 wrote.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Notes that h2 has written what it could. Returns whether that was everything.
    pub fn after_write(&self) -> bool {
        if self.is_blocked() {
            return false;
        }
        self.unwritten_bytes.store(0, Ordering::Relaxed);
        true
    }
}

/// A socket that is read only in its connection's turn, and only while the client reads.
///
/// Reads a bounded number of bytes per turn, and nothing while responses cannot be written: TCP's
/// flow control then stops a client that sends continuously, or does not read, before the other
/// connections of its thread have to wait.
#[derive(Debug)]
pub struct ThrottledIo<T> {
    io: T,
    pub(super) turn: Arc<ReadTurn>,
    pub(super) outbound: Arc<Outbound>,
    written: WrittenResets,
    /// Whether a read was refused because writing was blocked.
    read_is_deferred: bool,
}

impl<T> ThrottledIo<T> {
    fn after_write<R>(&mut self, cx: &Context<'_>, written: &Poll<R>) {
        self.outbound.set_blocked(written.is_pending());
        if written.is_ready() && self.read_is_deferred {
            self.read_is_deferred = false;
            cx.waker().wake_by_ref();
        }
    }

    fn count_resets(&mut self, written: &[u8]) {
        let resets = self.written.count(written);
        if resets > 0 {
            self.outbound.resets.fetch_add(resets, Ordering::Relaxed);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ThrottledIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.outbound.is_blocked() {
            self.read_is_deferred = true;
            return Poll::Pending;
        }
        let remaining = self.turn.remaining();
        if remaining == 0 {
            self.turn.wait(cx);
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let mut limited = (&mut self.io).take(remaining as u64);
        let read = Pin::new(&mut limited).poll_read(cx, buf);
        self.turn.consume(buf.filled().len() - before);
        if read.is_pending() {
            self.outbound.caught_up.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ThrottledIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.after_write(cx, &written);
        if let Poll::Ready(Ok(length)) = written {
            self.count_resets(bytes.get(..length).unwrap_or(bytes));
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bytes);
        self.after_write(cx, &written);
        if let Poll::Ready(Ok(mut length)) = written {
            for part in bytes {
                let part = part.get(..length).unwrap_or(part);
                self.count_resets(part);
                length -= part.len();
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS, what the socket does not take is noticed here.
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.after_write(cx, &flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use tokio::io::{AsyncWriteExt, duplex};

    /// Uses three turns up, logging each.
    async fn greedy(name: char, scheduler: ReadScheduler, log: Arc<Mutex<String>>) {
        let turn = scheduler.new_turn();
        let mut turns = 3;
        poll_fn(|cx| {
            turn.start_poll();
            if turn.remaining() == 0 {
                // Polled for another reason.
                return Poll::Pending;
            }
            log.lock().push(name);
            turn.consume(turn.remaining());
            turns -= 1;
            if turns == 0 {
                return Poll::Ready(());
            }
            // Queued once, however often it waits.
            turn.wait(cx);
            turn.wait(cx);
            // A poll before the turn is granted does not start one.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn one_turn_is_granted_at_a_time_and_others_are_served_in_between() {
        let (scheduler, log) = (ReadScheduler::default(), Arc::<Mutex<String>>::default());
        let greedy = |name| tokio::spawn(greedy(name, scheduler.clone(), log.clone()));
        let all = [greedy('a'), greedy('b'), greedy('c')];
        let other = tokio::spawn({
            let log = log.clone();
            async move {
                while log.lock().matches(char::is_alphabetic).count() < 9 {
                    log.lock().push('.');
                    tokio::task::yield_now().await;
                }
            }
        });
        for task in all {
            task.await.unwrap();
        }
        other.await.unwrap();
        let log = log.lock().clone();
        // All have their first turn at once, and the others one by one.
        let (first, rest) = log.split_at(3);
        assert_eq!(first, "abc");
        assert_eq!(rest.replace('.', ""), "abcabc");
        assert!(rest.as_bytes().windows(2).all(|pair| pair.contains(&b'.')), "{log}");
        assert!(!scheduler.0.lock().is_running, "its task ends with the queue");
    }

    #[tokio::test]
    async fn turns_of_other_work_are_granted_one_at_a_time() {
        let (scheduler, log) = (ReadScheduler::default(), Arc::<Mutex<String>>::default());
        let work = |name| {
            let (scheduler, log) = (scheduler.clone(), log.clone());
            tokio::spawn(async move {
                for _ in 0..3 {
                    scheduler.next_turn().await;
                    log.lock().push(name);
                }
            })
        };
        let (one, two) = (work('a'), work('b'));
        while !(one.is_finished() && two.is_finished()) {
            log.lock().push('.');
            tokio::task::yield_now().await;
        }
        let log = log.lock().clone();
        assert_eq!(log.replace('.', ""), "ababab");
        assert!(!log.contains("ab") && !log.contains("ba"), "nothing runs in between: {log}");
    }

    fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_turn_ends_while_there_is_more_to_read() {
        let (mut client, server) = duplex(4 * TURN_BYTES);
        let mut server = ReadScheduler::default().throttle(server);
        let turn = server.turn.clone();
        client.write_all(&[7; 3 * TURN_BYTES]).await.unwrap();
        let mut received = [0; TURN_BYTES];
        assert_eq!(now_or_never(server.read(&mut received)).unwrap().unwrap(), TURN_BYTES);
        assert!(now_or_never(server.read(&mut received)).is_none(), "the turn is used up");
        assert!(now_or_never(server.read(&mut received)).is_none(), "however often it is polled");
        turn.start_poll();
        assert!(now_or_never(server.read(&mut received)).is_none(), "the next is not granted yet");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        turn.start_poll();
        assert_eq!(now_or_never(server.read(&mut received)).unwrap().unwrap(), RESUMED_TURN_BYTES);
        // The grant wakes the task.
        let mut rest = pin!(server.read(&mut received));
        let mut polled = false;
        let rest = poll_fn(|cx| {
            if std::mem::replace(&mut polled, true) {
                turn.start_poll();
            }
            rest.as_mut().poll(cx)
        });
        assert_eq!(rest.await.unwrap(), RESUMED_TURN_BYTES);
    }

    #[tokio::test]
    async fn nothing_is_read_from_a_client_that_does_not_read() {
        let (mut client, server) = duplex(64);
        let mut server = ReadScheduler::default().throttle(server);
        client.write_all(b"more").await.unwrap();
        assert!(now_or_never(server.write_all(&[7; 65])).is_none());
        let mut received = [0; 64];
        assert!(now_or_never(server.read(&mut received)).is_none());
        // It is read from again once it has read and the rest is written.
        client.read_exact(&mut [0; 64]).await.unwrap();
        server.write_all(&[7]).await.unwrap();
        assert_eq!(server.read(&mut received).await.unwrap(), 4);
    }

    #[test]
    fn no_more_is_handed_over_until_everything_is_written() {
        let outbound = Outbound::default();
        let mut responses = 0;
        while !outbound.is_full() {
            outbound.hand_over(100);
            responses += 1;
        }
        assert!((64..=128).contains(&responses), "{responses}");
        outbound.set_blocked(true);
        assert!(!outbound.after_write() && outbound.is_full());
        outbound.set_blocked(false);
        assert!(outbound.after_write() && !outbound.is_full());
    }
}

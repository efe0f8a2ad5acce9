//! Schedules the reads of one thread's connections, so that a client that sends continuously does
//! not delay the others.
//!
//! A connection reads at most [`TURN_BYTES`] while its task is polled. Once it has used that turn
//! up, it queues for the next one. The scheduler's task grants one turn at a time and yields in
//! between, so the thread serves whatever arrived for other connections: they wait for one turn at
//! most, however many connections are queued.
//!
//! | state     | `start_poll`                         | `wait` (the turn is used up) | scheduler   |
//! | --------- | ------------------------------------ | ---------------------------- | ----------- |
//! | `Reading` | a new turn of [`TURN_BYTES`]         | → `Queued`                   |             |
//! | `Queued`  | no turn: polled for something else   | stays queued                 | → `Granted` |
//! | `Granted` | → `Reading`, [`RESUMED_TURN_BYTES`]  | → `Queued`                   |             |

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Bytes per turn. Enough for what a client with occasional requests sends at once.
pub(super) const TURN_BYTES: usize = 4 << 10;

/// Bytes per turn that was queued for. Small, since the other connections wait for it.
pub(super) const RESUMED_TURN_BYTES: usize = 1 << 10;

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
    pub(super) fn new_turn(&self) -> Arc<ReadTurn> {
        Arc::new(ReadTurn {
            scheduler: self.clone(),
            state: AtomicState::default(),
            remaining: AtomicUsize::new(TURN_BYTES),
        })
    }

    /// Grants one turn after another, and lets the thread do other work in between.
    async fn run(self) {
        loop {
            tokio::task::yield_now().await;
            let Some((waker, turn)) = self.next_waiting() else { return };
            turn.state.set(State::Granted);
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
    scheduler: ReadScheduler,
    state: AtomicState,
    remaining: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
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
    fn get(&self) -> State {
        const READING: u8 = State::Reading as u8;
        const QUEUED: u8 = State::Queued as u8;
        match self.0.load(Ordering::Relaxed) {
            READING => State::Reading,
            QUEUED => State::Queued,
            _ => State::Granted,
        }
    }

    fn set(&self, state: State) {
        self.0.store(state as u8, Ordering::Relaxed);
    }
}

impl ReadTurn {
    /// Starts a turn, unless the connection is queued for one. To be called whenever the
    /// connection's task is polled.
    pub fn start_poll(&self) {
        let bytes = match self.state.get() {
            State::Reading => TURN_BYTES,
            State::Queued => return,
            State::Granted => {
                self.state.set(State::Reading);
                RESUMED_TURN_BYTES
            }
        };
        self.remaining.store(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes may still be read in this turn.
    pub fn remaining(&self) -> usize {
        self.remaining.load(Ordering::Relaxed)
    }

    /// Counts bytes that were read, at most [`remaining`](Self::remaining).
    pub fn consume(&self, bytes: usize) {
        self.remaining.store(self.remaining().saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Queues for the next turn. The task is woken when it is granted.
    pub fn wait(self: &Arc<Self>, cx: &Context<'_>) {
        if self.state.get() == State::Queued {
            return;
        }
        self.state.set(State::Queued);
        let mut queue = self.scheduler.0.lock();
        queue.waiting.push_back((cx.waker().clone(), self.clone()));
        if !std::mem::replace(&mut queue.is_running, true) {
            tokio::spawn(self.scheduler.clone().run());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

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
}

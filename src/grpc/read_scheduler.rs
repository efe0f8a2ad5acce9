//! ReadScheduler, for connections that ask without end: one has its turn, then whatever came for the others
//! is served, then the next has its own. However many there are, others wait for one turn at most.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Bytes that are read in one turn: what comes at once from who asks now and then.
pub(super) const TURN_BYTES: usize = 4 << 10;

/// Bytes of a turn that was waited for: who asks without end is served in small pieces, as others
/// wait for each.
pub(super) const RESUMED_TURN_BYTES: usize = 1 << 10;

/// Those that wait for their turn, of one thread.
#[derive(Clone, Debug, Default)]
pub struct ReadScheduler(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Waker, Arc<ReadTurn>)>,
    /// Whether a task calls them.
    called: bool,
}

/// The turn of one connection. It begins when the connection's task is polled, and lasts as long:
/// meanwhile the connection asks for more again and again.
#[derive(Debug)]
pub(super) struct ReadTurn {
    scheduler: ReadScheduler,
    read: AtomicUsize,
    waits: AtomicBool,
    called: AtomicBool,
}

impl ReadScheduler {
    pub(super) fn new_turn(&self) -> Arc<ReadTurn> {
        let (read, waits, called) = Default::default();
        Arc::new(ReadTurn { scheduler: self.clone(), read, waits, called })
    }

    /// Calls one after the other. Their thread looks for what came for others in between.
    async fn call(self) {
        loop {
            tokio::task::yield_now().await;
            let next = {
                let mut queue = self.0.lock();
                let next = queue.waiting.pop_front();
                queue.called = next.is_some();
                next
            };
            let Some((waker, turn)) = next else { return };
            turn.waits.store(false, Ordering::Relaxed);
            turn.called.store(true, Ordering::Relaxed);
            waker.wake();
        }
    }
}

impl ReadTurn {
    /// The task is polled.
    pub fn begin(&self) {
        if !self.waits.load(Ordering::Relaxed) {
            let less = if self.called.swap(false, Ordering::Relaxed) {
                TURN_BYTES - RESUMED_TURN_BYTES
            } else {
                0
            };
            self.read.store(less, Ordering::Relaxed);
        }
    }

    /// Bytes that may be read yet.
    pub fn left(&self) -> usize {
        TURN_BYTES.saturating_sub(self.read.load(Ordering::Relaxed))
    }

    pub fn took(&self, bytes: usize) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Has the task polled when its next turn comes.
    pub fn wait(self: &Arc<Self>, cx: &Context<'_>) {
        if self.waits.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut queue = self.scheduler.0.lock();
        queue.waiting.push_back((cx.waker().clone(), self.clone()));
        if !std::mem::replace(&mut queue.called, true) {
            tokio::spawn(self.scheduler.clone().call());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    /// Takes turn after turn, and then is done; `log` is told of each.
    async fn greedy(name: char, scheduler: ReadScheduler, log: Arc<Mutex<String>>) {
        let turn = scheduler.new_turn();
        let mut left = 3;
        poll_fn(|cx| {
            turn.begin();
            if turn.left() == 0 {
                // As when it is polled for another reason.
                return Poll::Pending;
            }
            log.lock().push(name);
            turn.took(turn.left());
            left -= 1;
            if left == 0 {
                return Poll::Ready(());
            }
            // However often it is asked.
            turn.wait(cx);
            turn.wait(cx);
            // Polled before its turn comes, it has none.
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[tokio::test]
    async fn one_has_its_turn_at_a_time_and_others_are_served_in_between() {
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
        // The first turn is everybody's at once; then it is one's at a time.
        let (first, rest) = log.split_at(3);
        assert_eq!(first, "abc");
        assert_eq!(rest.replace('.', ""), "abcabc");
        assert!(rest.as_bytes().windows(2).all(|pair| pair.contains(&b'.')), "{log}");
        assert!(!scheduler.0.lock().called, "nobody is left to call");
    }
}

//! Connections that wait for the first step of their TLS handshake, the oldest first. Each handshake thread has one.
//!
//! A new connection always gets a place. Beyond [`PLACES`], it displaces the one that has waited longest, once that has
//! waited for [`MAX_WAIT`]: the client of the old one times out soon, the client of the new one does not.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The connections that may wait without a maximum time.
const PLACES: usize = 128;

/// How long a connection may wait while more than [`PLACES`] wait.
const MAX_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<WaitQueue<T>>,
    changed: Notify,
    closed: AtomicBool,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        let (waiting, changed) = (Mutex::new(WaitQueue(VecDeque::new())), Notify::new());
        Queue { waiting, changed, closed: AtomicBool::new(false) }
    }

    /// Adds a connection to at most `max` others, or [`PLACES`] if that is more. Returns the one that it displaces.
    pub fn push(&self, newcomer: T, max: usize) -> Option<T> {
        let displaced = self.waiting.lock().push(newcomer, max, Instant::now());
        self.changed.notify_one();
        displaced
    }

    /// Waits for a connection, and removes it. None once the queue is closed and empty. For one task.
    pub async fn next(&self) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            let next = self.waiting.lock().pop();
            if next.is_some() || self.closed.load(Ordering::Acquire) {
                return next;
            }
            changed.await;
        }
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

#[derive(Debug)]
struct WaitQueue<T>(VecDeque<(Instant, T)>);

impl<T> WaitQueue<T> {
    fn push(&mut self, newcomer: T, max: usize, now: Instant) -> Option<T> {
        let length = self.0.len();
        let is_late = |(since, _): &(Instant, T)| now.duration_since(*since) > MAX_WAIT;
        let is_full = length >= PLACES && self.0.front().is_some_and(is_late);
        let displaced = if is_full || length >= max.max(PLACES) { self.pop() } else { None };
        self.0.push_back((now, newcomer));
        displaced
    }

    fn pop(&mut self) -> Option<T> {
        let next = self.0.pop_front().map(|(_, next)| next);
        if self.0.is_empty() {
            // It may have been long.
            self.0.shrink_to(PLACES);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    const MAX: usize = 10_000;

    fn waiting() -> (WaitQueue<usize>, Instant) {
        (WaitQueue(VecDeque::new()), Instant::now())
    }

    #[test]
    fn a_full_queue_displaces_the_one_that_waits_longest_and_too_long() {
        let (mut waiting, start) = waiting();
        for i in 0..PLACES {
            assert_eq!(waiting.push(i, MAX, start), None);
        }
        // Nobody has waited too long: there is room for a burst.
        for i in 0..1_000 {
            assert_eq!(waiting.push(PLACES + i, MAX, start + MAX_WAIT), None);
        }
        let late = start + MAX_WAIT + STEP;
        for i in 0..PLACES {
            assert_eq!(waiting.push(2_000 + i, MAX, late), Some(i));
        }
        assert_eq!(waiting.push(3_000, MAX, late), None);
        assert_eq!(waiting.pop(), Some(PLACES), "the oldest is next");
    }

    #[test]
    fn a_queue_that_is_not_full_displaces_no_one() {
        let (mut waiting, start) = waiting();
        for i in 0..PLACES {
            assert_eq!(waiting.push(i, MAX, start + 10 * MAX_WAIT * i as u32), None);
        }
        assert_eq!(waiting.push(PLACES, MAX, start + 20_000 * MAX_WAIT), Some(0));
    }

    #[test]
    fn the_length_is_bounded_and_the_newcomer_stays() {
        let (mut waiting, start) = waiting();
        let displaced: Vec<usize> = (0..300).filter_map(|i| waiting.push(i, 200, start)).collect();
        assert!(displaced.iter().copied().eq(0..100), "{displaced:?}");
        let rest: Vec<usize> = std::iter::from_fn(|| waiting.pop()).collect();
        assert!(rest.iter().copied().eq(100..300), "{rest:?}");
    }

    /// Twice as many arrive as are served.
    #[test]
    fn above_the_rate_half_are_served_and_none_waits_much_longer_than_the_rest() {
        let (mut waiting, start) = waiting();
        let (mut served, mut longest) = (0, Duration::ZERO);
        let arrivals = 20_000;
        for i in 0..arrivals {
            let now = start + STEP * i as u32 / 2;
            waiting.push(i, MAX, now);
            if i % 2 == 0 {
                let next = waiting.pop().unwrap();
                longest = longest.max(now - (start + STEP * next as u32 / 2));
                served += 1;
            }
        }
        assert_eq!(served, arrivals / 2);
        assert!(longest <= MAX_WAIT + 2 * STEP, "{longest:?}");
    }

    #[tokio::test]
    async fn a_closed_queue_is_emptied_first() {
        let queue = Queue::new();
        for i in 0..=PLACES {
            assert_eq!(queue.push(i, 0), (i == PLACES).then_some(0));
        }
        assert_eq!(queue.next().await, Some(1));
        queue.close();
        for i in 2..=PLACES {
            assert_eq!(queue.next().await, Some(i));
        }
        assert_eq!(queue.next().await, None);
    }
}

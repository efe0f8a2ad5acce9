//! The deadlines of the requests of one thread, with one timer for all.
//!
//! A timer of each request would wake the runtime each time one is set before all others. This one is set again only
//! for a deadline that comes before the one it waits for.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::pending_charge::Reply;

#[derive(Debug)]
pub(super) struct Deadlines {
    /// The answers that requests wait for, by deadline, and by address where that is the same.
    replies: Mutex<BTreeMap<(Instant, usize), Weak<Reply>>>,
    /// The deadline that the timer waits for.
    armed: watch::Sender<Option<Instant>>,
}

impl Deadlines {
    /// Starts the timer, on the current runtime. It ends with this.
    pub fn start() -> Arc<Deadlines> {
        let (armed, changes) = watch::channel(None);
        let deadlines = Arc::new(Deadlines { replies: Mutex::default(), armed });
        tokio::spawn(Timer(Arc::downgrade(&deadlines)).run(changes));
        deadlines
    }

    /// Ends the wait for a reply at `deadline`, if it has not ended before.
    pub fn add(&self, deadline: Instant, reply: &Arc<Reply>) {
        if self.armed.is_closed() {
            // The runtime has ended, and with it the connections: nothing is answered.
            return reply.stop_waiting();
        }
        let mut replies = self.replies.lock();
        // Most have ended.
        while replies.first_entry().is_some_and(|first| first.get().strong_count() == 0) {
            replies.pop_first();
        }
        replies.insert((deadline, Arc::as_ptr(reply).addr()), Arc::downgrade(reply));
        self.armed.send_if_modified(|armed| {
            let is_earlier = armed.is_none_or(|armed| deadline < armed);
            *armed = if is_earlier { Some(deadline) } else { *armed };
            is_earlier
        });
    }

    /// Ends the waits whose deadline has passed, or all of them, and sets the timer for the next one.
    fn end(&self, all: bool) {
        let (now, mut replies) = (Instant::now(), self.replies.lock());
        while let Some(first) = replies.first_entry()
            && (all || first.key().0 <= now)
        {
            first.remove().upgrade().iter().for_each(|reply| reply.stop_waiting());
        }
        self.armed.send_replace(replies.keys().next().map(|(deadline, _)| *deadline));
    }
}

struct Timer(Weak<Deadlines>);

impl Timer {
    async fn run(self, mut changes: watch::Receiver<Option<Instant>>) {
        loop {
            let deadline = *changes.borrow_and_update();
            let changed = match deadline {
                Some(deadline) => timeout_at(deadline, changes.changed()).await,
                None => Ok(changes.changed().await),
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => self.0.upgrade().iter().for_each(|deadlines| deadlines.end(false)),
            }
        }
    }
}

impl Drop for Timer {
    /// Ends all waits with the runtime.
    fn drop(&mut self) {
        self.0.upgrade().iter().for_each(|deadlines| deadlines.end(true));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::pending_charge::AllAnswers;
    use weir_limit::Decision;
    use weir_store::StoreError;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn reply(charges: usize, end: Instant) -> Arc<Reply> {
        Arc::new(Reply::new(charges, StoreError::TimedOut, Some(end), None))
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_at_its_own_deadline() {
        let (deadlines, start) = (Deadlines::start(), Instant::now());
        let wait = async |millis| {
            let end = start + ms(millis);
            let reply = reply(1, end);
            deadlines.add(end, &reply);
            AllAnswers(&reply).await;
            assert!((ms(millis)..ms(millis + 2)).contains(&start.elapsed()), "{millis}");
        };
        // The last ones have the shortest timeouts.
        tokio::join!(wait(20), wait(50), wait(5), wait(5));
        // The timer has nothing to wait for any more.
        wait(70).await;
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_came_are_kept() {
        let (deadlines, end) = (Deadlines::start(), Instant::now() + ms(5));
        let reply = reply(2, end);
        deadlines.add(end, &reply);
        reply.set(1, Ok(Decision::default()));
        AllAnswers(&reply).await;
        let answers = reply.take();
        assert_eq!(answers[0], Err(StoreError::TimedOut));
        assert!(answers[1].is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_have_ended_are_not_kept() {
        let (deadlines, end) = (Deadlines::start(), Instant::now() + ms(5));
        for _ in 0..100 {
            let reply = reply(1, end);
            deadlines.add(end, &reply);
            assert_eq!((deadlines.replies.lock().len(), Arc::strong_count(&reply)), (1, 1));
        }
    }

    #[test]
    fn all_waits_end_with_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let deadlines = runtime.block_on(async { Deadlines::start() });
        let end = Instant::now() + ms(100_000);
        let replies = [reply(1, end), reply(1, end)];
        deadlines.add(end, &replies[0]);
        assert_eq!(AllAnswers(&replies[0]).now_or_never(), None);
        drop(runtime);
        deadlines.add(end, &replies[1]);
        assert_eq!(replies.map(|reply| AllAnswers(&reply).now_or_never()), [Some(()); 2]);
    }
}

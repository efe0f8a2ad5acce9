//! What a request waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::limit::Micros;
use crate::store::{Answer, StoreError};

/// The answers to one request's charges, filled in as they come.
#[derive(Debug)]
pub(super) struct Reply {
    inner: Mutex<Inner>,
    /// Nobody waits any more: what was not sent yet need not be.
    abandoned: AtomicBool,
    /// When the request's budget ends; none: there is no hurry.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    /// With the store's time at which each was given.
    answers: SmallVec<[(Answer, Micros); 4]>,
    missing: usize,
    waker: Option<Waker>,
}

impl Reply {
    /// For so many charges; a charge not answered by the deadline has failed so.
    pub fn new(charges: usize, unanswered: StoreError, deadline: Option<Instant>) -> Arc<Reply> {
        let answers = SmallVec::from_elem((Err(unanswered), 0), charges);
        let inner = Inner { answers, missing: charges, waker: None };
        let abandoned = AtomicBool::new(false);
        Arc::new(Reply { inner: Mutex::new(inner), abandoned, deadline })
    }

    /// Answers one charge; once.
    pub fn set(&self, index: usize, answer: Answer, now: Micros) {
        let mut inner = self.inner.lock();
        // Who gave up waiting took the answers along.
        let Some(place) = inner.answers.get_mut(index) else { return };
        *place = (answer, now);
        inner.missing = inner.missing.saturating_sub(1);
        if inner.missing == 0
            && let Some(waker) = inner.waker.take()
        {
            drop(inner);
            waker.wake();
        }
    }

    /// Gives up waiting where the request does not exist any more. The answers so far; none where it
    /// had given up before.
    pub fn cancel(&self) -> Option<SmallVec<[(Answer, Micros); 4]>> {
        let ended = self.abandoned.swap(true, Ordering::Relaxed);
        (!ended).then(|| std::mem::take(&mut self.inner.lock().answers))
    }

    /// Returns whether the request still waits at `now`. Its task may not have noticed its deadline
    /// yet.
    pub fn is_awaited(&self, now: Instant) -> bool {
        !self.abandoned.load(Ordering::Relaxed) && self.deadline.is_none_or(|end| now < end)
    }

    /// Gives up waiting. The answers there are.
    pub fn take(&self) -> SmallVec<[(Answer, Micros); 4]> {
        self.abandoned.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.inner.lock().answers)
    }
}

/// Ready when all answers are there.
#[derive(Debug)]
pub(super) struct AllAnswers<'r>(pub &'r Reply);

impl Future for AllAnswers<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.0.inner.lock();
        if inner.missing == 0 {
            return Poll::Ready(());
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

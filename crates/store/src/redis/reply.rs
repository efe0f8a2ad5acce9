//! The answers that a request waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::{Answer, StoreError};
use weir_limit::Undo;

/// The answers to the charges of one request, filled in as they come.
#[derive(Debug)]
pub(super) struct Reply {
    inner: Mutex<Inner>,
    /// The request was abandoned: charges that were not sent yet are dropped.
    abandoned: AtomicBool,
    /// The end of the request's budget; none where nobody waits.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    answers: AnswersWithUndos,
    missing: usize,
    waker: Option<Waker>,
}

/// Each answer with what undoes its charge, if that is recorded.
pub(super) type AnswersWithUndos = SmallVec<[(Answer, Vec<Undo>); 4]>;

impl Reply {
    /// Returns the replies of a number of charges. A charge that is not answered by the deadline fails with `unanswered`.
    pub fn new(charges: usize, unanswered: StoreError, deadline: Option<Instant>) -> Arc<Reply> {
        let answers = SmallVec::from_elem((Err(unanswered), Vec::new()), charges);
        let inner = Inner { answers, missing: charges, waker: None };
        let abandoned = AtomicBool::new(false);
        Arc::new(Reply { inner: Mutex::new(inner), abandoned, deadline })
    }

    /// Sets the answer to one charge; called once for each.
    pub fn set(&self, index: usize, answer: Answer, undos: Vec<Undo>) {
        let mut inner = self.inner.lock();
        // A request that stopped waiting has taken the answers.
        let Some(place) = inner.answers.get_mut(index) else { return };
        *place = (answer, undos);
        inner.missing = inner.missing.saturating_sub(1);
        if inner.missing == 0
            && let Some(waker) = inner.waker.take()
        {
            drop(inner);
            waker.wake();
        }
    }

    /// Stops waiting because the request was dropped. Returns the answers so far; none where it had
    /// stopped waiting before.
    pub fn cancel(&self) -> Option<AnswersWithUndos> {
        let stopped = self.abandoned.swap(true, Ordering::Relaxed);
        (!stopped).then(|| std::mem::take(&mut self.inner.lock().answers))
    }

    /// Returns whether the request still waits at `now`; its task may not have seen its deadline yet.
    pub fn is_awaited(&self, now: Instant) -> bool {
        !self.abandoned.load(Ordering::Relaxed) && self.deadline.is_none_or(|end| now < end)
    }

    /// Stops waiting and returns the answers.
    pub fn take(&self) -> AnswersWithUndos {
        self.abandoned.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.inner.lock().answers)
    }
}

/// Completes when all answers have come.
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

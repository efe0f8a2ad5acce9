//! Where the future of a call is: made in its place, polled there at once, and never moved while it waits.
//!
//! A thread keeps the places of calls that have ended for the next ones. So a call that need not wait allocates nothing.
//! The places of a batch of calls that waited would else be returned to the system together, and faulted in again for the
//! next batch.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The places of one kind of future that a thread keeps: of what its connections usually have in flight together.
const MAX_SPARE: usize = 128;

type Slot<F> = Pin<Box<Option<F>>>;

thread_local! {
    /// A `Vec<Slot<F>>` for each kind of future.
    static SPARE: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A future in its place; the place is none only while this is dropped.
pub(super) struct Place<F: 'static>(Option<Slot<F>>);

impl<F: 'static> Place<F> {
    /// Makes the future where it stays: one that is passed is copied once more.
    #[inline]
    pub fn new(make: impl FnOnce() -> F) -> Place<F> {
        let mut slot = with_spare(Vec::pop).flatten().unwrap_or_else(|| Box::pin(None));
        slot.set(Some(make()));
        Place(Some(slot))
    }
}

impl<F: Future> Future for Place<F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.as_mut().and_then(|slot| slot.as_mut().as_pin_mut()) {
            Some(future) => future.poll(context),
            None => Poll::Pending,
        }
    }
}

impl<F: 'static> Drop for Place<F> {
    fn drop(&mut self) {
        let Some(mut slot) = self.0.take() else { return };
        slot.set(None);
        with_spare(|spare| {
            if spare.len() < MAX_SPARE {
                spare.push(slot);
            }
        });
    }
}

/// Passes this thread's spare places to `then`; none if the thread ends.
#[inline]
fn with_spare<F: 'static, T>(then: impl FnOnce(&mut Vec<Slot<F>>) -> T) -> Option<T> {
    let find = |kinds: &RefCell<Vec<Box<dyn Any>>>| {
        let mut kinds = kinds.borrow_mut();
        if let Some(spare) = kinds.iter_mut().find_map(|kind| kind.downcast_mut()) {
            return Some(then(spare));
        }
        let mut spare = Vec::new();
        let result = then(&mut spare);
        kinds.push(Box::new(spare));
        Some(result)
    };
    SPARE.try_with(find).ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    fn spare<F: 'static>(_: &F) -> usize {
        with_spare(|spare: &mut Vec<Slot<F>>| spare.len()).unwrap()
    }

    #[test]
    fn a_place_is_used_again_and_some_are_kept() {
        let number = ready(1);
        for _ in 0..3 {
            assert_eq!(Place::new(|| number.clone()).now_or_never(), Some(1));
            assert_eq!(spare(&number), 1);
        }
        let places: Vec<_> = (0..MAX_SPARE + 10).map(|_| Place::new(|| number.clone())).collect();
        assert_eq!(spare(&number), 0);
        drop(places);
        assert_eq!(spare(&number), MAX_SPARE);
        let other = pending::<()>();
        assert_eq!(spare(&other), 0, "another kind");
    }

    #[test]
    fn what_waits_is_dropped_with_its_place() {
        let held = std::rc::Rc::new(());
        let clone = held.clone();
        let mut place = Place::new(|| async move {
            pending::<()>().await;
            drop(clone);
        });
        assert_eq!((&mut place).now_or_never(), None);
        drop(place);
        assert_eq!(std::rc::Rc::strong_count(&held), 1);
    }
}

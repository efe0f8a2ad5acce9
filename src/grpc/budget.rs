//! What slow clients may take of the memory, all of them together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of requests that have not arrived whole and of answers that were not taken.
const MOST: usize = 64 << 20;

/// Bytes of each that are not counted: no client's small requests fail because of others' large
/// ones. They are bounded by the streams of a connection.
const FREE: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Budget {
    taken: AtomicUsize,
}

impl Budget {
    pub fn share(&self) -> Share<'_> {
        Share { budget: self, taken: 0 }
    }
}

/// What one call has of the budget. It goes back when this is dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    taken: usize,
}

impl Share<'_> {
    /// Takes what is missing to have so many bytes. False where all clients together have too
    /// many.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(FREE).saturating_sub(self.taken);
        if more > 0 && self.budget.taken.fetch_add(more, Ordering::Relaxed) + more > MOST {
            self.budget.taken.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.taken += more;
        true
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_bounded_and_goes_back() {
        let budget = Budget::default();
        let (mut one, mut two) = (budget.share(), budget.share());
        assert!(one.grow_to(FREE) && one.grow_to(MOST / 2) && one.grow_to(MOST));
        assert_eq!(budget.taken.load(Ordering::Relaxed), MOST - FREE);
        assert!(two.grow_to(2 * FREE));
        assert!(!two.grow_to(2 * FREE + 1), "there is no more");
        assert!(two.grow_to(2 * FREE), "that is had");
        drop(one);
        assert!(two.grow_to(MOST));
        drop(two);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn small_ones_are_free() {
        let budget = Budget::default();
        let mut all = budget.share();
        assert!(all.grow_to(MOST + FREE));
        assert!(budget.share().grow_to(FREE));
        assert!(!budget.share().grow_to(FREE + 1));
    }
}

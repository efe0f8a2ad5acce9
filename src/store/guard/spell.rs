//! How long the store has been failing, and what the log says of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Failed, OnStoreFailure};
use crate::limit::{Micros, SECOND};

/// How long the store must answer without failing for a spell of failures to be over.
pub(super) const QUIET: Micros = 10 * SECOND;

/// At most one warning in this time.
const WARN_EVERY: Micros = SECOND;

/// Failures that lie close together.
#[derive(Debug, Default)]
pub(super) struct Spell {
    /// When a charge failed last; 0: there is no spell.
    last: AtomicU64,
    /// When one failed last by the store's doing, and not by its caller's; 0: there is nothing to
    /// tell the end of.
    unwell: AtomicU64,
    /// When the next warning may be given.
    warn_from: AtomicU64,
    /// Failures that no warning has told of yet.
    untold: AtomicU64,
    /// Failures of the store in this spell.
    failed: AtomicU64,
}

impl Spell {
    /// Whether the store has failed and nobody has noticed yet that it is well again.
    pub(super) fn lasts(&self) -> bool {
        self.last.load(Relaxed) > 0
    }

    /// So many charges failed; the first of them in the way of `kind`. Those of hurried callers
    /// are not told of: they could fill the log, and the store may be well.
    pub(super) fn fail(
        &self,
        now: Micros,
        charges: u64,
        policy: OnStoreFailure,
        kind: Failed,
        domain: &str,
    ) {
        self.last.fetch_max(now.max(1), Relaxed);
        if kind == Failed::Hurried {
            return;
        }
        self.unwell.fetch_max(now.max(1), Relaxed);
        self.failed.fetch_add(charges, Relaxed);
        self.untold.fetch_add(charges, Relaxed);
        let from = self.warn_from.load(Relaxed);
        let next = now.saturating_add(WARN_EVERY);
        if now >= from && self.warn_from.compare_exchange(from, next, Relaxed, Relaxed).is_ok() {
            let charges = self.untold.swap(0, Relaxed);
            let policy = policy.name();
            tracing::warn!(charges, policy, domain, reason = %kind, "the store failed");
        }
    }

    /// The store answered. Whether that ends the spell: true for one of those who ask.
    pub(super) fn ends(&self, now: Micros) -> bool {
        // Who loses the race was overtaken by another, or by a failure.
        let is_over = |last: &AtomicU64| {
            let since = last.load(Relaxed);
            since > 0
                && now.saturating_sub(since) >= QUIET
                && last.compare_exchange(since, 0, Relaxed, Relaxed).is_ok()
        };
        if is_over(&self.unwell) {
            self.untold.store(0, Relaxed);
            let charges = self.failed.swap(0, Relaxed);
            let seconds = QUIET / SECOND;
            tracing::info!(charges, "the store answers again, for {seconds} s without a failure");
        }
        is_over(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_warning_a_second_tells_of_all_that_failed() {
        let spell = Spell::default();
        let fail = |now| {
            spell.fail(now, 3, OnStoreFailure::Deny, Failed::TimedOut, "d");
            spell.untold.load(Relaxed)
        };
        let now = 1_000 * SECOND;
        assert_eq!([fail(now), fail(now), fail(now + WARN_EVERY - 1)], [0, 3, 6]);
        assert_eq!([fail(now + WARN_EVERY), fail(now + WARN_EVERY)], [0, 3]);
        assert_eq!(spell.failed.load(Relaxed), 15);
    }

    #[test]
    fn hurried_callers_do_not_make_the_store_unwell() {
        let spell = Spell::default();
        let fail = |now, kind| spell.fail(now, 1, OnStoreFailure::Local, kind, "d");
        fail(SECOND, Failed::Hurried);
        assert_eq!((spell.unwell.load(Relaxed), spell.untold.load(Relaxed)), (0, 0));
        assert!(spell.lasts() && !spell.ends(QUIET), "what is counted locally is kept");
        fail(2 * SECOND, Failed::TimedOut);
        fail(QUIET, Failed::Hurried);
        assert_eq!(spell.failed.load(Relaxed), 1);
        assert!(!spell.ends(2 * SECOND + QUIET));
        assert_eq!(spell.failed.load(Relaxed), 0, "its end is told");
        assert!(spell.ends(2 * QUIET) && !spell.lasts());
    }

    #[test]
    fn a_spell_ends_once_and_only_after_quiet() {
        let spell = Spell::default();
        assert!(!spell.lasts() && !spell.ends(QUIET));
        spell.fail(SECOND, 1, OnStoreFailure::Deny, Failed::TimedOut, "d");
        assert!(spell.lasts() && !spell.ends(SECOND + QUIET - 1));
        assert!(spell.ends(SECOND + QUIET));
        assert!(!spell.lasts() && !spell.ends(SECOND + QUIET));
    }
}

//! The denials that are known: a table of fixed size.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::limit::{Judged, Micros, Op, Plan, Source};
use crate::store::Charge;
use crate::store::memory::fingerprint::{Fingerprint, Fingerprints};

/// How many denials share a lock; each key has its place in one such set.
const WAYS: usize = 8;

/// Denials by key. Every operation takes one lock, of one set, for some tens of nanoseconds.
pub(super) struct Known {
    fingerprints: Fingerprints,
    /// A power of two.
    sets: Box<[Mutex<Set>]>,
    /// No denial holds at this instant or later.
    until: AtomicU64,
}

#[derive(Default)]
struct Set {
    denials: [Option<Denial>; WAYS],
    /// When hits of any key of this set were last given back.
    given_back: Option<Micros>,
}

/// So many hits of a key were denied.
struct Denial {
    key: Fingerprint,
    /// The numbers that denied.
    plan: Arc<Plan>,
    hits: u64,
    judged: Judged,
    /// When the question was sent.
    sent: Micros,
    /// Holds before this instant.
    until: Micros,
}

impl Known {
    /// Of at most `slots` denials, but of at least one set.
    pub(super) fn new(slots: usize) -> Known {
        let sets = 1 << (slots / WAYS).max(1).ilog2();
        Known {
            fingerprints: Fingerprints::new(),
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            until: AtomicU64::new(0),
        }
    }

    /// Whether any denial may hold at `now`.
    pub(super) fn any(&self, now: Micros) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// The answer to a charge that is known to be denied at `now`.
    pub(super) fn get(&self, charge: &Charge<'_>, now: Micros) -> Option<Judged> {
        let Op::Take(hits @ 1..) = charge.op else { return None };
        if !charge.plan.repeats_denials() {
            return None;
        }
        let key = self.fingerprints.of(charge);
        let set = self.set(&key).lock();
        let denial = set.denials.iter().flatten().find(|denial| denial.key == key)?;
        // None where another thread read the clock later and was answered before.
        let passed = now.saturating_sub(denial.sent);
        let holds = now < denial.until && denial.hits <= hits && denial.is_by(charge.plan);
        holds.then(|| Judged {
            remaining: 0,
            reset_after: denial.judged.reset_after.saturating_sub(passed),
            retry_after: denial.judged.retry_after.map(|wait| wait.saturating_sub(passed)),
            source: Source::DeniedLocally,
            ..denial.judged
        })
    }

    /// Notes that `hits` were denied to a question sent at `sent`, until `until`.
    pub(super) fn put(
        &self,
        charge: &Charge<'_>,
        hits: u64,
        judged: Judged,
        sent: Micros,
        until: Micros,
    ) {
        let key = self.fingerprints.of(charge);
        let mut set = self.set(&key).lock();
        if set.given_back.is_some_and(|given_back| sent <= given_back) {
            // The denial may be from before.
            return;
        }
        let slot = match set.slot_of(&key) {
            // What denies fewer hits says more.
            Some(Some(old)) if old.hits < hits && old.is_by(charge.plan) && sent < old.until => {
                return;
            }
            Some(same) => same,
            None => set.slot_to_fill(),
        };
        *slot = Some(Denial { key, plan: charge.plan.clone(), hits, judged, sent, until });
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Forgets what is known of a key whose hits were given back, at `now` at the latest; answers
    /// to questions sent before are not learnt any more.
    pub(super) fn give_back(&self, charge: &Charge<'_>, now: Micros) {
        if !charge.plan.repeats_denials() {
            return;
        }
        let key = self.fingerprints.of(charge);
        let mut set = self.set(&key).lock();
        set.given_back = set.given_back.max(Some(now));
        if let Some(slot) = set.slot_of(&key) {
            *slot = None;
        }
    }

    fn set(&self, key: &Fingerprint) -> &Mutex<Set> {
        &self.sets[key.shard as usize & (self.sets.len() - 1)]
    }

    #[cfg(test)]
    pub(super) fn set_bytes() -> usize {
        size_of::<Mutex<Set>>()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.lock().denials.iter().flatten().count()).sum()
    }
}

impl Set {
    /// The slot of a key that has one.
    fn slot_of(&mut self, key: &Fingerprint) -> Option<&mut Option<Denial>> {
        self.denials.iter_mut().find(|slot| slot.as_ref().is_some_and(|old| old.key == *key))
    }

    /// A free slot, else that of the denial that ends soonest.
    fn slot_to_fill(&mut self) -> &mut Option<Denial> {
        let mut soonest = 0;
        for (i, denial) in self.denials.iter().enumerate() {
            // None is less than any.
            let until = |slot: &Option<Denial>| slot.as_ref().map(|denial| denial.until);
            if until(denial) < until(&self.denials[soonest]) {
                soonest = i;
            }
        }
        &mut self.denials[soonest]
    }
}

impl Denial {
    /// Whether it is by the same numbers: those of the same plan, or of one read anew.
    fn is_by(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan) || self.plan == *plan
    }
}

impl fmt::Debug for Known {
    /// Leaves out the keys and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("slots", &(self.sets.len() * WAYS)).finish_non_exhaustive()
    }
}

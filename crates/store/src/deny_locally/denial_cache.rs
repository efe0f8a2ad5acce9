//! The cache of denials: a table of fixed size.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Charge;
use crate::memory::fingerprint::{Fingerprint, Fingerprints};
use weir_limit::{Decision, Micros, NearLimits, Plan, ReservationResult, Source};

/// Denials per set. Each key belongs to one set, and a set has one lock.
const WAYS: usize = 8;

/// Denials by key. Every operation holds the lock of one set for some tens of nanoseconds.
pub(super) struct DenialCache {
    fingerprints: Fingerprints,
    /// The sets; their number is a power of two.
    sets: Box<[Mutex<Set>]>,
    /// No denial holds at this instant or later.
    until: AtomicU64,
}

#[derive(Default)]
struct Set {
    denials: [Option<Denial>; WAYS],
    /// When hits of any key of this set were last refunded, or its state reset.
    refunded: Option<Micros>,
}

/// A denial of a number of hits of a key.
struct Denial {
    key: Fingerprint,
    /// The plan that denied.
    plan: Arc<Plan>,
    hits: u64,
    /// The index of the limit that denied. This and the next fields are those that a repeated denial copies.
    limit: u8,
    would_deny: u16,
    used_before: u64,
    reset_after: Micros,
    retry_after: Option<Micros>,
    /// When the answer came, from which the waits are counted: never shorter than the store would say.
    answered: Micros,
    /// The instant before which the denial holds.
    until: Micros,
}

/// When a charge was sent, and when its answer came. The store decided in between.
#[derive(Clone, Copy)]
pub(super) struct RoundTrip {
    pub sent: Micros,
    pub answered: Micros,
}

impl DenialCache {
    /// Makes a cache of at most `slots` denials, but of at least one set.
    pub(super) fn new(slots: usize) -> DenialCache {
        let sets = 1 << (slots / WAYS).max(1).ilog2();
        DenialCache {
            fingerprints: Fingerprints::new(),
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            until: AtomicU64::new(0),
        }
    }

    /// Returns whether any denial may hold at `now`.
    pub(super) fn any(&self, now: Micros) -> bool {
        now < self.until.load(Ordering::Relaxed)
    }

    /// Returns the key of a charge that may change denials, or be denied; none if its denials are not
    /// cached.
    pub(super) fn key(&self, charge: &Charge<'_>) -> Option<Fingerprint> {
        let takes = charge.op.takes().is_some_and(|hits| hits > 0);
        let known = takes && charge.plan.repeats_denials();
        known.then(|| self.fingerprints.of(charge))
    }

    /// Returns the decision on a charge that is known to be denied at `now`; `key` is the charge's.
    pub(super) fn get(
        &self,
        key: &Fingerprint,
        charge: &Charge<'_>,
        now: Micros,
    ) -> Option<Decision> {
        let hits = charge.op.asks()?;
        let covers_more = charge.plan.denial_covers_more_hits();
        let set = self.set(key).lock();
        let denial = set.denials.iter().flatten().find(|denial| {
            let alike = denial.hits == hits || covers_more && denial.hits < hits;
            denial.key == *key && alike && now < denial.until && denial.is_by(charge.plan)
        })?;
        // Zero if this charge was sent before the denial was answered.
        let passed = now.saturating_sub(denial.answered);
        // Hits that a window can never allow have no wait.
        let n = charge.plan.limits().first().map_or(0, |limit| limit.requests_per_unit);
        let retry_after = denial.retry_after.filter(|_| !covers_more || hits <= n.into());
        Some(Decision {
            allowed: false,
            limit: denial.limit,
            would_deny: denial.would_deny,
            used_before: denial.used_before,
            remaining: 0,
            reset_after: denial.reset_after.saturating_sub(passed),
            retry_after: retry_after.map(|wait| wait.saturating_sub(passed)),
            source: Source::DeniedLocally,
            granted: 0,
            reserved: 0,
            reservation: ReservationResult::None,
            near: NearLimits::default(),
        })
    }

    /// Caches for `holds` from when it was sent that a charge of `hits` was denied.
    pub(super) fn put(
        &self,
        charge: &Charge<'_>,
        hits: u64,
        decision: &Decision,
        RoundTrip { sent, answered }: RoundTrip,
        holds: Micros,
    ) {
        let until = sent.saturating_add(holds);
        let key = self.fingerprints.of(charge);
        let covers_more = charge.plan.denial_covers_more_hits();
        let mut set = self.set(&key).lock();
        if set.refunded.is_some_and(|refunded| sent <= refunded) {
            // The denial may have been decided before that.
            return;
        }
        let same = |old: &Denial| old.key == key && (covers_more || old.hits == hits);
        let slot = match set.slot_of(same) {
            // A denial of fewer hits covers more charges.
            Some(Some(old)) if old.hits < hits && old.is_by(charge.plan) && sent < old.until => {
                return;
            }
            Some(same) => same,
            None => set.slot_to_fill(),
        };
        let Decision { limit, would_deny, used_before, reset_after, retry_after, .. } = *decision;
        let plan = charge.plan.clone();
        *slot = Some(Denial {
            key,
            plan,
            hits,
            limit,
            would_deny,
            used_before,
            reset_after,
            retry_after,
            answered,
            until,
        });
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Forgets the denials of a charge's key.
    pub(super) fn forget(&self, charge: &Charge<'_>) {
        if let Some(key) = self.key(charge) {
            self.set(&key).lock().forget(&key);
        }
    }

    /// Forgets the denials of a key whose hits were refunded, or whose state was reset, at `now` at
    /// the latest. Denials of charges sent before are not cached any more.
    pub(super) fn refund(&self, charge: &Charge<'_>, now: Micros) {
        if !charge.plan.repeats_denials() {
            return;
        }
        let key = self.fingerprints.of(charge);
        let mut set = self.set(&key).lock();
        set.refunded = set.refunded.max(Some(now));
        set.forget(&key);
    }

    /// Forgets all denials, at `now` at the latest. Denials of charges sent before are not cached any
    /// more.
    pub(super) fn clear(&self, now: Micros) {
        for set in &self.sets {
            let mut set = set.lock();
            set.refunded = set.refunded.max(Some(now));
            set.denials = Default::default();
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
    /// Returns the slot of the first denial that satisfies `is`.
    fn slot_of(&mut self, is: impl Fn(&Denial) -> bool) -> Option<&mut Option<Denial>> {
        self.denials.iter_mut().find(|slot| slot.as_ref().is_some_and(&is))
    }

    /// Empties all slots of a key.
    fn forget(&mut self, key: &Fingerprint) {
        while let Some(slot) = self.slot_of(|old| old.key == *key) {
            *slot = None;
        }
    }

    /// Returns a free slot, else that of the denial that ends soonest.
    fn slot_to_fill(&mut self) -> &mut Option<Denial> {
        let mut soonest = 0;
        for (i, denial) in self.denials.iter().enumerate() {
            // `None` is less than any `Some`.
            let until = |slot: &Option<Denial>| slot.as_ref().map(|denial| denial.until);
            if until(denial) < until(&self.denials[soonest]) {
                soonest = i;
            }
        }
        &mut self.denials[soonest]
    }
}

impl Denial {
    /// Returns whether it is by the same plan, or by an equal one of a newer rule set.
    fn is_by(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan) || self.plan == *plan
    }
}

impl fmt::Debug for DenialCache {
    /// Omits the keys and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenialCache")
            .field("slots", &(self.sets.len() * WAYS))
            .finish_non_exhaustive()
    }
}

//! A table of denials that still hold, of fixed size: `local` repeats them without asking Redis.

use std::sync::Arc;

use crate::charge::Charge;
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Decision, Micros, Plan, Source};

/// Denials per set. Each key belongs to one set.
pub(super) const WAYS: usize = 8;

pub(super) struct KnownDenials {
    /// Their number is a power of two, or 0 where none are kept.
    sets: Box<[Set]>,
}

#[derive(Default)]
struct Set {
    denials: [Option<KnownDenial>; WAYS],
    /// When hits of any key of this set were last refunded, or its state reset.
    refunded: Option<Micros>,
}

struct KnownDenial {
    key: Fingerprint,
    plan: Arc<Plan>,
    hits: u64,
    // What a repeated denial copies: from the index of the limit that denied to the waits.
    limit: u8,
    would_deny: u16,
    used_before: u64,
    reset_after: Micros,
    retry_after: Option<Micros>,
    /// Whether it is by a ban, which denies any number of hits, and looks (0 hits, which charge nothing).
    banned: bool,
    /// When the answer came, from which the waits are counted: never shorter than the store would say.
    answered: Micros,
    /// The instant before which the denial holds.
    until: Micros,
}

#[derive(Clone, Copy)]
pub(super) struct DenialTimes {
    /// When the charge was sent. The store decided between then and the answer.
    pub sent: Micros,
    pub answered: Micros,
    pub until: Micros,
}

impl KnownDenials {
    pub fn new(sets: usize) -> KnownDenials {
        KnownDenials { sets: (0..sets).map(|_| Set::default()).collect() }
    }

    pub fn get(&self, key: &Fingerprint, charge: &Charge<'_>, now: Micros) -> Option<Decision> {
        let hits = charge.op.asks()?;
        let covers_more = charge.plan.denial_covers_more_hits();
        let set = self.sets.get(self.place(key))?;
        let denial = set.denials.iter().flatten().find(|denial| {
            let alike = denial.banned || denial.hits == hits || covers_more && denial.hits < hits;
            denial.key == *key && alike && now < denial.until && denial.is_by(charge.plan)
        })?;
        // Zero if this charge was sent before the denial was answered.
        let passed = now.saturating_sub(denial.answered);
        // Hits that a window can never allow have no wait.
        let n = charge.plan.limits().first().map_or(0, |limit| limit.requests_per_unit);
        let is_never = covers_more && hits > n.into() && !denial.banned;
        let retry_after = denial.retry_after.filter(|_| !is_never);
        Some(Decision {
            limit: denial.limit,
            would_deny: denial.would_deny,
            used_before: denial.used_before,
            reset_after: denial.reset_after.saturating_sub(passed),
            retry_after: retry_after.map(|wait| wait.saturating_sub(passed)),
            source: Source::DeniedLocally,
            banned: denial.banned,
            ..Decision::default()
        })
    }

    /// Keeps that a charge was denied, unless that may have been decided before its key was refunded.
    pub fn put(
        &mut self,
        key: &Fingerprint,
        charge: &Charge<'_>,
        decision: &Decision,
        DenialTimes { sent, answered, until }: DenialTimes,
    ) {
        let (Some(set), Some(hits)) = (self.set(key), charge.op.asks()) else { return };
        if set.refunded.is_some_and(|refunded| sent <= refunded) {
            return;
        }
        let covers_more = charge.plan.denial_covers_more_hits();
        let covers_all = covers_more || decision.banned;
        let same = |old: &KnownDenial| old.key == *key && (covers_all || old.hits == hits);
        let slot = match set.slot_of(same) {
            // A denial of fewer hits covers more charges.
            Some(Some(old))
                if !decision.banned
                    && old.hits < hits
                    && old.is_by(charge.plan)
                    && sent < old.until =>
            {
                return;
            }
            Some(same) => same,
            None => set.slot_to_fill(),
        };
        let Decision { limit, would_deny, used_before, reset_after, retry_after, banned, .. } =
            *decision;
        *slot = Some(KnownDenial {
            key: *key,
            plan: charge.plan.clone(),
            hits,
            limit,
            would_deny,
            used_before,
            reset_after,
            retry_after,
            banned,
            answered,
            until,
        });
    }

    pub fn forget(&mut self, key: &Fingerprint) {
        if let Some(set) = self.set(key) {
            set.forget(key);
        }
    }

    /// Forgets the denials of a key whose hits were refunded or leased, or whose state was reset, at `now` at the
    /// latest. Denials of charges sent before are not kept any more.
    pub fn refund(&mut self, key: &Fingerprint, now: Micros) {
        if let Some(set) = self.set(key) {
            set.refunded = set.refunded.max(Some(now));
            set.forget(key);
        }
    }

    /// Forgets all denials, at `now` at the latest. Denials of charges sent before are not kept any more.
    pub fn clear(&mut self, now: Micros) {
        for set in &mut self.sets {
            set.refunded = set.refunded.max(Some(now));
            set.denials = Default::default();
        }
    }

    fn set(&mut self, key: &Fingerprint) -> Option<&mut Set> {
        let place = self.place(key);
        self.sets.get_mut(place)
    }

    /// Returns the place of the set of a key. The low bits have chosen the shard.
    fn place(&self, key: &Fingerprint) -> usize {
        (key.shard >> 16) as usize & self.sets.len().wrapping_sub(1)
    }
}

impl Set {
    fn slot_of(
        &mut self,
        matches: impl Fn(&KnownDenial) -> bool,
    ) -> Option<&mut Option<KnownDenial>> {
        self.denials.iter_mut().find(|slot| slot.as_ref().is_some_and(&matches))
    }

    fn forget(&mut self, key: &Fingerprint) {
        while let Some(slot) = self.slot_of(|old| old.key == *key) {
            *slot = None;
        }
    }

    /// Returns a free slot, else that of the denial that ends soonest.
    fn slot_to_fill(&mut self) -> &mut Option<KnownDenial> {
        // `None` is less than any `Some`.
        let until = |slot: &usize| self.denials[*slot].as_ref().map(|denial| denial.until);
        let soonest = (0..WAYS).min_by_key(until).unwrap_or_default();
        &mut self.denials[soonest]
    }
}

impl KnownDenial {
    /// Returns whether it is by the same plan, or by an equal one of a newer rule set.
    fn is_by(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan) || self.plan == *plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl KnownDenials {
        pub fn set_bytes() -> usize {
            size_of::<Set>()
        }

        pub fn max(&self) -> usize {
            self.sets.len() * WAYS
        }

        pub fn len(&self) -> usize {
            self.sets.iter().map(|set| set.denials.iter().flatten().count()).sum()
        }
    }
}

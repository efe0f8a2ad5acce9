//! Repeats denials that are known to hold.

mod denial_cache;
#[cfg(test)]
mod tests;

use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use self::denial_cache::{DenialCache, RoundTrip};
use super::leases::{Leases, Leasing};
use super::memory::fingerprint::Fingerprint;
use super::split::Split;
use super::{Answer, Answers, Batch, Charge, Operations, StateKey, States, Store, StoreError};
use weir_common::clock::Monotonic;
use weir_limit::{Decision, KeyState, Micros, Source};

/// A wrapper that answers what it knows to be denied without the inner store.
///
/// A denial holds for the same number of hits of the same key until its wait is over, counted from
/// when the charge was sent. During that time, and for at most `deny_locally_for`, it is repeated: the
/// same answer, less the time that has passed since it came, with the source
/// [`DeniedLocally`](Source::DeniedLocally). Other numbers of hits and looks go to the inner store.
///
/// **Exact.** Verdict and limit are those that the inner store would answer now. So are wait and reset, or up
/// to the round trip of the denial longer: the store decided somewhere in between, and a client that is told
/// too short a wait comes back too early. More hits may wait longer, and because of another limit, so they go to the inner store. A lone fixed
/// window is the exception: it ends for all hits at the same time, so the same number or more are
/// denied. Hits admitted or added through this replica end the denials of their key. Those of another
/// replica, or of a concurrent request, also lengthen the wait; they are noticed within
/// `deny_locally_for`. The number of hits used before is that of the first denial.
///
/// **Which.** Denials by a plan whose denials [may be repeated](weir_limit::Plan::repeats_denials).
/// If a plan charges denied hits (a lone fixed window), its counter misses those of repeated denials,
/// which shows only when hits are refunded or the numbers of the limit change.
///
/// **Until.** A plan with other numbers goes to the inner store at once, and so does a key after hits
/// were refunded, or its state reset, through this replica. Hits refunded or states reset through
/// another replica, or by a caller that went away before the store answered, are noticed within
/// `deny_locally_for`.
///
/// **Batches** that are charged together, or that refund something, always go to the inner store
/// as a whole.
///
/// **Bounded.** At most `slots` denials are cached, in tables allocated at the start, about 100 bytes
/// each. If there is no room for another, the one that ends soonest is dropped.
///
/// **Cost.** While no denial is known: one reading of the clock and one atomic load.
#[derive(Debug)]
pub struct DenyLocally<S, C> {
    inner: S,
    clock: C,
    denials: Arc<DenialCache>,
    longest: Micros,
}

impl<S: Store, C: Monotonic> DenyLocally<S, C> {
    /// Repeats denials by `inner` for at most `deny_locally_for` (zero: never). Caches at most `slots`
    /// of them, rounded down to a power of two, but at least eight.
    pub fn new(inner: S, clock: C, deny_locally_for: Duration, slots: usize) -> DenyLocally<S, C> {
        let longest = Micros::try_from(deny_locally_for.as_micros()).unwrap_or(Micros::MAX);
        DenyLocally { inner, clock, denials: Arc::new(DenialCache::new(slots)), longest }
    }

    /// Returns the store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Separates what is known to be denied; none if the inner store charges all of the batch.
    fn split<'a>(&self, batch: &Batch<'a>, whole: bool, now: Micros) -> Option<Split<'a>> {
        if whole || !self.denials.any(now) {
            return None;
        }
        // What the inner store charges may change the answers to later charges of the same key.
        let mut rest_keys: SmallVec<[Fingerprint; 4]> = SmallVec::new();
        Split::new(batch, |charge| {
            let key = self.denials.key(charge);
            let key = key.filter(|key| !rest_keys.contains(key));
            let denial = key.and_then(|key| self.denials.get(&key, charge, now));
            if denial.is_none() {
                rest_keys.extend(key);
            }
            denial
        })
    }

    /// Adds known denials and the answers of the inner store to `answers`, in the batch's order.
    fn merge(&self, split: Split<'_>, inner: Answers, sent: Micros, answers: &mut Answers) {
        self.learn(&split.rest, &inner, sent);
        split.merge(inner, answers);
    }

    /// Learns from the answers of the inner store to a batch that it charged alone.
    fn learn_all(&self, whole: bool, charges: &[Charge<'_>], answers: &[Answer], sent: Micros) {
        if whole {
            self.learn_from_whole(charges, answers, sent);
        } else {
            self.learn(charges, answers, sent);
        }
    }

    /// Learns from the answers to a batch that is always charged as a whole.
    fn learn_from_whole(&self, charges: &[Charge<'_>], answers: &[Answer], sent: Micros) {
        let now = self.clock.monotonic();
        for (charge, answer) in zip(charges, answers) {
            match answer {
                _ if is_refund(charge) => self.denials.refund(charge, now),
                // It may be due to hits of the same batch that were not charged or were refunded.
                Ok(decision) if !decision.allowed => {}
                _ => self.forget_waits(charge, sent),
            }
        }
    }

    /// Learns from the answers to a batch that was sent at `sent`.
    fn learn(&self, charges: &[Charge<'_>], answers: &[Answer], sent: Micros) {
        for (charge, answer) in zip(charges, answers) {
            match (charge.op.asks(), answer) {
                (Some(hits @ 1..), Ok(decision)) if !decision.allowed => {
                    self.learn_denial(charge, hits, decision, sent);
                }
                _ => self.forget_waits(charge, sent),
            }
        }
    }

    /// Forgets the denials of a key that was charged, or may have been: their waits are longer now.
    fn forget_waits(&self, charge: &Charge<'_>, sent: Micros) {
        if self.denials.any(sent) && !charge.plan.denial_covers_more_hits() {
            self.denials.forget(charge);
        }
    }

    fn learn_denial(&self, charge: &Charge<'_>, hits: u64, decision: &Decision, sent: Micros) {
        if decision.source != Source::Store || !charge.plan.repeats_denials() {
            return;
        }
        let holds = charge.plan.denial_lasts(decision).min(self.longest);
        if holds > 0 {
            let trip = RoundTrip { sent, answered: self.clock.monotonic() };
            self.denials.put(charge, hits, decision, trip, holds);
        }
    }
}

impl<S: Leasing, C: Monotonic + Clone> DenyLocally<Leases<S>, C> {
    /// Forgets the denials of each key that hits are leased of, those on their way too.
    pub fn forgetting_where_leased(self) -> DenyLocally<Leases<S>, C> {
        let (denials, clock) = (self.denials.clone(), self.clock.clone());
        self.inner.on_grant(move |charge| denials.refund(charge, clock.monotonic()));
        self
    }
}

impl<S: Store, C: Monotonic> Store for DenyLocally<S, C> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let (first, sent) = (answers.len(), self.clock.monotonic());
        let whole = is_charged_whole(&batch);
        let Some(split) = self.split(&batch, whole, sent) else {
            self.inner.charge(batch, answers).await;
            return self.learn_all(whole, batch.charges, &answers[first..], sent);
        };
        let mut inner = Answers::new();
        if let Some(rest) = split.rest(batch) {
            self.inner.charge(rest, &mut inner).await;
        }
        self.merge(split, inner, sent, answers);
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        let (first, sent) = (answers.len(), self.clock.monotonic());
        let whole = is_charged_whole(&batch);
        let Some(split) = self.split(&batch, whole, sent) else {
            let charged = self.inner.try_charge(batch, answers);
            if charged {
                self.learn_all(whole, batch.charges, &answers[first..], sent);
            }
            return charged;
        };
        let mut inner = Answers::new();
        if let Some(rest) = split.rest(batch)
            && !self.inner.try_charge(rest, &mut inner)
        {
            return false;
        }
        self.merge(split, inner, sent, answers);
        true
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate()
    }
}

impl<S: States, C: Monotonic> States for DenyLocally<S, C> {
    /// Reads what the inner store has counted, also while denials of the key are repeated.
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        self.inner.read(key, spans, budget).await
    }

    /// Forgets the key's denials too, also if the inner store fails: it may be reset nevertheless.
    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        let reset = self.inner.reset(key, budget).await;
        self.denials.refund(&key.charge(), self.clock.monotonic());
        reset
    }
}

impl<S: Operations, C: Monotonic> Operations for DenyLocally<S, C> {
    fn inner(&self) -> Option<&dyn Operations> {
        Some(&self.inner)
    }

    fn forget_denials(&self) {
        self.denials.clear(self.clock.monotonic());
        self.inner.forget_denials();
    }
}

/// Returns whether the inner store charges the whole batch, whatever is known.
fn is_charged_whole(batch: &Batch<'_>) -> bool {
    batch.together || batch.charges.iter().any(is_refund)
}

fn is_refund(charge: &Charge<'_>) -> bool {
    charge.op.returns_hits()
}

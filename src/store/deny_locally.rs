//! Repeating denials that are known to hold still.

mod denial_cache;
#[cfg(test)]
mod tests;

use std::iter::zip;
use std::time::Duration;

use smallvec::SmallVec;

use self::denial_cache::DenialCache;
use super::memory::fingerprint::Fingerprint;
use super::{Answer, Answers, Batch, Charge, Store, StoreError};
use crate::clock::Monotonic;
use crate::limit::{Algorithm, Decision, Micros, Op, Source};

/// A store that does not ask the one inside it for what it knows to be denied.
///
/// A denial holds for the same hits of the same key until its wait is over, counted from when the
/// question was sent. For that time, and at most for `deny_locally_for`, it is repeated: the same
/// answer, less the time that has passed, with the source [`DeniedLocally`](Source::DeniedLocally).
/// Other hits and looks go to the store.
///
/// **Exact.** Verdict, limit, wait and reset are those that the store would answer now. More hits may
/// wait for longer, and by another limit, so they go to the store; only of a lone fixed window, which
/// ends for all at once, as many or more are denied. Hits admitted through this replica end the denials
/// of their key. Hits admitted through another, or by a request under way at the same time, lengthen
/// the wait too: they are seen within `deny_locally_for`. How many hits were used before is not told.
///
/// **Which.** Denials by a plan whose denials [may be repeated](crate::limit::Plan::repeats_denials).
/// Where one charges denied hits (a lone fixed window), its counter misses those of repeated
/// denials, which it notices only when hits are given back or its numbers change.
///
/// **Until.** A plan with other numbers asks at once. So does who follows hits that were given
/// back through this replica; those given back through another, or by a caller who went away
/// before the store answered, are seen within `deny_locally_for`.
///
/// **Batches** that are charged together are always asked for as a whole, and so are those that
/// give something back.
///
/// **Bounded.** At most `slots` denials are known, in tables that are there from the start, of
/// about 100 bytes a denial; where there is no room for another, the one that ends soonest goes.
///
/// **Cost.** While nothing is known to be denied: a look at the clock and at one number.
#[derive(Debug)]
pub struct DenyLocally<S, C> {
    inner: S,
    clock: C,
    denials: DenialCache,
    longest: Micros,
}

/// How a batch is charged.
enum Route<'a> {
    /// By the inner store as a whole, whatever is known.
    Whole,
    /// By the inner store: nothing of it is known to be denied.
    Unknown,
    /// Some or all of it from what is known.
    Known(Split<'a>),
}

/// A batch of which some charges are known to be denied.
struct Split<'a> {
    /// One for each charge of the batch: its decision, if it is known to be denied.
    known: SmallVec<[Option<Decision>; 4]>,
    /// The charges for the inner store.
    rest: SmallVec<[Charge<'a>; 4]>,
}

impl<'a> Split<'a> {
    /// The batch for the inner store; none if all of it is known.
    fn rest<'b>(&'b self, batch: Batch<'a>) -> Option<Batch<'b>> {
        (!self.rest.is_empty()).then(|| Batch { charges: &self.rest, ..batch })
    }
}

impl<S: Store, C: Monotonic> DenyLocally<S, C> {
    /// Repeats denials by `inner` for at most `deny_locally_for` (zero: never) and knows at most
    /// `slots` of them, rounded down to a power of two, and at least eight.
    pub fn new(inner: S, clock: C, deny_locally_for: Duration, slots: usize) -> DenyLocally<S, C> {
        let longest = Micros::try_from(deny_locally_for.as_micros()).unwrap_or(Micros::MAX);
        DenyLocally { inner, clock, denials: DenialCache::new(slots), longest }
    }

    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn route<'a>(&self, batch: &Batch<'a>, now: Micros) -> Route<'a> {
        if batch.together || batch.charges.iter().any(gives_back) {
            return Route::Whole;
        }
        self.split(batch, now).map_or(Route::Unknown, Route::Known)
    }

    /// Separates what is known to be denied; none if nothing is.
    fn split<'a>(&self, batch: &Batch<'a>, now: Micros) -> Option<Split<'a>> {
        if !self.denials.any(now) {
            return None;
        }
        let (mut known, mut rest) = (SmallVec::new(), SmallVec::new());
        // What the inner store charges may change the answers to later charges of the same key.
        let mut rest_keys: SmallVec<[Fingerprint; 4]> = SmallVec::new();
        for charge in batch.charges {
            let key = self.denials.key(charge);
            let key = key.filter(|key| !rest_keys.contains(key));
            let denial = key.and_then(|key| self.denials.get(&key, charge, now));
            if denial.is_none() {
                rest.push(*charge);
                rest_keys.extend(key);
            }
            known.push(denial);
        }
        (rest.len() < known.len()).then_some(Split { known, rest })
    }

    /// Adds known denials and the answers of the inner store to `answers`, in the batch's order.
    fn merge(&self, split: Split<'_>, inner: Answers, sent: Micros, answers: &mut Answers) {
        self.learn(&split.rest, &inner, sent);
        let mut inner = inner.into_iter();
        answers.extend(split.known.into_iter().map(|known| match known {
            Some(decision) => Ok(decision),
            None => inner.next().unwrap_or(Err(StoreError::Unavailable)),
        }));
    }

    /// Learns from the answers to a batch that was charged as a whole.
    fn learn_from_whole(&self, charges: &[Charge<'_>], answers: &[Answer], sent: Micros) {
        let now = self.clock.monotonic();
        for (charge, answer) in zip(charges, answers) {
            match answer {
                _ if gives_back(charge) => self.denials.give_back(charge, now),
                // It may be due to hits of the same batch that were not charged or were given back.
                Ok(decision) if !decision.allowed => {}
                _ => self.forget_waits(charge, sent),
            }
        }
    }

    /// Learns from the answers to a batch that was sent at `sent`.
    fn learn(&self, charges: &[Charge<'_>], answers: &[Answer], sent: Micros) {
        for (charge, answer) in zip(charges, answers) {
            match (charge.op, answer) {
                (Op::Take(hits @ 1..), Ok(decision)) if !decision.allowed => {
                    self.learn_denial(charge, hits, decision, sent);
                }
                _ => self.forget_waits(charge, sent),
            }
        }
    }

    /// Forgets the denials of a key that was charged, or may have been: they last for longer now.
    fn forget_waits(&self, charge: &Charge<'_>, sent: Micros) {
        if self.denials.any(sent) && !charge.plan.denies_more_alike() {
            self.denials.forget(charge);
        }
    }

    fn learn_denial(&self, charge: &Charge<'_>, hits: u64, decision: &Decision, sent: Micros) {
        if decision.source != Source::Store || !charge.plan.repeats_denials() {
            return;
        }
        let holds = decision.retry_after.unwrap_or_else(|| {
            // Hits that are never allowed are told the reset, which a window begins anew.
            let limit = charge.plan.limits().get(usize::from(decision.limit));
            match limit.map(|limit| &limit.algorithm) {
                Some(Algorithm::FixedWindow(_)) => decision.reset_after,
                _ => Micros::MAX,
            }
        });
        let holds = holds.min(self.longest);
        if holds > 0 {
            self.denials.put(charge, hits, *decision, sent, sent.saturating_add(holds));
        }
    }
}

impl<S: Store, C: Monotonic> Store for DenyLocally<S, C> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let (first, sent) = (answers.len(), self.clock.monotonic());
        match self.route(&batch, sent) {
            Route::Whole => {
                self.inner.charge(batch, answers).await;
                self.learn_from_whole(batch.charges, &answers[first..], sent);
            }
            Route::Unknown => {
                self.inner.charge(batch, answers).await;
                self.learn(batch.charges, &answers[first..], sent);
            }
            Route::Known(split) => {
                let mut inner = Answers::new();
                if let Some(rest) = split.rest(batch) {
                    self.inner.charge(rest, &mut inner).await;
                }
                self.merge(split, inner, sent, answers);
            }
        }
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        let (first, sent) = (answers.len(), self.clock.monotonic());
        match self.route(&batch, sent) {
            Route::Whole => {
                let charged = self.inner.try_charge(batch, answers);
                if charged {
                    self.learn_from_whole(batch.charges, &answers[first..], sent);
                }
                charged
            }
            Route::Unknown => {
                let charged = self.inner.try_charge(batch, answers);
                if charged {
                    self.learn(batch.charges, &answers[first..], sent);
                }
                charged
            }
            Route::Known(split) => {
                let mut inner = Answers::new();
                if let Some(rest) = split.rest(batch)
                    && !self.inner.try_charge(rest, &mut inner)
                {
                    return false;
                }
                self.merge(split, inner, sent, answers);
                true
            }
        }
    }

    fn is_immediate(&self) -> bool {
        self.inner.is_immediate()
    }
}

fn gives_back(charge: &Charge<'_>) -> bool {
    matches!(charge.op, Op::GiveBack(_))
}

//! Repeating denials that are known to hold still.

mod known;
#[cfg(test)]
mod tests;

use std::iter::zip;
use std::time::Duration;

use smallvec::SmallVec;

use self::known::Known;
use super::{Answers, Batch, Charge, Failed, Store};
use crate::clock::Monotonic;
use crate::limit::{Judged, Micros, Op, Source};

/// A store that does not ask the one inside it for what it knows to be denied.
///
/// A denial of some hits holds for as many or more of the same key until its wait is over,
/// counted from when the question was sent. For that time, and at most for `deny_locally_for`, it
/// is repeated: the same answer, less the time that has passed, with the source
/// [`DeniedLocally`](Source::DeniedLocally). Fewer hits and looks go to the store.
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
    known: Known,
    longest: Micros,
}

/// A batch of which some charges are known to be denied.
struct Split<'a> {
    /// One for each charge of the batch: its answer, where it is known.
    known: SmallVec<[Option<Judged>; 4]>,
    /// The charges that are not known to be denied.
    asked: SmallVec<[Charge<'a>; 4]>,
}

impl<S: Store, C: Monotonic> DenyLocally<S, C> {
    /// Repeats denials by `inner` for at most `deny_locally_for` (zero: never) and knows at most
    /// `slots` of them, rounded down to a power of two, and at least eight.
    pub fn new(inner: S, clock: C, deny_locally_for: Duration, slots: usize) -> DenyLocally<S, C> {
        let longest = Micros::try_from(deny_locally_for.as_micros()).unwrap_or(Micros::MAX);
        DenyLocally { inner, clock, known: Known::new(slots), longest }
    }

    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Sorts out what is known to be denied; none where nothing is.
    fn split<'a>(&self, batch: &Batch<'a>, now: Micros) -> Option<Split<'a>> {
        if !self.known.any(now) {
            return None;
        }
        let known: SmallVec<[Option<Judged>; 4]> =
            batch.charges.iter().map(|charge| self.known.get(charge, now)).collect();
        if known.iter().all(Option::is_none) {
            return None;
        }
        let asked = zip(batch.charges, &known)
            .filter_map(|(charge, known)| known.is_none().then_some(*charge))
            .collect();
        Some(Split { known, asked })
    }

    /// Notes what was denied to a question sent at `sent`.
    fn learn(&self, charges: &[Charge<'_>], answers: &Answers, first: usize, sent: Micros) {
        for (charge, answer) in zip(charges, answers.iter().skip(first)) {
            let (Op::Take(hits @ 1..), Ok(judged)) = (charge.op, answer) else { continue };
            if judged.allowed || judged.source != Source::Store || !charge.plan.repeats_denials() {
                continue;
            }
            // Hits that are never allowed count in the next window too where denied hits do.
            let charged = charge.plan.limits().iter().any(|limit| limit.charge_denied);
            let never = if charged { judged.reset_after } else { Micros::MAX };
            let holds = judged.retry_after.unwrap_or(never).min(self.longest);
            if holds > 0 {
                self.known.put(charge, hits, *judged, sent, sent.saturating_add(holds));
            }
        }
    }
}

impl<S: Store, C: Monotonic> Store for DenyLocally<S, C> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let gives_back = |charge: &Charge<'_>| matches!(charge.op, Op::GiveBack(_));
        if batch.charges.iter().any(gives_back) {
            self.inner.charge(batch, answers).await;
            let now = self.clock.monotonic();
            for charge in batch.charges.iter().filter(|charge| gives_back(charge)) {
                self.known.give_back(charge, now);
            }
            return;
        }
        if batch.together {
            // A denial may be by hits of the same batch that are then not charged: not learnt.
            return self.inner.charge(batch, answers).await;
        }
        let (first, sent) = (answers.len(), self.clock.monotonic());
        let Some(Split { known, asked }) = self.split(&batch, sent) else {
            self.inner.charge(batch, answers).await;
            return self.learn(batch.charges, answers, first, sent);
        };
        let mut told = Answers::new();
        if !asked.is_empty() {
            self.inner.charge(Batch { charges: &asked, ..batch }, &mut told).await;
            self.learn(&asked, &told, 0, sent);
        }
        let mut told = told.into_iter();
        answers.extend(known.into_iter().map(|known| match known {
            Some(judged) => Ok(judged),
            None => told.next().unwrap_or(Err(Failed::Unavailable)),
        }));
    }
}

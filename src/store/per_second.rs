//! A store of its own for limits of one second.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::iter::zip;

use smallvec::SmallVec;

use super::{Answer, Answers, Batch, Charge, Role, Store, StoreError};
use crate::limit::Micros;

/// When charges were made, by the clock of the store that made them.
pub type Times = SmallVec<[Micros; 4]>;

/// A store that can take back what it charged.
pub trait Undo: Store {
    /// Charges a batch, and adds to `times` when, for each charge in order.
    fn charge_timed(
        &self,
        batch: Batch<'_>,
        answers: &mut Answers,
        times: &mut Times,
    ) -> impl Future<Output = ()> + Send;

    /// Takes back what was taken at those times, where that still counts. Nobody waits for it: where
    /// it fails, the hits stay charged until their window ends.
    fn undo(&self, taken: &[(Charge<'_>, Micros)]);
}

/// Two stores: charges whose plan is [per second](crate::limit::Plan::per_second) go to one, all
/// others to the other, both at once.
///
/// **Charged together.** A batch that needs both is first charged in each, and where that comes to
/// a denial what one of them charged is given back. Meanwhile others see it as charged, so they
/// may be denied what they would otherwise get, for about one round trip; nobody is allowed more.
/// A plan's other limits beside one of concurrency get nothing back. Where a store failed it may
/// or may not have charged: nothing is given back to it.
#[derive(Debug)]
pub struct PerSecond<S> {
    main: S,
    per_second: S,
}

/// The charges for one of the stores, with their answers.
struct Part<'a> {
    charges: SmallVec<[Charge<'a>; 4]>,
    answers: Answers,
    times: Times,
}

impl<'a> Part<'a> {
    fn of(batch: &Batch<'a>, per_second: bool) -> Part<'a> {
        let here = |charge: &&Charge<'_>| charge.plan.per_second() == per_second;
        let charges = batch.charges.iter().filter(here).copied().collect();
        Part { charges, answers: Answers::new(), times: Times::new() }
    }

    fn has_quota(&self) -> bool {
        self.charges.iter().any(|charge| charge.role == Role::Quota)
    }

    /// What was charged of a batch that was denied in the end, and when.
    fn to_undo(&self, batch: &Batch<'_>) -> SmallVec<[(Charge<'a>, Micros); 4]> {
        let unknown = |answer: &Answer| answer.err().is_some_and(|failed| !failed.is_refusal());
        let complete = self.answers.len() == self.charges.len();
        if !complete || self.answers.iter().any(unknown) || batch.is_denied(&self.answers) {
            return SmallVec::new();
        }
        zip(zip(&self.charges, &self.answers), &self.times)
            .filter(|((charge, answer), _)| charge.took(answer))
            .map(|((charge, _), taken)| (*charge, *taken))
            .collect()
    }
}

impl<S: Undo> PerSecond<S> {
    /// Limits of one second are kept in `per_second`, all others in `main`.
    pub fn new(main: S, per_second: S) -> PerSecond<S> {
        PerSecond { main, per_second }
    }

    pub fn main(&self) -> &S {
        &self.main
    }

    pub fn per_second(&self) -> &S {
        &self.per_second
    }

    async fn charge_both(&self, batch: Batch<'_>, answers: &mut Answers) {
        let (mut main, mut second) = (Part::of(&batch, false), Part::of(&batch, true));
        let (main_quota, second_quota) = (main.has_quota(), second.has_quota());
        // Quotas deny only all together: what passes in one store is not known in the other.
        let main_batch = Batch {
            charges: &main.charges,
            quota_passes: batch.quota_passes || second_quota,
            ..batch
        };
        let second_batch = Batch {
            charges: &second.charges,
            quota_passes: batch.quota_passes || main_quota,
            ..batch
        };
        tokio::join!(
            self.main.charge_timed(main_batch, &mut main.answers, &mut main.times),
            self.per_second.charge_timed(second_batch, &mut second.answers, &mut second.times),
        );

        let first = answers.len();
        let (mut of_main, mut of_second) = (main.answers.iter(), second.answers.iter());
        for charge in batch.charges {
            let of_store = if charge.plan.per_second() { &mut of_second } else { &mut of_main };
            answers.push(of_store.next().copied().unwrap_or(Err(StoreError::Unavailable)));
        }
        if !batch.together || !batch.is_denied(&answers[first..]) {
            return;
        }
        for (store, undo) in [
            (&self.main, main.to_undo(&main_batch)),
            (&self.per_second, second.to_undo(&second_batch)),
        ] {
            if !undo.is_empty() {
                store.undo(&undo);
            }
        }
    }
}

impl<S: Undo> Store for PerSecond<S> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let per_second = batch.charges.iter().filter(|charge| charge.plan.per_second()).count();
        if per_second == 0 {
            self.main.charge(batch, answers).await;
        } else if per_second == batch.charges.len() {
            self.per_second.charge(batch, answers).await;
        } else {
            self.charge_both(batch, answers).await;
        }
    }

    /// A batch that needs both stores is never charged this way: if the second cannot answer now,
    /// the first has charged already.
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        let per_second = batch.charges.iter().filter(|charge| charge.plan.per_second()).count();
        if per_second == 0 {
            self.main.try_charge(batch, answers)
        } else if per_second == batch.charges.len() {
            self.per_second.try_charge(batch, answers)
        } else {
            false
        }
    }

    fn is_immediate(&self) -> bool {
        self.main.is_immediate() && self.per_second.is_immediate()
    }
}

//! Limits of one second in a separate store.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::iter::{self, zip};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use smallvec::SmallVec;

use super::{
    Answer, Answers, Batch, Charge, Operations, Role, SharedTable, StateKey, States, Store,
    StoreError, StoreStatus,
};
use crate::leases::{LeaseCharge, Leasing};
use crate::replica_texts::ReplicaTexts;
use weir_common::metrics::{MergedFamilies, MetricSink};
use weir_limit::{KeyState, Micros, Op, Plan, Undo};

/// What undoes each charge of a batch, in order: nothing where nothing was charged.
pub type Undos = SmallVec<[Vec<Undo>; 4]>;

/// A store whose charges can be undone.
pub trait Undoable: Store {
    /// Charges a batch, and adds to `undos` what undoes each charge.
    fn charge_undoable(
        &self,
        batch: Batch<'_>,
        answers: &mut Answers,
        undos: &mut Undos,
    ) -> impl Future<Output = ()> + Send;

    /// Makes charges that [undo](Op::Undo) others, at most once. Nothing waits for it: if it fails, the
    /// hits stay charged until they no longer count.
    fn undo(&self, undoing: &[Charge<'_>]);
}

/// A charge that was made, its answer, and what undoes it.
pub(crate) type Made<'u, 'a> = (&'u Charge<'a>, &'u Answer, &'u Vec<Undo>);

/// Returns the charges that undo others, last to first. What was reserved is cancelled by its id.
pub(crate) fn undoing<'a: 'u, 'u>(
    made: impl DoubleEndedIterator<Item = Made<'u, 'a>>,
) -> Vec<Charge<'a>> {
    let undo = |(charge, answer, undos): Made<'u, 'a>| {
        let undos = undos.iter().rev().map(move |undo| Charge { op: Op::Undo(*undo), ..*charge });
        charge.cancelling(answer).into_iter().chain(undos)
    };
    made.rev().flat_map(undo).collect()
}

/// One or two stores. With two, charges whose plan is [per second](weir_limit::Plan::per_second) go
/// to one and all others to the other, at the same time.
///
/// **Charged together.** A batch that needs both stores is first charged in each. If the result is a
/// denial, what was charged is undone. Until then other requests see it as charged, so for about one
/// round trip they may be denied hits that they would otherwise get; no request is allowed more. A store
/// that failed may or may not have charged: nothing is undone there.
#[derive(Debug)]
pub struct PerSecond<S> {
    main: S,
    /// The store for limits of one second; none if `main` keeps all limits.
    per_second: Option<S>,
}

/// The stores that charge a batch.
enum StoresOf<'a, S> {
    One(&'a S),
    Both { main: &'a S, per_second: &'a S },
}

/// The charges for one of the stores, with their answers.
struct Part<'a> {
    charges: SmallVec<[Charge<'a>; 4]>,
    answers: Answers,
    undos: Undos,
}

impl<'a> Part<'a> {
    fn of(batch: &Batch<'a>, per_second: bool) -> Part<'a> {
        let here = |charge: &&Charge<'_>| charge.plan.per_second() == per_second;
        let charges = batch.charges.iter().filter(here).copied().collect();
        Part { charges, answers: Answers::new(), undos: Undos::new() }
    }

    fn has_quota(&self) -> bool {
        self.charges.iter().any(|charge| charge.role == Role::Quota)
    }

    /// Returns what to do after the whole batch was denied.
    fn undoing(&self, batch: &Batch<'_>) -> Vec<Charge<'a>> {
        let unknown = |answer: &Answer| matches!(answer, Err(failed) if !failed.is_refusal());
        let complete = self.answers.len() == self.charges.len();
        if !complete || self.answers.iter().any(unknown) || batch.is_denied(&self.answers) {
            return Vec::new();
        }
        let made = zip(zip(&self.charges, &self.answers), &self.undos);
        undoing(made.map(|((charge, answer), undos)| (charge, answer, undos)))
    }
}

impl<S: Undoable> PerSecond<S> {
    /// Keeps limits of one second in `per_second`, all others in `main`. Without `per_second`, `main`
    /// keeps all.
    pub fn new(main: S, per_second: Option<S>) -> PerSecond<S> {
        PerSecond { main, per_second }
    }

    /// Returns the store of all limits but those of one second.
    pub fn main(&self) -> &S {
        &self.main
    }

    fn stores(&self) -> impl Iterator<Item = &S> {
        iter::once(&self.main).chain(&self.per_second)
    }

    /// Returns the store that keeps the states of a plan.
    fn store_of(&self, plan: &Plan) -> &S {
        self.per_second.as_ref().filter(|_| plan.per_second()).unwrap_or(&self.main)
    }

    fn stores_of(&self, batch: &Batch<'_>) -> StoresOf<'_, S> {
        let Some(per_second) = &self.per_second else { return StoresOf::One(&self.main) };
        match batch.charges.iter().filter(|charge| charge.plan.per_second()).count() {
            0 => StoresOf::One(&self.main),
            all if all == batch.charges.len() => StoresOf::One(per_second),
            _ => StoresOf::Both { main: &self.main, per_second },
        }
    }

    async fn charge_both(
        main_store: &S,
        second_store: &S,
        batch: Batch<'_>,
        answers: &mut Answers,
    ) {
        let (mut main, mut second) = (Part::of(&batch, false), Part::of(&batch, true));
        let (main_quota, second_quota) = (main.has_quota(), second.has_quota());
        // Quotas deny only if all do, and no store knows the quotas of the other.
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
            main_store.charge_undoable(main_batch, &mut main.answers, &mut main.undos),
            second_store.charge_undoable(second_batch, &mut second.answers, &mut second.undos),
        );

        let first = answers.len();
        let (mut of_main, mut of_second) =
            (main.answers.iter().cloned(), second.answers.iter().cloned());
        for charge in batch.charges {
            let of_store = if charge.plan.per_second() { &mut of_second } else { &mut of_main };
            answers.push(of_store.next().unwrap_or(Err(StoreError::Unavailable)));
        }
        if !batch.together || !batch.is_denied(&answers[first..]) {
            return;
        }
        for (store, undoing) in
            [(main_store, main.undoing(&main_batch)), (second_store, second.undoing(&second_batch))]
        {
            if !undoing.is_empty() {
                store.undo(&undoing);
            }
        }
    }
}

impl<S: Undoable> Store for PerSecond<S> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        match self.stores_of(&batch) {
            StoresOf::One(store) => store.charge(batch, answers).await,
            StoresOf::Both { main, per_second } => {
                Self::charge_both(main, per_second, batch, answers).await;
            }
        }
    }

    /// Never charges a batch that needs both stores: if the second could not answer now, the first
    /// would have charged already.
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        match self.stores_of(&batch) {
            StoresOf::One(store) => store.try_charge(batch, answers),
            StoresOf::Both { .. } => false,
        }
    }

    fn is_immediate(&self) -> bool {
        self.main.is_immediate() && self.per_second.as_ref().is_none_or(Store::is_immediate)
    }
}

impl<S: Undoable + Leasing> Leasing for PerSecond<S> {
    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        self.store_of(charge.plan()).charge_lease(charge);
    }
}

impl<S: Undoable + States> States for PerSecond<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        self.store_of(key.plan).read(key, spans, budget).await
    }

    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        self.store_of(key.plan).reset(key, budget).await
    }
}

impl<S: Undoable + Operations> Operations for PerSecond<S> {
    fn connect(&self) -> BoxFuture<'_, ()> {
        join_all(self.stores().map(Operations::connect)).map(drop).boxed()
    }

    fn is_ready(&self) -> bool {
        self.stores().all(Operations::is_ready)
    }

    /// Whether both stores can be reached.
    fn is_connected(&self) -> bool {
        self.stores().all(Operations::is_connected)
    }

    fn maintain(&self) -> BoxFuture<'_, ()> {
        join_all(self.stores().map(Operations::maintain)).map(drop).boxed()
    }

    /// Returns the shared table of the main store.
    fn shared_table(&self) -> Option<&dyn SharedTable> {
        self.main.shared_table()
    }

    /// Returns the texts in the main store.
    fn replica_texts(&self) -> Option<&dyn ReplicaTexts> {
        self.main.replica_texts()
    }

    fn drain(&self) {
        self.stores().for_each(Operations::drain);
    }

    fn forget_denials(&self) {
        self.stores().for_each(Operations::forget_denials);
    }

    /// Lists the metrics of both stores, with the label `redis` before theirs.
    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut merged = MergedFamilies::default();
        merged.set_label("redis", "main");
        self.main.collect(&mut merged);
        if let Some(second) = &self.per_second {
            merged.set_label("redis", "per_second");
            second.collect(&mut merged);
        }
        merged.write(sink);
    }

    fn status(&self, status: &mut StoreStatus) {
        self.main.status(status);
        let main = status.backends.len();
        if let Some(second) = &self.per_second {
            second.status(status);
            for backend in status.backends.iter_mut().skip(main) {
                backend.instance = "per_second";
            }
        }
    }
}

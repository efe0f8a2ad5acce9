//! Limits of one second in a separate store.

#[cfg(test)]
mod tests;

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::{
    Answers, Batch, Operations, SharedTable, StateKey, States, Store, StoreError, StoreStatus,
};
use crate::local::LeaseCharge;
use crate::replica_texts::ReplicaTexts;
use weir_common::metrics::{MergedFamilies, MetricSink};
use weir_limit::{KeyState, Micros, Plan};

/// One or two stores. With two, charges whose plan is [per second](weir_limit::Plan::per_second) go
/// to one and all others to the other, at the same time.
///
/// **Charged together.** All keys of a domain with `charge: together` are in the main store, also those of limits
/// of one second: they are charged in one call.
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

impl<S> PerSecond<S> {
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

    /// Returns the store that keeps the states of a plan, in a domain with `charge: together` or not.
    fn store_of(&self, plan: &Plan, together: bool) -> &S {
        let is_second = plan.per_second() && !together;
        self.per_second.as_ref().filter(|_| is_second).unwrap_or(&self.main)
    }

    fn stores_of(&self, batch: &Batch<'_>) -> StoresOf<'_, S> {
        let per_second = self.per_second.as_ref().filter(|_| !batch.together);
        let Some(per_second) = per_second else { return StoresOf::One(&self.main) };
        match batch.charges.iter().filter(|charge| charge.plan.per_second()).count() {
            0 => StoresOf::One(&self.main),
            all if all == batch.charges.len() => StoresOf::One(per_second),
            _ => StoresOf::Both { main: &self.main, per_second },
        }
    }
}

impl<S: Store> PerSecond<S> {
    /// Charges each store with its part of a batch, at the same time.
    async fn charge_both(
        main_store: &S,
        second_store: &S,
        batch: Batch<'_>,
        answers: &mut Answers,
    ) {
        let (second_part, main_part): (Vec<_>, Vec<_>) =
            batch.charges.iter().partition(|charge| charge.plan.per_second());
        let (mut main, mut second) = (Answers::new(), Answers::new());
        tokio::join!(
            main_store.charge(Batch { charges: &main_part, ..batch }, &mut main),
            second_store.charge(Batch { charges: &second_part, ..batch }, &mut second),
        );
        let (mut main, mut second) = (main.into_iter(), second.into_iter());
        answers.extend(batch.charges.iter().map(|charge| {
            let answer = if charge.plan.per_second() { second.next() } else { main.next() };
            answer.unwrap_or(Err(StoreError::Unavailable))
        }));
    }
}

impl<S: Store> Store for PerSecond<S> {
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

    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        self.store_of(charge.plan(), false).charge_lease(charge);
    }
}

impl<S: States> States for PerSecond<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        self.store_of(key.plan, key.together).read(key, spans, budget).await
    }

    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        self.store_of(key.plan, key.together).reset(key, budget).await
    }
}

impl<S: Operations> Operations for PerSecond<S> {
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

//! A store outside the crate passes the conformance suite: a map and the arithmetic of plans.
//!
//! `cargo test --features testsuite --test testsuite`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{KeyState, Micros, State};
use weir_store::conformance::{self, DAWN};
use weir_store::{Answer, Answers, Batch, Charge, StateKey, States, Store, StoreError};

/// A key and the shape of its plan.
type MapKey = (String, Vec<(String, String)>, String);

struct MapStore {
    clock: Arc<ManualClock>,
    states: Mutex<HashMap<MapKey, State>>,
}

impl MapStore {
    fn new(clock: Arc<ManualClock>) -> MapStore {
        MapStore { clock, states: Mutex::default() }
    }

    fn map_key(StateKey { key, plan }: StateKey<'_>) -> MapKey {
        let entries = key.entries.iter();
        let entries = entries.map(|(key, value)| ((*key).into(), (*value).into())).collect();
        (key.domain.into(), entries, plan.shape().into())
    }

    fn charge_now(&self, batch: Batch<'_>, answers: &mut Answers) {
        let now = self.clock.now();
        let mut states = self.states.lock();
        let charge_one = |states: &mut HashMap<MapKey, State>, charge: &Charge<'_>| -> Answer {
            let key = StateKey { key: charge.key, plan: charge.plan };
            let state = states.entry(MapStore::map_key(key)).or_default();
            Ok(charge.plan.charge(state, now, charge.op, charge.hold).decision)
        };
        let (first, before) = (answers.len(), batch.together.then(|| states.clone()));
        for charge in batch.charges {
            answers.push(charge_one(&mut states, charge));
        }
        if let Some(before) = before
            && batch.is_denied(&answers[first..])
        {
            *states = before;
            for charge in batch.charges {
                if charge.op.is_unconditional() {
                    let _ = charge_one(&mut states, charge);
                }
            }
        }
    }
}

impl Store for MapStore {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        self.charge_now(batch, answers);
    }

    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        self.charge_now(batch, answers);
        true
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

impl States for MapStore {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        _budget: Duration,
    ) -> Result<KeyState, StoreError> {
        let states = self.states.lock();
        let unused = State::default();
        let state = states.get(&MapStore::map_key(key)).unwrap_or(&unused);
        Ok(key.plan.inspect(state, self.clock.now(), spans))
    }

    async fn reset(&self, key: StateKey<'_>, _budget: Duration) -> Result<(), StoreError> {
        self.states.lock().remove(&MapStore::map_key(key));
        Ok(())
    }
}

#[tokio::test]
async fn conforms() {
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = MapStore::new(clock.clone());
    conformance::conforms(&store, &clock).await;
    conformance::states::conforms(&store, &clock).await;
}

#[test]
fn admits_exactly_n_of_racing() {
    let store = Arc::new(MapStore::new(Arc::new(ManualClock::new(DAWN))));
    conformance::admits_exactly_n_of_racing(&|| std::future::ready(store.clone()));
}

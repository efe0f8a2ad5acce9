//! A store outside the crate passes the conformance suite: maps and the arithmetic of plans.
//!
//! `cargo test --features testsuite --test testsuite`

use std::collections::HashMap;
use std::future::{Future, Pending};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{Decision, KeyState, Micros, Op, Reservation, ReservationResult, State};
use weir_store::conformance::{self, DAWN};
use weir_store::{Answer, Answers, Batch, Charge, Grant, StateKey, States, Store, StoreError};

/// A key and the shape of its plan.
type MapKey = (String, Vec<(String, String)>, String);

#[derive(Clone, Default)]
struct Maps {
    states: HashMap<MapKey, State>,
    /// By key and id.
    reservations: HashMap<(MapKey, String), Reservation>,
}

struct MapStore {
    clock: Arc<ManualClock>,
    maps: Mutex<Maps>,
}

impl Maps {
    fn charge(&mut self, charge: &Charge<'_>, now: Micros) -> Answer {
        let key = MapStore::key_of(charge);
        let state = self.states.entry(key.clone()).or_default();
        let outcome = match (charge.op, charge.hold) {
            (Op::Reservation(op), Some(id)) => {
                let record = (key, id.to_owned());
                let mut reservation = self.reservations.remove(&record);
                let made = charge.plan.charge_reservation(state, &mut reservation, now, op);
                self.reservations.extend(reservation.map(|reservation| (record, reservation)));
                made
            }
            _ => charge.plan.charge(state, now, charge.op, charge.hold),
        };
        Ok(outcome.decision)
    }
}

impl MapStore {
    fn new(clock: Arc<ManualClock>) -> MapStore {
        MapStore { clock, maps: Mutex::default() }
    }

    fn key_of(charge: &Charge<'_>) -> MapKey {
        let Charge { key, plan, .. } = *charge;
        MapStore::map_key(StateKey { key, plan, together: false, id: None })
    }

    fn map_key(StateKey { key, plan, .. }: StateKey<'_>) -> MapKey {
        let entries = key.entries.iter();
        let entries = entries.map(|(key, value)| ((*key).into(), (*value).into())).collect();
        (key.domain.into(), entries, plan.shape().into())
    }

    fn charge_now(&self, batch: &Batch<'_>, answers: &mut Answers) {
        let now = self.clock.now();
        let mut maps = self.maps.lock();
        let (first, before) = (answers.len(), batch.together.then(|| maps.clone()));
        for charge in batch.charges {
            answers.push(maps.charge(charge, now));
        }
        if let Some(before) = before
            && batch.is_denied(&answers[first..])
        {
            *maps = before;
            for (charge, answer) in batch.charges.iter().zip(&answers[first..]) {
                let settles = |it: &Decision| it.reservation == ReservationResult::Settled;
                if charge.op.is_unconditional() || answer.as_ref().is_ok_and(settles) {
                    let _ = maps.charge(charge, now);
                }
            }
        }
    }
}

impl Store for MapStore {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.charge_now(&batch, answers);
        None::<Pending<Answers>>
    }
}

impl States for MapStore {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        _timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        let (maps, now) = (self.maps.lock(), self.clock.now());
        let unused = State::default();
        let map_key = MapStore::map_key(key);
        let state = maps.states.get(&map_key).unwrap_or(&unused);
        let record = key.id.and_then(|id| maps.reservations.get(&(map_key, id.to_owned())));
        let reservation = record.copied().filter(|record| now < record.lapses);
        Ok(KeyState { reservation, ..key.plan.inspect(state, now, spans) })
    }

    async fn reset(&self, key: StateKey<'_>, _timeout: Duration) -> Result<(), StoreError> {
        let (mut maps, map_key) = (self.maps.lock(), MapStore::map_key(key));
        maps.states.remove(&map_key);
        for ((of, _), reservation) in &mut maps.reservations {
            if *of == map_key {
                *reservation = reservation.after_reset(self.clock.now());
            }
        }
        Ok(())
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let (mut maps, charge) = (self.maps.lock(), &batch.charges[0]);
        let state = maps.states.entry(MapStore::key_of(charge)).or_default();
        Ok(Grant::charge(charge.plan, state, self.clock.now(), charge.op))
    }
}

#[tokio::test]
async fn conforms() {
    let clock = Arc::new(ManualClock::new(DAWN));
    let store = MapStore::new(clock.clone());
    conformance::conforms(&store, &clock).await;
    conformance::states::conforms(&store, &clock).await;
    conformance::reservations::keeps_many_open(&store, &clock).await;
}

#[test]
fn admits_exactly_n_of_racing() {
    let store = Arc::new(MapStore::new(Arc::new(ManualClock::new(DAWN))));
    let stores = || std::future::ready(store.clone());
    conformance::admits_exactly_n_of_racing(&stores);
    conformance::operations::grants_exactly_n_of_racing(&stores);
    conformance::reservations::reserves_at_most_n_of_racing(&stores);
}

//! Reads, resets and grants hits of single keys.

use std::time::Duration;

use redis::Value;

use super::admin::eval;
use super::key::{holds_key, record_key, reset_key};
use super::pending_charge::RedisKey;
use super::round_trip::{CALLER_CLOCK_SLACK_MS, parse_time};
use super::script::{READ, RESET};
use super::store::RedisStore;
use crate::codec::PlanCodec;
use crate::codec::reservation::read_record;
use weir_limit::{KeyState, Micros, Reservation, SECOND, State};
use weir_store::{Batch, Grant, StateKey, States, StoreError};

/// The milliseconds after which all that is reserved now has lapsed, by whichever clock.
const RESERVED_MS: u64 =
    (Reservation::MAX_TIMEOUT as u64 + 1) * 1_000 + CALLER_CLOCK_SLACK_MS as u64;

/// Returns the store that has the state of a key, the key there, and all keys that hold the state.
fn locate<'s>(
    store: &'s RedisStore,
    StateKey { key, plan, together, .. }: &StateKey<'_>,
) -> (&'s RedisStore, RedisKey, Vec<Vec<u8>>) {
    let store = store.store_of(plan, *together);
    let stored = RedisKey::new(&store.shared.options, key, plan, *together);
    let state = (!PlanCodec(plan).has_only_holds()).then(|| stored.text.to_vec());
    let holds = plan.hold_id().map(|_| holds_key(&stored.text));
    let keys = state.into_iter().chain(holds).collect();
    (store, stored, keys)
}

impl States for RedisStore {
    /// One script reads the time and the values, which weir decodes.
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        let (store, stored, mut keys) = locate(self, &key);
        keys.extend(key.id.map(|id| record_key(&stored.text, id).to_vec()));
        let now = store.script_time();
        let mut command = eval(READ, &keys);
        command.arg(now / SECOND).arg(now % SECOND);
        let reply = store.ask_about_state(stored.slot, &command, timeout).await?;
        let Some((now, state, reservation)) = decode(reply, &key) else {
            store.shared.log.charge_failed(StoreError::Corrupt, &stored.text, "");
            return Err(StoreError::Corrupt);
        };
        Ok(KeyState { reservation, ..key.plan.inspect(&state, now, spans) })
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        let (store, stored, mut keys) = locate(self, &key);
        let mut command = redis::cmd("DEL");
        if key.plan.can_reserve() {
            keys.insert(0, reset_key(&stored.text));
            command = eval(RESET, &keys);
            command.arg(store.script_time()).arg(RESERVED_MS);
        } else {
            command.arg(keys);
        }
        store.ask_about_state(stored.slot, &command, timeout).await?;
        Ok(())
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let charge = batch.charges.first().ok_or(StoreError::Unavailable)?;
        self.store_of(charge.plan, batch.together).grant_here(*batch).await
    }
}

/// Decodes a reply of the script: its time, the state, and what the id has reserved then. `None` if it is invalid.
fn decode(reply: Value, key: &StateKey<'_>) -> Option<(Micros, State, Option<Reservation>)> {
    let Value::Array(parts) = reply else { return None };
    let mut parts = parts.into_iter();
    let now = parse_time(&parts.next()?)?;
    let mut value = |is_asked: bool| match is_asked {
        true => redis::from_redis_value::<Option<Vec<u8>>>(parts.next()?).ok(),
        false => Some(None),
    };
    let codec = PlanCodec(key.plan);
    let text = value(!codec.has_only_holds())?;
    let holds = value(key.plan.hold_id().is_some())?;
    let state = codec.read_stored(text.as_deref(), holds.as_deref(), now)?;
    let reservation = match value(key.id.is_some())? {
        Some(record) => Some(read_record(&record)?).filter(|reservation| reservation.is_live(now)),
        None => None,
    };
    Some((now, state, reservation))
}

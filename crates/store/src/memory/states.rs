//! Reads, resets and grants hits of a single key in the memory store, under the lock of its shard.

use std::time::Duration;

use super::MemoryStore;
use crate::charge::Batch;
use crate::error::StoreError;
use crate::states::{Grant, StateKey, States};
use weir_common::clock::Clock;
use weir_limit::{KeyState, Micros, Packed, State};

impl<C: Clock> MemoryStore<C> {
    /// Reads a key's state, and counts the hits of the last `spans`. The lock is held for as long as a charge holds it,
    /// and to copy the state without its log.
    pub(crate) fn read_now(&self, key: StateKey<'_>, spans: &[Micros]) -> KeyState {
        let (now, charge) = (self.clock.now(), key.charge());
        let reservation = charge.hold.and_then(|_| self.reservation_now(&charge));
        let fingerprint = self.fingerprints.of(&charge);
        let mut shard = self.shards[self.shard_of(&fingerprint)].0.lock();
        let counts = if self.packs(key.plan) {
            let state = key.plan.unpack(shard.copy::<Packed>(&fingerprint.print), now);
            key.plan.inspect(&state, now, spans)
        } else {
            let state = shard.get::<Box<State>>(&fingerprint.print).map(Box::as_ref);
            key.plan.inspect(state.unwrap_or(&State::default()), now, spans)
        };
        KeyState { reservation, ..counts }
    }

    /// Deletes a key's state, and keeps when, for what was reserved before.
    pub(crate) fn reset_now(&self, key: StateKey<'_>) {
        let charge = key.charge();
        let fingerprint = self.fingerprints.of(&charge);
        let can_reserve = key.plan.can_reserve().then(|| self.fingerprints.of_reset(&fingerprint));
        let reset = can_reserve.and_then(|print| self.reservations.reset(print, self.now()));
        let mut shard = self.shards[self.shard_of(&fingerprint)].0.lock();
        if self.packs(key.plan) {
            shard.delete::<Packed>(&fingerprint.print);
        } else {
            shard.delete::<Box<State>>(&fingerprint.print);
        }
        // Its lock is held until here.
        if let Some((_lock, changed)) = reset {
            shard.list_reservation(&fingerprint.print, changed);
        }
    }

    /// Charges a key, and a copy of its state to find what undoes it.
    pub(crate) fn grant_now(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let charge = batch.charges.first().ok_or(StoreError::Unavailable)?;
        let (now, fingerprint) = (self.now(), self.fingerprints.of(charge));
        let print = &fingerprint.print;
        let mut shard = self.shards[self.shard_of(&fingerprint)].0.lock();
        let mut copy = match self.packs(charge.plan) {
            true => charge.plan.unpack(shard.copy::<Packed>(print), now.micros),
            false => *shard.copy::<Box<State>>(print),
        };
        let decision = self.charge_shard(&mut shard, print, charge, now);
        drop(shard);
        // The copy may have expired, which matters only to a limit without windows: nothing undoes its hits.
        Ok(Grant { decision, ..Grant::charge(charge.plan, &mut copy, now.micros, charge.op) })
    }
}

impl<C: Clock> States for MemoryStore<C> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        _timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        Ok(self.read_now(key, spans))
    }

    async fn reset(&self, key: StateKey<'_>, _timeout: Duration) -> Result<(), StoreError> {
        self.reset_now(key);
        Ok(())
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        self.grant_now(batch)
    }
}

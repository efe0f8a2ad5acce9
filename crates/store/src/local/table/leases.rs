//! The life of leases beside the requests that they serve: from the first hits that are asked for to their return.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{LocalTable, Shard};
use crate::charge::Charge;
use crate::local::hot_keys::{HOT, Recent};
use crate::local::lease::{DueCharge, DueCharges, Lease, LeaseOp, LeasedKey, StateCopy, StoreTime};
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Micros, State, Undo};

/// The interval of returning leases that ended at least as long ago. Younger ones may still be returned with a grant.
pub(in crate::local) const SWEEP_INTERVAL: Micros = 50_000;

/// The most bytes that leases take, about. Each takes 512 at least, so there are never more than 32 768.
const MAX_BYTES: usize = 16 << 20;

impl LocalTable {
    /// Returns a lease of a hot key, counted; none if there is no room, or nothing more is leased.
    pub(super) fn lease(&self, charge: &Charge<'_>, recent: Recent) -> Option<Lease> {
        let leased = Arc::new(LeasedKey::new(charge, self.bucket(charge)));
        let full = self.bytes.load(Ordering::Relaxed).saturating_add(leased.bytes) > MAX_BYTES;
        if full || self.draining.load(Ordering::Relaxed) {
            return None;
        }
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.filter[leased.bucket].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(leased.bytes, Ordering::Relaxed);
        Some(Lease::new(leased, charge.plan.clone(), recent))
    }

    /// Asks for more of a lease, if it is time; what has ended is returned in the same round trip.
    pub(super) fn ask(
        &self,
        key: &Fingerprint,
        lease: &mut Lease,
        now: Micros,
        charges: &mut DueCharges,
    ) {
        if self.draining.load(Ordering::Relaxed) {
            return;
        }
        if let Some(hits) = lease.ask(now, self.length) {
            let ended = lease.end_parts(now);
            charges.extend(self.returning(key, lease, ended, now));
            charges.push(self.due(key, lease, LeaseOp::Ask(hits), now));
        }
    }

    pub(super) fn returning(
        &self,
        key: &Fingerprint,
        lease: &mut Lease,
        undos: Vec<Undo>,
        now: Micros,
    ) -> DueCharges {
        undos.into_iter().map(|undo| self.due(key, lease, LeaseOp::Return(undo), now)).collect()
    }

    /// Returns a charge that a lease is due to make, and counts it as in flight.
    fn due(&self, key: &Fingerprint, lease: &mut Lease, op: LeaseOp, now: Micros) -> DueCharge {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        lease.flights.start(now);
        DueCharge { key: *key, leased: lease.key.clone(), plan: lease.plan.clone(), op }
    }

    /// Adds what the store granted. Returns the charges that return hits which nobody will use.
    pub fn granted(
        &self,
        asked: &DueCharge,
        state: State,
        undos: &[Undo],
        at: StoreTime,
    ) -> DueCharges {
        let shard = &mut *self.shard(&asked.key).lock();
        let now = self.now();
        // It is there while charges of it are in flight.
        let Some(lease) = shard.leases.get_mut(&asked.key.print) else { return DueCharges::new() };
        let is_wanted =
            Arc::ptr_eq(&lease.plan, &asked.plan) && !self.draining.load(Ordering::Relaxed);
        let mut is_used = false;
        let unused = match undos {
            _ if lease.is_reset => {
                let lost = undos.iter().map(|undo| u64::from(undo.hits)).sum();
                self.counts.lost.fetch_add(lost, Ordering::Relaxed);
                Vec::new()
            }
            [undo] if is_wanted => {
                let late = lease.add(StateCopy { state, at }, *undo, now, self.length);
                is_used = late.is_none();
                late.into_iter().collect()
            }
            // Several: the clock has stepped back behind the window of some limit. That is not worth it.
            unused => unused.to_vec(),
        };
        self.counts.grants.fetch_add(1, Ordering::Relaxed);
        let returned = self.returning(&asked.key, lease, unused, now);
        if is_used {
            shard.denials.refund(&asked.key, now);
        }
        self.settle(shard, asked, is_used, now);
        returned
    }

    /// Notes that a charge returned hits, or had no effect: hits that it asked for are not granted.
    pub fn answered(&self, due: &DueCharge) {
        let mut shard = self.shard(&due.key).lock();
        let now = self.now();
        self.settle(&mut shard, due, false, now);
    }

    /// Ends the flight of a charge; removes the lease if it is over. A key whose grant is not used is asked for again
    /// when it has been hot again.
    fn settle(&self, shard: &mut Shard, due: &DueCharge, is_used: bool, now: Micros) {
        let Some(lease) = shard.leases.get_mut(&due.key.print) else { return };
        if due.asks() && !is_used {
            lease.recent = Recent::default();
        }
        lease.flights.end(now, self.length);
        lease.is_reset &= !lease.flights.is_empty();
        if self.is_over(lease, now) {
            self.remove(shard, &due.key);
        }
    }

    fn is_over(&self, lease: &Lease, now: Micros) -> bool {
        let is_hot = || lease.recent.within(now, self.length).requests >= HOT;
        lease.is_idle() && (self.draining.load(Ordering::Relaxed) || !is_hot())
    }

    /// Forgets the denials of a key that is reset, and ends its lease: hits left or granted meanwhile are not returned.
    pub fn reset(&self, charge: &Charge<'_>) {
        let key = self.fingerprints.of(charge);
        let mut shard = self.shard(&key).lock();
        shard.denials.refund(&key, self.now());
        let Some(lease) = shard.leases.get_mut(&key.print) else { return };
        let lost = lease.end().iter().map(|undo| u64::from(undo.hits)).sum();
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        lease.is_reset = !lease.flights.is_empty();
        if !lease.is_reset {
            self.remove(&mut shard, &key);
        }
    }

    /// Returns the hits that are left of a key, and for how long.
    pub fn left(&self, charge: &Charge<'_>) -> Option<(u64, Micros)> {
        let key = self.may_lease(charge).then(|| self.fingerprints.of(charge))?;
        let mut shard = self.shard(&key).lock();
        let now = self.now();
        shard.leases.get_mut(&key.print).map(|lease| lease.left(now)).filter(|(left, _)| *left > 0)
    }

    fn remove(&self, shard: &mut Shard, key: &Fingerprint) {
        if let Some(lease) = shard.leases.remove(&key.print) {
            self.leases.fetch_sub(1, Ordering::Relaxed);
            self.filter[lease.key.bucket].fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(lease.key.bytes, Ordering::Relaxed);
        }
    }

    /// Ends what has ended, or everything once nothing more is leased. Returns the charges that return what is left.
    pub fn sweep(&self) -> DueCharges {
        let mut charges = Vec::new();
        if self.leases() == 0 {
            return charges;
        }
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock();
            let (now, draining) = (self.now(), self.draining.load(Ordering::Relaxed));
            let mut over = Vec::new();
            for (print, lease) in &mut shard.leases {
                // The number of the shard is all that is needed of the rest of the key.
                let key = Fingerprint { shard: number as u32, print: *print };
                let returned = match draining {
                    true => lease.end(),
                    false => lease.end_parts(now.saturating_sub(SWEEP_INTERVAL)),
                };
                charges.extend(self.returning(&key, lease, returned, now));
                if self.is_over(lease, now) {
                    over.push(key);
                }
            }
            over.iter().for_each(|key| self.remove(&mut shard, key));
        }
        charges
    }

    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

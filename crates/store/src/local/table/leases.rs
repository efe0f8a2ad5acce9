//! Starts leases (hits charged in Redis ahead of requests) of hot keys, asks for more hits, and returns unused ones.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{LeaseCharge, LocalShard, LocalTable};
use crate::charge::Charge;
use crate::local::hot_keys::{HOT, Recent};
use crate::local::lease::{Lease, LeasedKey, StateCopy};
use crate::memory::fingerprint::Fingerprint;
use weir_limit::{Micros, Op, Undo, UpTo};

/// How often leases that ended at least as long ago are returned. Younger ones may be returned with a charge that asks.
pub(in crate::local) const SWEEP_INTERVAL: Micros = 50_000;

/// The most bytes that leases take, about. Each takes 512 at least, so there are never more than 32 768.
const MAX_BYTES: usize = 16 << 20;

/// A lease asks for at most one eighth (1 / `SHARE`) of the hits that the limits have left.
const SHARE: NonZeroU32 = NonZeroU32::MIN.saturating_add(7);

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
        self: &Arc<Self>,
        key: &Fingerprint,
        lease: &mut Lease,
        now: Micros,
        due: &mut Vec<Arc<LeaseCharge>>,
    ) {
        if self.draining.load(Ordering::Relaxed) {
            return;
        }
        if let Some(most) = lease.ask(now, self.length) {
            let ended = lease.end_parts(now);
            self.return_hits(key, lease, ended, now, due);
            let ask = Op::UpTo(UpTo { least: 0, most, share: SHARE });
            due.push(LeaseCharge::new(self, key, lease, ask, now));
        }
    }

    pub(super) fn return_hits(
        self: &Arc<Self>,
        key: &Fingerprint,
        lease: &mut Lease,
        undos: Vec<Undo>,
        now: Micros,
        due: &mut Vec<Arc<LeaseCharge>>,
    ) {
        let charge = |undo| LeaseCharge::new(self, key, lease, Op::Undo(undo), now);
        due.extend(undos.into_iter().map(charge));
    }

    /// Ends the flight of a charge: adds the grant that `undos` undo, and removes the lease if it is over. A charge that
    /// returned hits, was granted none or is lost has no undos. Returns the charges that return what nobody will use.
    pub(super) fn settle(
        self: &Arc<Self>,
        charge: &LeaseCharge,
        before: StateCopy,
        undos: &[Undo],
    ) -> Vec<Arc<LeaseCharge>> {
        let mut due = Vec::new();
        let shard = &mut *self.shard(&charge.key).lock();
        let now = self.now();
        // It is there while charges of it are in flight.
        let Some(lease) = shard.leases.get_mut(&charge.key.print) else { return due };
        let is_wanted =
            Arc::ptr_eq(&lease.plan, &charge.plan) && !self.draining.load(Ordering::Relaxed);
        let mut is_used = false;
        let unused = match undos {
            _ if lease.is_reset => {
                let lost = undos.iter().map(|undo| u64::from(undo.hits)).sum();
                self.counts.lost.fetch_add(lost, Ordering::Relaxed);
                Vec::new()
            }
            [undo] if is_wanted => {
                let late = lease.add(before, *undo, now, self.length);
                is_used = late.is_none();
                late.into_iter().collect()
            }
            // Several: the clock has stepped back behind the window of some limit. That is not worth it.
            unused => unused.to_vec(),
        };
        self.counts.grants.fetch_add(u64::from(!undos.is_empty()), Ordering::Relaxed);
        self.return_hits(&charge.key, lease, unused, now, &mut due);
        if is_used {
            shard.denials.refund(&charge.key, now);
        } else if charge.asks() {
            // Not asked for again before the key has been hot again.
            lease.recent = Recent::default();
        }
        lease.flights.end(now, self.length);
        lease.is_reset &= !lease.flights.is_empty();
        if self.is_over(lease, now) {
            self.remove(shard, &charge.key);
        }
        due
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

    fn remove(&self, shard: &mut LocalShard, key: &Fingerprint) {
        if let Some(lease) = shard.leases.remove(&key.print) {
            self.leases.fetch_sub(1, Ordering::Relaxed);
            self.filter[lease.key.bucket].fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(lease.key.bytes, Ordering::Relaxed);
        }
    }

    /// Ends what has ended, or everything once nothing more is leased. Returns the charges that return what is left.
    pub fn sweep(self: &Arc<Self>) -> Vec<Arc<LeaseCharge>> {
        let mut due = Vec::new();
        if self.leases() == 0 {
            return due;
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
                self.return_hits(&key, lease, returned, now, &mut due);
                if self.is_over(lease, now) {
                    over.push(key);
                }
            }
            over.iter().for_each(|key| self.remove(&mut shard, key));
        }
        due
    }

    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

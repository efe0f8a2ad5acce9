//! What is known here of keys: the hits that are leased of them, and their denials.

mod learn;
mod look_up;

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

pub(super) use self::look_up::{Unserved, Waits};
use super::LocalOptions;
use super::denials::{Denials, WAYS};
use super::due::{DueCharge, DueCharges, LeaseOp};
use super::hot_keys::{HotKeys, Recent};
use super::lease::{Granted, Lease, StoreTime};
use crate::memory::fingerprint::{Fingerprint, Fingerprints, Print};
use crate::{Batch, Charge};
use weir_common::clock::Monotonic;
use weir_limit::{Micros, Op, State, Undo};

/// The parts of the table, each with its own lock.
const SHARDS: usize = 64;

/// The counts of the filter.
const BUCKETS: usize = 1 << 12;

/// The interval of returning leases that ended at least as long ago. Younger ones may still be returned with a grant.
pub(super) const SWEEP_INTERVAL: Micros = 50_000;

/// The most bytes that leases take, about. Each takes 512 at least, so there are never more than 32 768.
const MAX_BYTES: usize = 16 << 20;

/// The leases and the denials of all keys.
pub(super) struct LocalTable {
    fingerprints: Fingerprints,
    shards: Box<[Mutex<Shard>]>,
    clock: Box<dyn Monotonic>,
    /// How long denials are repeated at most.
    deny_for: Micros,
    /// No denial holds at this instant or later.
    denied_until: AtomicU64,
    /// How long hits are leased.
    length: Micros,
    /// A filter: the number of leases by a hash of their keys that costs little. Where it is 0, a key has none.
    filter: Box<[AtomicU16]>,
    hasher: DefaultHashBuilder,
    leases: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether nothing more is leased, because the process is about to stop, or leases are off.
    draining: AtomicBool,
    pub counts: LeaseCounts,
    /// Charges that have no answer yet. Dropping one locks its shard: never send or drop one under the lock of a shard.
    pub in_flight: AtomicUsize,
}

/// What is known of some keys. While hits of a key are left of its lease, it has no denials.
struct Shard {
    denials: Denials,
    hot_keys: HotKeys,
    leases: HashMap<Print, Lease>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    pub grants: AtomicU64,
    pub served: AtomicU64,
    pub returned: AtomicU64,
    pub lost: AtomicU64,
}

/// A batch that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Micros,
    /// Whether it is charged together.
    together: bool,
    /// Whether the store charges all of it but what leases serve, whatever is denied.
    whole: bool,
}

/// Returns the hits that are taken, 0 for a look; none for any other operation, which the store makes.
fn plain_hits(op: Op) -> Option<u64> {
    match op {
        Op::Take(hits) => Some(hits),
        Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => None,
    }
}

fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

impl Sent {
    pub fn new(batch: &Batch<'_>, at: Micros) -> Sent {
        let whole = batch.together || batch.charges.iter().any(|charge| charge.op.returns_hits());
        Sent { at, together: batch.together, whole }
    }
}

impl LocalTable {
    pub fn new(clock: Box<dyn Monotonic>, options: &LocalOptions) -> LocalTable {
        let (deny_for, length) = (micros(options.deny_locally_for), micros(options.leases_for));
        let sets = match deny_for {
            0 => 0,
            _ => 1 << (options.max_denials / WAYS / SHARDS).max(1).ilog2(),
        };
        let shard = |_| {
            let (denials, hot_keys, leases) =
                (Denials::new(sets), Default::default(), HashMap::new());
            Mutex::new(Shard { denials, hot_keys, leases })
        };
        LocalTable {
            fingerprints: Fingerprints::new(),
            shards: (0..SHARDS).map(shard).collect(),
            clock,
            deny_for,
            denied_until: AtomicU64::new(0),
            length,
            filter: (0..BUCKETS).map(|_| AtomicU16::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            leases: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            draining: AtomicBool::new(length == 0),
            counts: LeaseCounts::default(),
            in_flight: AtomicUsize::new(0),
        }
    }

    /// Whether nothing is ever known.
    pub fn is_off(&self) -> bool {
        self.deny_for == 0 && self.length == 0
    }

    pub fn now(&self) -> Micros {
        self.clock.monotonic()
    }

    /// The number of keys that are leased, or are about to be.
    pub fn leases(&self) -> usize {
        self.leases.load(Ordering::Relaxed)
    }

    /// Whether any denial may hold at `now`.
    fn any_denials(&self, now: Micros) -> bool {
        now < self.denied_until.load(Ordering::Relaxed)
    }

    /// Returns the place of a key in the filter.
    fn bucket(&self, charge: &Charge<'_>) -> usize {
        // The high bits of this hash are the better ones.
        (self.hasher.hash_one(charge.key.entries.last()) >> 32) as usize % BUCKETS
    }

    /// Whether hits of the key of a charge may be leased; if not, it is sure that none are.
    fn may_lease(&self, charge: &Charge<'_>) -> bool {
        self.leases() > 0
            && charge.plan.can_lease()
            && self.filter[self.bucket(charge)].load(Ordering::Relaxed) > 0
    }

    /// Whether a charge is of one of these keys, of which hits are leased.
    pub fn is_of(&self, charge: &Charge<'_>, keys: &[Fingerprint]) -> bool {
        charge.plan.can_lease() && keys.contains(&self.fingerprints.of(charge))
    }

    fn shard(&self, key: &Fingerprint) -> &Mutex<Shard> {
        &self.shards[key.shard as usize % SHARDS]
    }

    /// Asks for more of a lease, if it is time; what has ended is returned in the same round trip.
    fn ask(&self, key: &Fingerprint, lease: &mut Lease, now: Micros, charges: &mut DueCharges) {
        if self.draining.load(Ordering::Relaxed) {
            return;
        }
        if let Some(hits) = lease.ask(now, self.length) {
            let ended = lease.end_parts(now);
            charges.extend(self.returning(key, lease, ended, now));
            charges.push(self.due(key, lease, LeaseOp::Ask(hits), now));
        }
    }

    fn returning(
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

    /// Adds what the store granted: the state before, and what undoes the grant. Returns the charges that return hits
    /// which nobody will use.
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
                let late = lease.add(Granted { state, undo: *undo, at }, now, self.length);
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

    /// Whether a lease has no hits left, nothing is in flight, and no more will be asked for.
    fn is_over(&self, lease: &Lease, now: Micros) -> bool {
        let is_hot = || lease.is_hot(now, self.length);
        lease.is_idle() && (self.draining.load(Ordering::Relaxed) || !is_hot())
    }

    /// Forgets the denials of a key whose state is reset, and ends its lease: what is left, and what is granted
    /// meanwhile, is not returned.
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

    /// Forgets all denials.
    pub fn forget_denials(&self) {
        let now = self.now();
        self.shards.iter().for_each(|shard| shard.lock().denials.clear(now));
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

    /// Leases nothing more.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn max_denials(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().denials.max()).sum()
    }

    #[cfg(test)]
    pub fn denials(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().denials.len()).sum()
    }
}

impl fmt::Debug for LocalTable {
    /// Omits the keys and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTable").field("leases", &self.leases()).finish_non_exhaustive()
    }
}

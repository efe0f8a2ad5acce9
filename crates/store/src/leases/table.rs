//! The leases of a process, by key.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::due::{DueCharge, DueCharges, LeaseOp};
use super::hot_keys::HotKeys;
use super::key::LeasedKey;
use super::lease::{Granted, Lease, StoreTime};
use super::recent::Recent;
use crate::Charge;
use crate::memory::fingerprint::{Fingerprint, Fingerprints, Print};
use weir_common::clock::Monotonic;
use weir_limit::{Decision, Micros, Op, State, Undo};

/// The parts of the table, each with its own lock.
const SHARDS: usize = 64;

/// The counts of the filter.
const BUCKETS: usize = 1 << 12;

/// The interval of returning leases that ended at least as long ago. Younger ones may still be returned with a grant.
pub(super) const SWEEP_INTERVAL: Micros = 50_000;

/// The most bytes that leases take, about. Each takes 512 at least, so there are never more than 32 768.
const MAX_BYTES: usize = 16 << 20;

/// Called with a charge of each key that hits were granted of.
pub(super) type OnGrant = Box<dyn Fn(&Charge<'_>) + Send + Sync>;

/// The leases of all keys.
pub(super) struct LeaseTable {
    fingerprints: Fingerprints,
    /// A filter: the number of leases by a hash of their keys that costs little. Where it is 0, a key has none.
    filter: Box<[AtomicU16]>,
    hasher: DefaultHashBuilder,
    shards: Box<[Mutex<Shard>]>,
    clock: Box<dyn Monotonic>,
    /// How long hits are leased.
    length: Micros,
    leases: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether nothing more is leased, because the process is about to stop, or leases are off.
    draining: AtomicBool,
    pub counts: LeaseCounts,
    /// Charges that have no answer yet. They may be dropped anywhere, and then lock a shard: nothing is sent or dropped
    /// under the lock of one.
    pub in_flight: AtomicUsize,
    pub on_grant: OnceLock<OnGrant>,
}

#[derive(Debug, Default)]
struct Shard {
    hot_keys: HotKeys,
    leases: HashMap<Print, Lease>,
}

/// What a charge that the store decides has to do first.
pub(super) enum Way {
    /// Send these charges.
    Free(DueCharges),
    /// Wait: charges of the lease are in flight, and it is not known which ones the store has made.
    Awaited(oneshot::Receiver<()>),
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    pub grants: AtomicU64,
    pub served: AtomicU64,
    pub returned: AtomicU64,
    pub lost: AtomicU64,
}

/// Returns the hits that are taken, 0 for a look; none for any other operation, which the store makes.
pub(super) fn plain_hits(op: Op) -> Option<u64> {
    match op {
        Op::Take(hits) => Some(hits),
        Op::UpTo(_) | Op::Add { .. } | Op::Refund(_) | Op::Undo(_) | Op::Reservation(_) => None,
    }
}

impl LeaseTable {
    pub fn new(clock: Box<dyn Monotonic>, length: Micros) -> LeaseTable {
        LeaseTable {
            fingerprints: Fingerprints::new(),
            filter: (0..BUCKETS).map(|_| AtomicU16::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clock,
            length,
            leases: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            draining: AtomicBool::new(length == 0),
            counts: LeaseCounts::default(),
            in_flight: AtomicUsize::new(0),
            on_grant: OnceLock::new(),
        }
    }

    pub fn now(&self) -> Micros {
        self.clock.monotonic()
    }

    /// The number of keys that are leased, or are about to be.
    pub fn len(&self) -> usize {
        self.leases.load(Ordering::Relaxed)
    }

    /// Returns the key of a charge, if hits of it can be leased.
    pub fn key(&self, charge: &Charge<'_>) -> Option<Fingerprint> {
        (charge.plan.can_lease() && self.length > 0).then(|| self.fingerprints.of(charge))
    }

    /// Returns the place of a key in the filter.
    fn bucket(&self, charge: &Charge<'_>) -> usize {
        // The high bits of this hash are the better ones.
        (self.hasher.hash_one(charge.key.entries.last()) >> 32) as usize % BUCKETS
    }

    /// Whether hits of the key of a charge may be leased; if not, it is sure that none are.
    pub fn may_lease(&self, charge: &Charge<'_>) -> bool {
        self.len() > 0 && self.filter[self.bucket(charge)].load(Ordering::Relaxed) > 0
    }

    fn shard(&self, key: &Fingerprint) -> &Mutex<Shard> {
        &self.shards[key.shard as usize % SHARDS]
    }

    /// Decides a charge by the lease of its key; none if the store is to decide. Adds what is to be charged.
    pub fn serve(
        &self,
        key: &Fingerprint,
        charge: &Charge<'_>,
        charges: &mut DueCharges,
    ) -> Option<Decision> {
        let mut shard = self.shard(key).lock();
        let lease = shard.leases.get_mut(&key.print)?;
        // Read for each charge, and under the lock: a thread that waited for it may have slept.
        let now = self.now();
        let hits = plain_hits(charge.op).filter(|_| Arc::ptr_eq(&lease.plan, charge.plan))?;
        let decision = lease.serve(hits, now)?;
        if hits > 0 {
            self.counts.served.fetch_add(hits, Ordering::Relaxed);
            lease.recent.add(hits, now, self.length);
            self.ask(key, lease, now, charges);
        }
        Some(decision)
    }

    /// Makes way for a charge that the store decides: ends the lease of its key.
    pub fn make_way(&self, key: &Fingerprint, charge: &Charge<'_>, may_wait: bool) -> Way {
        let mut shard = self.shard(key).lock();
        let Some(lease) = shard.leases.get_mut(&key.print) else {
            return Way::Free(DueCharges::new());
        };
        let now = self.now();
        if may_wait && let Some(answered) = lease.flights.wait(now, self.length) {
            return Way::Awaited(answered);
        }
        let returned = lease.end();
        let returned = self.returning(key, lease, returned, now);
        if !Arc::ptr_eq(&lease.plan, charge.plan) {
            (lease.plan, lease.recent) = (charge.plan.clone(), Recent::default());
        }
        Way::Free(returned)
    }

    /// Counts hits that the store admitted. Returns what asks for more, if the key is hot.
    pub fn admitted(&self, key: &Fingerprint, charge: &Charge<'_>, hits: u64) -> DueCharges {
        let mut charges = DueCharges::new();
        let mut shard = self.shard(key).lock();
        let now = self.now();
        if let Some(lease) = shard.leases.get_mut(&key.print) {
            lease.recent.add(hits, now, self.length);
            if Arc::ptr_eq(&lease.plan, charge.plan) {
                self.ask(key, lease, now, &mut charges);
            }
            return charges;
        }
        let Some(recent) = shard.hot_keys.add(&key.print, hits, now, self.length) else {
            return charges;
        };
        let leased = Arc::new(LeasedKey::new(charge, self.bucket(charge)));
        let full = self.bytes.load(Ordering::Relaxed).saturating_add(leased.bytes) > MAX_BYTES;
        if !full && !self.draining.load(Ordering::Relaxed) {
            self.leases.fetch_add(1, Ordering::Relaxed);
            self.filter[leased.bucket].fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(leased.bytes, Ordering::Relaxed);
            let mut lease = Lease::new(leased, charge.plan.clone(), recent);
            self.ask(key, &mut lease, now, &mut charges);
            shard.leases.insert(key.print, lease);
        }
        charges
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
        let mut shard = self.shard(&asked.key).lock();
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
        self.settle(&mut shard, asked, is_used, now);
        drop(shard);
        if is_used && let Some(on_grant) = self.on_grant.get() {
            asked.leased.charge(&asked.plan, Op::Take(1), |charge| on_grant(charge));
        }
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

    /// Ends the lease of a key whose state is reset: what is left, and what is granted meanwhile, is not returned.
    pub fn forget(&self, key: &Fingerprint) {
        let mut shard = self.shard(key).lock();
        let Some(lease) = shard.leases.get_mut(&key.print) else { return };
        let lost = lease.end().iter().map(|undo| u64::from(undo.hits)).sum();
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        lease.is_reset = !lease.flights.is_empty();
        if !lease.is_reset {
            self.remove(&mut shard, key);
        }
    }

    /// Returns the hits that are left of a key, and for how long.
    pub fn left(&self, key: &Fingerprint) -> Option<(u64, Micros)> {
        let mut shard = self.shard(key).lock();
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
        if self.len() == 0 {
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
}

impl fmt::Debug for LeaseTable {
    /// Omits the keys and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = self.leases.load(Ordering::Relaxed);
        f.debug_struct("LeaseTable").field("leases", &leases).finish_non_exhaustive()
    }
}

//! The leases of a process, by key.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::due::{DueCharge, DueCharges, LeaseOp};
use super::hot_keys::HotKeys;
use super::key::LeasedKey;
use super::lease::{Granted, Lease};
use crate::Charge;
use crate::memory::fingerprint::{Fingerprint, Fingerprints, Print};
use weir_common::clock::Monotonic;
use weir_limit::{Decision, Micros, Op, Plan, Undo};

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

    /// Decides a charge by the lease of its key; none if the store is to decide. Adds what is to be charged: before
    /// the charge, if the store decides.
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
        let same_plan = Arc::ptr_eq(&lease.plan, charge.plan);
        let hits = plain_hits(charge.op).filter(|_| same_plan);
        if let Some((hits, decision)) = hits.and_then(|hits| Some((hits, lease.serve(hits, now)?)))
        {
            if hits > 0 {
                self.counts.served.fetch_add(hits, Ordering::Relaxed);
                lease.recent.add(hits, now, self.length);
                self.ask(key, lease, now, charges);
            }
            return Some(decision);
        }
        let returned = lease.end();
        charges.extend(self.returning(key, lease, returned));
        if !same_plan {
            self.remove(&mut shard, key);
        }
        None
    }

    /// Ends the lease of a key. Returns the charges that return what is left.
    pub fn end(&self, key: &Fingerprint) -> DueCharges {
        let mut shard = self.shard(key).lock();
        let Some(lease) = shard.leases.get_mut(&key.print) else { return DueCharges::new() };
        let returned = lease.end();
        self.returning(key, lease, returned).collect()
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
            charges.extend(self.returning(key, lease, ended));
            charges.push(self.due(key, &lease.key, &lease.plan, LeaseOp::Ask(hits)));
        }
    }

    fn returning(
        &self,
        key: &Fingerprint,
        lease: &Lease,
        undos: Vec<Undo>,
    ) -> impl Iterator<Item = DueCharge> {
        undos
            .into_iter()
            .map(move |undo| self.due(key, &lease.key, &lease.plan, LeaseOp::Return(undo)))
    }

    /// Returns a charge that a lease is due to make, and counts it as in flight.
    pub fn due(
        &self,
        key: &Fingerprint,
        leased: &Arc<LeasedKey>,
        plan: &Arc<Plan>,
        op: LeaseOp,
    ) -> DueCharge {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        DueCharge { key: *key, leased: leased.clone(), plan: plan.clone(), op }
    }

    /// Adds what the store granted. Returns the undos of hits that nobody will use.
    pub fn granted(&self, asked: &DueCharge, granted: Granted) -> Vec<Undo> {
        self.counts.grants.fetch_add(1, Ordering::Relaxed);
        {
            let mut shard = self.shard(&asked.key).lock();
            let now = self.now();
            match shard.leases.get_mut(&asked.key.print) {
                Some(lease) if Arc::ptr_eq(&lease.key, &asked.leased) => {
                    lease.asked = false;
                    if lease.is_reset {
                        self.counts.lost.fetch_add(granted.undo.hits.into(), Ordering::Relaxed);
                        self.remove(&mut shard, &asked.key);
                        return Vec::new();
                    }
                    let mut returned: Vec<Undo> =
                        lease.add(granted, now, self.length).into_iter().collect();
                    if self.draining.load(Ordering::Relaxed) {
                        returned.append(&mut lease.end());
                    }
                    if !returned.is_empty() {
                        return returned;
                    }
                }
                _ => return vec![granted.undo],
            }
        }
        if let Some(on_grant) = self.on_grant.get() {
            asked.leased.charge(&asked.plan, Op::Take(1), |charge| on_grant(charge));
        }
        Vec::new()
    }

    /// Notes that nothing was granted. The key is asked for again when it has been hot again.
    pub fn not_granted(&self, asked: &DueCharge) {
        let mut shard = self.shard(&asked.key).lock();
        let Some(lease) = shard.leases.get_mut(&asked.key.print) else { return };
        if Arc::ptr_eq(&lease.key, &asked.leased) {
            (lease.asked, lease.is_reset) = (false, false);
            lease.recent = Default::default();
            if lease.has_ended() {
                self.remove(&mut shard, &asked.key);
            }
        }
    }

    /// Ends the lease of a key whose state is reset: what is left, and what is granted meanwhile, is not returned.
    pub fn forget(&self, key: &Fingerprint) {
        let mut shard = self.shard(key).lock();
        let Some(lease) = shard.leases.get_mut(&key.print) else { return };
        let lost = lease.end().iter().map(|undo| u64::from(undo.hits)).sum();
        self.counts.lost.fetch_add(lost, Ordering::Relaxed);
        lease.is_reset = lease.asked;
        if !lease.asked {
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
                charges.extend(self.returning(&key, lease, returned));
                if lease.is_over(now, self.length) || draining && !lease.asked {
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

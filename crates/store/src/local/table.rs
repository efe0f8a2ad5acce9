//! What is known here of keys: the hits that are leased of them, and their denials.

pub(crate) mod lease_charge;
pub(super) mod leases;

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use self::lease_charge::LeaseCharge;
use super::denials::{DenialTimes, KnownDenials, WAYS};
use super::hot_keys::{HotKeys, Recent};
use super::lease::Lease;
use crate::charge::{Answer, Batch, Charge, plain_hits};
use crate::memory::fingerprint::{Fingerprint, Fingerprints, Print};
use weir_common::clock::Monotonic;
use weir_limit::{Decision, Micros, Source};

const SHARDS: usize = 64;

const FILTER_BUCKETS: usize = 1 << 12;

pub(super) struct LocalTable {
    fingerprints: Fingerprints,
    shards: Box<[Mutex<Shard>]>,
    clock: Box<dyn Monotonic>,
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
    /// The [`LeaseCharge`]s that are not dropped yet. Dropping one locks its shard: never send or drop one under the lock
    /// of a shard. They are made into a list that outlives the lock.
    pub in_flight: AtomicUsize,
}

/// What is known of some keys. While hits of a key are left of its lease, it has no denials.
struct Shard {
    denials: KnownDenials,
    hot_keys: HotKeys,
    leases: HashMap<Print, Lease>,
}

/// What is answered without the inner store. By default nothing is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalOptions {
    /// How long denials are repeated at most; zero: never.
    pub deny_locally_for: Duration,
    /// The denials that are kept, rounded down to a power of two, but at least 512.
    pub max_denials: usize,
    /// How long hits are leased; zero: never.
    pub leases_for: Duration,
}

#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    pub grants: AtomicU64,
    pub served: AtomicU64,
    pub returned: AtomicU64,
    pub lost: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Micros,
    together: bool,
    /// Whether the store charges all of the batch but what leases serve, whatever is denied.
    whole: bool,
}

impl Sent {
    pub fn new(batch: &Batch<'_>, at: Micros) -> Sent {
        let whole = batch.together || batch.charges.iter().any(|charge| charge.op.returns_hits());
        Sent { at, together: batch.together, whole }
    }
}

impl LocalTable {
    pub fn new(clock: Box<dyn Monotonic>, options: &LocalOptions) -> LocalTable {
        let micros = |time: Duration| Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX);
        let (deny_for, length) = (micros(options.deny_locally_for), micros(options.leases_for));
        let sets = match deny_for {
            0 => 0,
            _ => 1 << (options.max_denials / WAYS / SHARDS).max(1).ilog2(),
        };
        let shard = |_| {
            let (hot_keys, leases) = Default::default();
            Mutex::new(Shard { denials: KnownDenials::new(sets), hot_keys, leases })
        };
        LocalTable {
            fingerprints: Fingerprints::new(),
            shards: (0..SHARDS).map(shard).collect(),
            clock,
            deny_for,
            denied_until: AtomicU64::new(0),
            length,
            filter: (0..FILTER_BUCKETS).map(|_| AtomicU16::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            leases: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            draining: AtomicBool::new(length == 0),
            counts: LeaseCounts::default(),
            in_flight: AtomicUsize::new(0),
        }
    }

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

    fn any_denials(&self, now: Micros) -> bool {
        now < self.denied_until.load(Ordering::Relaxed)
    }

    fn bucket(&self, charge: &Charge<'_>) -> usize {
        // The high bits of this hash are the better ones.
        (self.hasher.hash_one(charge.key.entries.last()) >> 32) as usize % FILTER_BUCKETS
    }

    /// Whether hits of the key of a charge may be leased; if not, it is sure that none are.
    fn may_lease(&self, charge: &Charge<'_>) -> bool {
        self.leases() > 0
            && charge.plan.can_lease()
            && self.filter[self.bucket(charge)].load(Ordering::Relaxed) > 0
    }

    /// Whether a charge is of one of these leased keys.
    pub fn is_of(&self, charge: &Charge<'_>, keys: &[Fingerprint]) -> bool {
        charge.plan.can_lease() && keys.contains(&self.fingerprints.of(charge))
    }

    fn shard(&self, key: &Fingerprint) -> &Mutex<Shard> {
        &self.shards[key.shard as usize % SHARDS]
    }

    /// Looks up the charges of a batch; none if nothing can be known of them.
    pub fn look_up<'t>(
        self: &'t Arc<Self>,
        batch: &Batch<'_>,
        sent: Sent,
        unserved: Unserved,
    ) -> Option<LookUp<'t>> {
        let repeats = !sent.whole && unserved != Unserved::Ends && self.any_denials(sent.at);
        if !repeats && !batch.charges.iter().any(|charge| self.may_lease(charge)) {
            return None;
        }
        Some(LookUp {
            table: self,
            sent: sent.at,
            repeats,
            serves: !sent.together,
            unserved,
            charged: SmallVec::new(),
            waits: Waits::new(),
            due: Vec::new(),
        })
    }

    /// Learns from the store's answer to a charge. Returns what asks for hits of its key, if that is hot.
    pub fn learn(
        self: &Arc<Self>,
        charge: &Charge<'_>,
        answer: &Answer,
        sent: Sent,
    ) -> Vec<Arc<LeaseCharge>> {
        let mut due = Vec::new();
        let lesson = self.lesson(charge, answer, sent);
        let leases = self.length > 0 && !sent.together && charge.plan.can_lease();
        let admitted = if leases { admitted(charge, answer) } else { None };
        if lesson.is_none() && admitted.is_none() {
            return due;
        }
        let key = self.fingerprints.of(charge);
        let mut shard = self.shard(&key).lock();
        let now = self.now();
        match lesson {
            Some(Lesson::Denied { decision, until }) => {
                let times = DenialTimes { sent: sent.at, answered: now, until };
                shard.denials.put(&key, charge, decision, times);
                self.denied_until.fetch_max(until, Ordering::Relaxed);
            }
            Some(Lesson::Charged) => shard.denials.forget(&key),
            Some(Lesson::Refunded) => shard.denials.refund(&key, now),
            None => {}
        }
        let Some(hits) = admitted else { return due };
        if let Some(lease) = shard.leases.get_mut(&key.print) {
            lease.recent.add(hits, now, self.length);
            if Arc::ptr_eq(&lease.plan, charge.plan) {
                self.ask(&key, lease, now, &mut due);
            }
        } else if let Some(recent) = shard.hot_keys.add(&key.print, hits, now, self.length)
            && let Some(mut lease) = self.lease(charge, recent)
        {
            self.ask(&key, &mut lease, now, &mut due);
            shard.leases.insert(key.print, lease);
        }
        due
    }

    /// Returns what an answer says about denials of its key, if they are repeated.
    fn lesson<'a>(
        &self,
        charge: &Charge<'_>,
        answer: &'a Answer,
        sent: Sent,
    ) -> Option<Lesson<'a>> {
        if self.deny_for == 0 {
            return None;
        }
        let lesson = match answer {
            _ if charge.op.returns_hits() => Lesson::Refunded,
            Ok(decision) if !decision.allowed && charge.op.asks().is_some_and(|hits| hits > 0) => {
                let holds = charge.plan.denial_lasts(decision).min(self.deny_for);
                // In a batch that is charged as a whole, it may be due to hits of the same batch that were not charged
                // or were refunded.
                if sent.whole || decision.source != Source::Store || holds == 0 {
                    return None;
                }
                Lesson::Denied { decision, until: sent.at.saturating_add(holds) }
            }
            _ => {
                let takes = || charge.op.takes().is_some_and(|hits| hits > 0);
                let lasts = charge.plan.denial_covers_more_hits();
                if !self.any_denials(sent.at) || lasts || !takes() {
                    return None;
                }
                Lesson::Charged
            }
        };
        charge.plan.repeats_denials().then_some(lesson)
    }

    pub fn forget_denials(&self) {
        let now = self.now();
        self.shards.iter().for_each(|shard| shard.lock().denials.clear(now));
    }
}

impl fmt::Debug for LocalTable {
    /// Omits the keys and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTable").field("leases", &self.leases()).finish_non_exhaustive()
    }
}

/// Keys whose leases have charges in flight, and what completes once these have their answers.
pub(super) type Waits = SmallVec<[(Fingerprint, oneshot::Receiver<()>); 1]>;

/// What happens to a lease that does not serve a charge of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// The charge waits while others of the lease are in flight; otherwise the lease ends.
    Waits,
    Ends,
}

pub(super) struct LookUp<'t> {
    table: &'t Arc<LocalTable>,
    sent: Micros,
    repeats: bool,
    serves: bool,
    unserved: Unserved,
    /// Keys that are not known to be denied: what is charged may change the answers to later charges of them.
    charged: SmallVec<[Fingerprint; 4]>,
    pub waits: Waits,
    /// What leases have to charge first.
    pub due: Vec<Arc<LeaseCharge>>,
}

impl LookUp<'_> {
    /// Decides a charge by a denial or by the lease of its key; none if the store is to decide.
    pub fn decide(&mut self, charge: &Charge<'_>) -> Option<Decision> {
        let takes = || charge.op.takes().is_some_and(|hits| hits > 0);
        let repeats = self.repeats && takes() && charge.plan.repeats_denials();
        let may_lease = self.table.may_lease(charge);
        if !repeats && !may_lease {
            return None;
        }
        let key = self.table.fingerprints.of(charge);
        let mut shard = self.table.shard(&key).lock();
        if repeats && !self.charged.contains(&key) {
            let denial = shard.denials.get(&key, charge, self.sent);
            if denial.is_some() {
                return denial;
            }
            self.charged.push(key);
        }
        let lease = if may_lease { shard.leases.get_mut(&key.print) } else { None };
        lease.and_then(|lease| self.serve(&key, lease, charge))
    }

    /// Decides a charge by the lease of its key; if it cannot, makes way for the store.
    fn serve(
        &mut self,
        key: &Fingerprint,
        lease: &mut Lease,
        charge: &Charge<'_>,
    ) -> Option<Decision> {
        let table = self.table;
        // Read for each charge, and under the lock: a thread that waited for it may have slept.
        let now = table.now();
        let is_same_plan = Arc::ptr_eq(&lease.plan, charge.plan);
        let hits = plain_hits(charge.op).filter(|_| self.serves && is_same_plan);
        if let Some(hits) = hits
            && let Some(decision) = lease.serve(hits, now)
        {
            if hits > 0 {
                table.counts.served.fetch_add(hits, Ordering::Relaxed);
                lease.recent.add(hits, now, table.length);
                table.ask(key, lease, now, &mut self.due);
            }
            return Some(decision);
        }
        if self.unserved == Unserved::Waits
            && let Some(answered) = lease.flights.wait(now, table.length)
        {
            self.waits.push((*key, answered));
            return None;
        }
        let returned = lease.end();
        table.return_hits(key, lease, returned, now, &mut self.due);
        if !is_same_plan {
            (lease.plan, lease.recent) = (charge.plan.clone(), Recent::default());
        }
        None
    }
}

enum Lesson<'a> {
    /// It is denied, and stays so until then.
    Denied { decision: &'a Decision, until: Micros },
    /// It was charged, or may have been: the waits are longer now.
    Charged,
    /// Hits were refunded, or may have been.
    Refunded,
}

fn admitted(charge: &Charge<'_>, answer: &Answer) -> Option<u64> {
    let decision = answer.as_ref().ok()?;
    let is_by_store = decision.allowed && decision.source == Source::Store;
    plain_hits(charge.op).filter(|hits| is_by_store && *hits > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl LocalTable {
        pub fn max_denials(&self) -> usize {
            self.shards.iter().map(|shard| shard.lock().denials.max()).sum()
        }

        pub fn denials(&self) -> usize {
            self.shards.iter().map(|shard| shard.lock().denials.len()).sum()
        }
    }
}

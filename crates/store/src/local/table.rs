//! What this process remembers of keys, to answer without Redis: denials that still hold, and leases, which are hits
//! charged ahead of requests. [`look_up`] answers from them, [`leases`] asks for more hits and returns unused ones.

pub(super) mod leases;
pub(super) mod look_up;

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;

use super::denials::{DenialTimes, KnownDenials, WAYS};
use super::hot_keys::HotKeys;
use super::lease::{Lease, LeasedKey, StateCopy, StoreTime};
use crate::charge::{Answer, Batch, Charge};
use crate::memory::fingerprint::{Fingerprint, Fingerprints, Print};
use weir_common::clock::Monotonic;
use weir_limit::{Decision, Micros, Op, Plan, Source, State, Undo};

const SHARDS: usize = 64;

const FILTER_BUCKETS: usize = 1 << 12;

pub(super) struct LocalTable {
    fingerprints: Fingerprints,
    shards: Box<[Mutex<LocalShard>]>,
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
struct LocalShard {
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

/// When a batch was sent, and how it is charged.
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
            Mutex::new(LocalShard { denials: KnownDenials::new(sets), hot_keys, leases })
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

    /// Whether denials may answer charges of a batch.
    pub fn may_deny(&self, sent: Sent) -> bool {
        !sent.whole && self.any_denials(sent.at)
    }

    fn bucket(&self, charge: &Charge<'_>) -> usize {
        // The high bits of this hash are the better ones.
        (self.hasher.hash_one(charge.key.entries.last()) >> 32) as usize % FILTER_BUCKETS
    }

    /// Whether hits of the key of a charge may be leased; if not, it is sure that none are.
    pub fn may_lease(&self, charge: &Charge<'_>) -> bool {
        self.leases() > 0
            && charge.plan.can_lease()
            && self.filter[self.bucket(charge)].load(Ordering::Relaxed) > 0
    }

    /// Whether a charge is of one of these leased keys.
    pub fn is_of(&self, charge: &Charge<'_>, keys: &[Fingerprint]) -> bool {
        charge.plan.can_lease() && keys.contains(&self.fingerprints.of(charge))
    }

    fn shard(&self, key: &Fingerprint) -> &Mutex<LocalShard> {
        &self.shards[key.shard as usize % SHARDS]
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
            Ok(decision)
                if !decision.allowed
                    && (charge.op.asks().is_some_and(|hits| hits > 0) || decision.banned) =>
            {
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
        let is_ban = matches!(lesson, Lesson::Denied { decision, .. } if decision.banned);
        (is_ban || charge.plan.repeats_denials()).then_some(lesson)
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

/// A charge that asks for hits, or returns some. Made at most once, and answered once: if it is dropped without an
/// answer, the store has not made it, or its outcome is unknown. No request waits for it. It goes one way:
///
/// 1. The table makes it under the lock of its shard, and counts it as in flight.
/// 2. The store sends it.
/// 3. Its outcome goes to the table once: by the answer or, if there is none, when it is dropped.
/// 4. The caller that answered gets what the table makes then, and sends it over the same connection.
#[derive(Debug)]
pub struct LeaseCharge {
    table: Arc<LocalTable>,
    key: Fingerprint,
    leased: Arc<LeasedKey>,
    /// The plan of the key.
    pub plan: Arc<Plan>,
    /// The operation: it asks for hits, or returns some.
    pub op: Op,
    /// When the charge was sent for the first time; 0 before.
    sent: AtomicU64,
    answered: AtomicBool,
}

impl LeaseCharge {
    /// Makes a charge, in flight from now until it is dropped.
    fn new(
        table: &Arc<LocalTable>,
        key: &Fingerprint,
        lease: &mut Lease,
        op: Op,
        now: Micros,
    ) -> Arc<LeaseCharge> {
        table.in_flight.fetch_add(1, Ordering::Relaxed);
        lease.flights.start(now);
        let (table, leased, plan) = (table.clone(), lease.key.clone(), lease.plan.clone());
        let (sent, answered) = Default::default();
        Arc::new(LeaseCharge { table, key: *key, leased, plan, op, sent, answered })
    }

    /// Passes the charge, which borrows its key, to `then`.
    pub fn with_charge<T>(&self, then: impl FnOnce(&Charge<'_>) -> T) -> T {
        self.leased.charge(&self.plan, self.op, then)
    }

    /// Whether the charge asks for hits. It is sent behind others of its key, served as if nothing were leased.
    pub fn asks(&self) -> bool {
        matches!(self.op, Op::UpTo(_))
    }

    /// Notes that the charge is sent now. What it asks for is used only for a time from the first sending.
    pub fn set_sent(&self) {
        let now = self.table.now().max(1);
        let _ = self.sent.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes the answer of the store: the state before the charge, and what undoes it, if it asked; `now` is the time
    /// that the store charged at. Returns the charges that return what nobody will use.
    pub fn answer(&self, state: State, undos: &[Undo], now: Micros) -> Vec<Arc<LeaseCharge>> {
        self.answered.store(true, Ordering::Relaxed);
        if let Op::Undo(undo) = self.op {
            self.table.counts.returned.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        let at = StoreTime { sent: self.sent.load(Ordering::Relaxed), now };
        self.table.settle(self, StateCopy { state, at }, undos)
    }
}

impl Drop for LeaseCharge {
    fn drop(&mut self) {
        self.table.in_flight.fetch_sub(1, Ordering::Relaxed);
        if *self.answered.get_mut() {
            return;
        }
        if let Op::Undo(undo) = self.op {
            self.table.counts.lost.fetch_add(undo.hits.into(), Ordering::Relaxed);
        }
        self.table.settle(self, StateCopy::default(), &[]);
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

/// Returns the hits of a request that the store has admitted, if it takes some and does nothing else.
fn admitted(charge: &Charge<'_>, answer: &Answer) -> Option<u64> {
    match (charge.op, answer) {
        (Op::Take(hits @ 1..), Ok(Decision { allowed: true, source: Source::Store, .. })) => {
            Some(hits)
        }
        _ => None,
    }
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

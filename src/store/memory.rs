//! Counting in this process.

mod evictions;
pub(super) mod fingerprint;
mod shard;
mod sharding;
mod table;
#[cfg(test)]
mod tests;
mod together;

use std::fmt;
use std::future::{Future, ready};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use self::evictions::Evictions;
pub use self::shard::Evicted;
use self::{
    fingerprint::{Fingerprint, Fingerprints, Print},
    shard::Shard,
    table::Now,
};
use super::{Answers, Batch, Charge, Store};
use crate::clock::Clock;
use crate::limit::{Decision, Micros, Plan, SECOND, State, plan::Packed};

/// How far the clock may step back before keys expire early: slots count 136 years of seconds, and
/// half of them are for the time to come.
const EXPIRY_BEHIND: Micros = (1 << 31) * SECOND;

/// How many buckets of a table are swept under one lock.
const SWEEP_STRIDE: usize = 1024;

/// Keeps states in this process's memory; they are gone when it ends.
///
/// **Exact.** A key is decided and charged under a lock, and a batch charged together under the
/// locks of all its keys: of racing requests exactly as many are admitted as the limit allows.
/// [`try_charge`](Store::try_charge) charges every batch.
///
/// **Memory.** A key is kept as a fingerprint, not as text. With a state that packs (a lone
/// fixed window, for instance) it takes a slot of 28 bytes and a byte of index in tables that
/// are between 44 and 88 % full: 48 bytes on average, 54 to 57 as the system sees it. With
/// another state it takes a slot of 24 bytes and the state on the heap. Keys leave by themselves
/// once their state says no more than its absence would: when seen, when others come, and by
/// [`sweep`](Self::sweep).
///
/// **Bounded.** There are never more than `max_keys` keys. Each shard has its part of them and
/// drops a key when a newcomer finds it full, which begins somewhat before all are, as keys do
/// not spread evenly. Of a sample of eight, the one dropped has expired, else has used least of
/// its limit, else expires first; one at its limit goes only if all are and two dozen more. So a
/// flood of fresh keys replaces fresh keys, at a cost that does not grow with the table.
///
/// **Many small shards.** A shard holds one to three thousand keys and is held for as long as it
/// takes to charge one, to sweep some buckets or, rarely, to move its keys to a table of another
/// size: well below a millisecond.
///
/// **Fingerprints.** 88 bits in the slot, and the shard, of a keyed hash (SipHash-1-3) over the
/// whole key; its secret is drawn from the operating system for each store. Two keys may share
/// one and would then count as one. With ten million keys kept, a new key meets another's with
/// odds of 1 in 10^23: at a million new keys a second, once in some billion years.
pub struct MemoryStore<C> {
    clock: C,
    /// From when slots count the seconds until they expire.
    start: Micros,
    fingerprints: Fingerprints,
    shards: Box<[Aligned]>,
    max_keys: usize,
    /// The shard to sweep next.
    next_swept: AtomicUsize,
    /// Boxes every state, whatever its plan.
    #[cfg(test)]
    boxes: bool,
}

/// Begins a cache line, so that neighbours do not slow each other down.
#[repr(align(64))]
struct Aligned(Mutex<Shard>);

/// What a memory store has done and holds. Counts are since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys held now, expired ones included that are not swept yet.
    pub keys: usize,
    /// Bytes allocated now for slots; states on the heap are not in it.
    pub table_bytes: usize,
    /// Keys dropped to make room.
    pub evicted: Evicted,
    /// Expired keys removed by sweeping.
    pub swept: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// Keeps at most `max_keys` keys, and at least one.
    pub fn new(clock: C, max_keys: usize) -> MemoryStore<C> {
        let shards = sharding::shards(max_keys);
        let caps = sharding::caps(max_keys, shards);
        MemoryStore {
            // The clock may step back behind the time of now.
            start: clock.now().saturating_sub(EXPIRY_BEHIND),
            clock,
            fingerprints: Fingerprints::new(),
            shards: caps.map(|cap| Aligned(Mutex::new(Shard::new(cap)))).collect(),
            max_keys: max_keys.max(1),
            next_swept: AtomicUsize::new(0),
            #[cfg(test)]
            boxes: false,
        }
    }

    /// Removes expired keys from the next `shards` shards, from where the last call stopped; at
    /// most once around. Shrinks tables that have become too large. No shard is held for longer
    /// than it takes to sweep a thousand buckets or to move what is left to a smaller table.
    ///
    /// Keys that come and go are swept without it; this is for a timer, so that memory comes
    /// back when traffic has stopped.
    pub fn sweep(&self, shards: usize) {
        let now = self.now();
        for _ in 0..shards.min(self.shards.len()) {
            let next = self.next_swept.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let Aligned(shard) = &self.shards[next];
            // A stride stops at the end of a table, so a round begun midway takes one more.
            let strides = shard.lock().buckets() / SWEEP_STRIDE + 2;
            for _ in 0..strides {
                shard.lock().sweep(SWEEP_STRIDE, now);
            }
            let unused = shard.lock().shrink();
            drop(unused);
        }
    }

    /// Charges a batch at once; adds one answer for each charge to `answers`, in order.
    pub fn charge_now(&self, batch: Batch<'_>, answers: &mut Answers) {
        let now = self.now();
        if batch.together {
            self.charge_together(batch, now, answers);
            return;
        }
        for charge in batch.charges {
            let fingerprint = self.fingerprints.of(charge);
            let mut shard = self.shards[self.shard_of(&fingerprint)].0.lock();
            answers.push(Ok(self.charge_shard(&mut shard, &fingerprint.print, charge, now)));
        }
    }

    fn now(&self) -> Now {
        Now { micros: self.clock.now(), start: self.start }
    }
}

impl<C> MemoryStore<C> {
    /// How many keys are kept at most.
    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// How many shards there are: what [`sweep`](Self::sweep) takes to go once around.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Adds up the shards' counts, each under its lock for an instant.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for Aligned(shard) in &self.shards {
            let shard = shard.lock();
            stats.keys += shard.keys();
            stats.table_bytes += shard.bytes();
            stats.swept += shard.swept();
            stats.evicted.expired += shard.evicted.expired;
            stats.evicted.live += shard.evicted.live;
            stats.evicted.full += shard.evicted.full;
        }
        stats
    }

    fn shard_of(&self, fingerprint: &Fingerprint) -> usize {
        sharding::shard(fingerprint.shard, self.shards.len())
    }

    fn charge_shard(
        &self,
        shard: &mut Shard,
        print: &Print,
        charge: &Charge<'_>,
        now: Now,
    ) -> Decision {
        if self.packs(charge.plan) {
            shard.charge::<Packed>(print, charge, now)
        } else {
            shard.charge::<Box<State>>(print, charge, now)
        }
    }

    fn packs(&self, plan: &Plan) -> bool {
        #[cfg(test)]
        if self.boxes {
            return false;
        }
        plan.packs()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn charge(&self, batch: Batch<'_>, answers: &mut Answers) -> impl Future<Output = ()> + Send {
        self.charge_now(batch, answers);
        ready(())
    }

    #[inline]
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        self.charge_now(batch, answers);
        true
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    /// Leaves out the keys' states and the secret of their fingerprints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

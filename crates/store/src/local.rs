//! Wraps the Redis store, and answers without a round trip where it can: repeats denials that still hold, and serves
//! leases, which are hits that are charged before requests ask for them.

mod denials;
mod hot_keys;
mod lease;
mod operations;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join, join_all};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use self::table::look_up::{Unserved, Waits};
pub use self::table::{LeaseCharge, LocalOptions};
use self::table::{LocalTable, Sent};
use crate::charge::{Answer, Answers, Batch, Charge};
use crate::error::StoreError;
use crate::states::{Grant, StateKey, States};
use crate::store::Store;
use weir_common::clock::Monotonic;
use weir_limit::{Decision, KeyState, LeasedHits, Micros};

/// A wrapper that answers a key without the inner store: because nothing is left, or because hits were charged before.
///
/// # Denials
///
/// A denial holds for the same number of hits of the same key until its wait is over, counted from when the charge was
/// sent. During that time, and for at most `deny_locally_for`, it is repeated: the same answer, less the time that has
/// passed since it came, with the source [`DeniedLocally`](weir_limit::Source::DeniedLocally). Other numbers of hits
/// and looks go to the inner store.
///
/// **Exact.** Verdict and limit are those that the inner store would answer now. So are wait and reset, or longer by up
/// to the round trip of the denial: with too short a wait, clients would come back too early.
///
/// - More hits may wait longer, and because of another limit, so they go to the inner store. A lone fixed window ends
///   for all hits at the same time, so there the same number or more are denied.
/// - Hits admitted or added through this replica end the denials of their key. Those of another replica, or of a
///   concurrent request, also lengthen the wait; they are noticed within `deny_locally_for`.
/// - The number of hits used before is that of the first denial.
///
/// **Which.** Denials by a plan whose denials [may be repeated](weir_limit::Plan::repeats_denials). If a plan charges
/// denied hits (a lone fixed window), its counter misses those of repeated denials, which shows only when hits are
/// refunded or the numbers of the limit change.
///
/// **Until.** A plan with other numbers goes to the inner store at once, and so does a key after hits were refunded or
/// leased, or its state reset, through this replica. Hits refunded or states reset through another replica, or by a
/// caller that went away before the store answered, are noticed within `deny_locally_for`.
///
/// **Batches** that are charged together, or that refund something, are never denied here.
///
/// **Bounded.** At most `max_denials` are kept, in tables allocated at the start, about 100 bytes each. If there is no
/// room for another, the one that ends soonest is dropped.
///
/// # Leases
///
/// **Paid first.** Every hit that is served was charged to the same key in the inner store, and is served while it
/// still counts there: until the end of the window in which it was charged, by the store's clock. So any number of
/// processes together admit no more than the limits allow.
///
/// **Which.** Keys of plans that [can be leased](weir_limit::Plan::can_lease) of which this process has admitted 32
/// requests within the length of a lease. An eighth of what is left is asked for at most, and no more than the hits of
/// that time; fewer than eight hits are not worth it, so the end of a limit is served hit by hit. When a sixteenth of
/// it is left, or it may be used up or end before more can come, and the key is still hot, the next hits are asked for,
/// and no request waits for them.
///
/// **Answers** come from a copy of the state, as if nobody else had been admitted since the hits were granted.
///
/// **In order.** While a charge of a lease is in flight, it is not known whether the store makes it before or after
/// another one of its key. So those that the lease cannot serve wait until it has an answer or is lost: for half of
/// their timeout, and no longer than a lease lasts. Charges of other keys do not wait.
///
/// **Returned.** What is left after the length of a lease is returned by an [undo](weir_limit::Op::Undo); at once where
/// a request asks for more hits than are left or does anything else than take and look, where the plan changes, and
/// when the process drains. It is sent before the charge that caused it. Nothing is returned of a key that is reset.
///
/// **Beside grants.** A [grant](States::grant) leaves the lease of its key as it is; an undo of granted hits ends it.
///
/// **Time** is read for each hit, from a clock that goes on while the machine is suspended.
///
/// **Bounded.** About 16 MiB, which is up to 32 768 leases.
///
/// # Cost
///
/// With both off: one comparison. While nothing is known: one reading of the clock, two atomic loads, and after an
/// admitted charge that could be leased one lock and a fingerprint. While other keys are leased: a cheap hash more.
#[derive(Debug)]
pub struct Local<S> {
    pub(crate) inner: S,
    table: Arc<LocalTable>,
}

impl<S: Store> Local<S> {
    /// Answers for `inner`. `clock` goes on while the machine is suspended.
    pub fn new(inner: S, clock: impl Monotonic, options: LocalOptions) -> Local<S> {
        let table = Arc::new(LocalTable::new(Box::new(clock), &options));
        Local { inner, table }
    }

    /// Answers a batch if all of it is known; else returns what is not.
    fn answer_known<'a>(
        &self,
        batch: &Batch<'a>,
        sent: Sent,
        unserved: Unserved,
        answers: &mut Answers,
    ) -> Unknown<'a> {
        let repeats = matches!(unserved, Unserved::Waits) && self.table.may_deny(sent);
        if !repeats && !batch.charges.iter().any(|charge| self.table.may_lease(charge)) {
            return Unknown::All;
        }
        let mut look_up = self.table.look_up(sent, repeats, unserved);
        let mut split = Split::new(batch, |charge| look_up.decide(charge));
        split.waits = look_up.waits;
        self.send(look_up.due);
        if split.rest.is_empty() {
            answers.extend(split.merge(Answers::new()));
            Unknown::Nothing
        } else if split.rest.len() == batch.charges.len() && split.waits.is_empty() {
            Unknown::All
        } else {
            Unknown::Part(Box::new(split))
        }
    }

    fn send(&self, due: Vec<Arc<LeaseCharge>>) {
        due.into_iter().for_each(|charge| self.inner.charge_lease(charge));
    }

    fn learn(&self, charges: &[Charge<'_>], answers: &[Answer], sent: Sent) {
        for (charge, answer) in zip(charges, answers) {
            self.send(self.table.learn(charge, answer, sent));
        }
    }

    async fn charge_inner(&self, batch: Batch<'_>, sent: Sent) -> Answers {
        let mut answers = Answers::new();
        self.inner.charge(&batch, &mut answers).await;
        self.learn(batch.charges, &answers, sent);
        answers
    }

    /// Charges what is not known of a batch: the keys that have to wait after up to half of the timeout, and others at once.
    async fn charge_part(
        &self,
        mut split: Box<Split<'_>>,
        batch: Batch<'_>,
        sent: Sent,
    ) -> Answers {
        let waits = std::mem::take(&mut split.waits);
        let batch = split.rest(&batch);
        if waits.is_empty() {
            let inner = self.charge_inner(batch, sent).await;
            return split.merge(inner).collect();
        }
        let (keys, answered): (Vec<_>, Vec<_>) = waits.into_iter().unzip();
        let is_awaited = |charge: &Charge<'_>| batch.together || self.table.is_of(charge, &keys);
        let (behind, at_once): (Vec<_>, Vec<_>) =
            batch.charges.iter().partition(|charge| is_awaited(charge));
        let charging = async {
            match at_once.is_empty() {
                true => Answers::new(),
                false => self.charge_inner(Batch { charges: &at_once, ..batch }, sent).await,
            }
        };
        let waiting = async {
            let start = Instant::now();
            let _ = timeout(batch.timeout / 2, join_all(answered)).await;
            let batch = Batch { charges: &behind, ..batch.after(start.elapsed()) };
            let mut answers = Answers::new();
            match self.answer_known(&batch, sent, Unserved::Ends, &mut answers) {
                Unknown::Nothing => answers,
                Unknown::All => self.charge_inner(batch, sent).await,
                Unknown::Part(split) => {
                    let inner = self.charge_inner(split.rest(&batch), sent).await;
                    split.merge(inner).collect()
                }
            }
        };
        let (now, later) = join(charging, waiting).await;
        let inner = batch.merge(is_awaited, later, now);
        split.merge(inner).collect()
    }
}

impl<S: Store> Store for Local<S> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S>> {
        let sent = (!self.table.is_off()).then(|| Sent::new(&batch, self.table.now()));
        if let Some(sent) = sent {
            match self.answer_known(&batch, sent, Unserved::Waits, answers) {
                Unknown::Nothing => return None,
                Unknown::All => {}
                // In a box, so that the futures of other requests stay small.
                Unknown::Part(split) => {
                    return Some(Box::pin(self.charge_part(split, batch, sent)).left_future());
                }
            }
        }
        let (first, charges) = (answers.len(), batch.charges);
        let learn = move |answers: &[Answer]| {
            sent.into_iter().for_each(|sent| self.learn(charges, answers, sent));
        };
        let Some(waiting) = self.inner.start(batch, answers) else {
            learn(&answers[first..]);
            return None;
        };
        let learning = waiting.map(move |answers| {
            learn(&answers);
            answers
        });
        Some(learning.right_future())
    }
}

impl<S: States> States for Local<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        let state = self.inner.read(key, spans, timeout).await?;
        let left = self.table.left(&key.charge());
        Ok(KeyState { leased: left.map(|(hits, ends_in)| LeasedHits { hits, ends_in }), ..state })
    }

    /// Forgets what is known of the key too, also if the inner store fails: it may have deleted the state nevertheless.
    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        self.table.reset(&key.charge());
        let reset = self.inner.reset(key, timeout).await;
        // What was learned meanwhile may be of the state before.
        self.table.reset(&key.charge());
        reset
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let sent = (!self.table.is_off()).then(|| Sent::new(batch, self.table.now()));
        let granted = self.inner.grant(batch).await;
        if let Some(sent) = sent {
            self.learn(batch.charges, &[Grant::answer(&granted)], sent);
        }
        granted
    }
}

/// What the inner store is to charge of a batch.
enum Unknown<'a> {
    Nothing,
    All,
    Part(Box<Split<'a>>),
}

/// A batch with the decisions that are known.
struct Split<'a> {
    /// One for each charge of the batch: its decision, if it is known.
    known: SmallVec<[Option<Decision>; 4]>,
    rest: SmallVec<[Charge<'a>; 4]>,
    /// The keys that some of them have to wait for.
    waits: Waits,
}

impl<'a> Split<'a> {
    /// Asks `decide` about each charge, in order.
    fn new(
        batch: &Batch<'a>,
        mut decide: impl FnMut(&Charge<'a>) -> Option<Decision>,
    ) -> Split<'a> {
        let (mut known, mut rest) = (SmallVec::new(), SmallVec::new());
        for charge in batch.charges {
            let decision = decide(charge);
            if decision.is_none() {
                rest.push(*charge);
            }
            known.push(decision);
        }
        Split { known, rest, waits: Waits::new() }
    }

    fn rest<'b>(&'b self, batch: &Batch<'b>) -> Batch<'b> {
        Batch { charges: &self.rest, ..*batch }
    }

    fn merge(self, inner: Answers) -> impl Iterator<Item = Answer> {
        let mut inner = inner.into_iter();
        self.known.into_iter().map(move |known| match known {
            Some(decision) => Ok(decision),
            None => inner.next().unwrap_or(Err(StoreError::Unavailable)),
        })
    }
}

//! Leases: hits of hot keys that are charged before they are asked for.

mod charge;
mod due;
mod flights;
mod hot_keys;
mod key;
mod lease;
mod operations;
mod recent;
mod table;
#[cfg(test)]
mod tests;

use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

pub use self::charge::LeaseCharge;
use self::due::DueCharges;
use self::table::{LeaseTable, Way, plain_hits};
use super::split::Split;
use super::{Answer, Answers, Batch, Charge, StateKey, States, Store, StoreError};
use crate::memory::fingerprint::Fingerprint;
use weir_common::clock::Monotonic;
use weir_limit::{Decision, KeyState, LeasedHits, Micros, Source};

/// A store that charges for leases.
pub trait Leasing: Store {
    /// Makes a charge that no request waits for, over the same connection as the charges of this thread, after those
    /// that were made before. Passes its outcome to [`LeaseCharge::answer`].
    fn charge_lease(&self, charge: Arc<LeaseCharge>);
}

/// A wrapper that serves hot keys from hits that the inner store has charged before.
///
/// **Paid first.** Every hit that is served was charged to the same key in the inner store, and is served while it
/// still counts there: until the end of the window in which it was charged, by the store's clock. So any number of
/// processes together admit no more than the limits allow.
///
/// **Which.** Keys of plans that [can be leased](weir_limit::Plan::can_lease) of which this process has admitted 32
/// requests within the length of a lease. An eighth of what is left is asked for at most, and no more than the hits
/// of that time; fewer than eight hits are not worth it, so the end of a limit is served hit by hit. When a sixteenth of
/// it is left, or it may be used up or end before more can come, and the key is still hot, the next hits are asked for,
/// and no request waits for them.
///
/// **Answers** are computed from a copy of the state: those of the inner store if nobody else had been admitted since
/// the hits were granted.
///
/// **In order.** While a charge of a lease is in flight, it is not known whether the store makes it before or after
/// another one of its key. So those that the lease cannot serve wait until it has an answer or is lost: for half of
/// their budget, and no longer than a lease lasts. Charges of other keys do not wait.
///
/// **Returned.** What is left after the length of a lease is returned by an [undo](weir_limit::Op::Undo); at
/// once where a request asks for more hits than are left, refunds or does anything else than take and look, where
/// the plan changes, and when the process drains. It is sent before the charge that caused it. Of the state of a key
/// that is reset, nothing is returned.
///
/// **Time** is read for each hit, from a clock that goes on while the machine is suspended.
///
/// **Bounded.** About 16 MiB, which is up to 32 768 leases.
///
/// **Cost.** Without leases: one atomic load, and after an admitted charge one lock and a fingerprint. While other keys
/// are leased: a cheap hash more.
#[derive(Debug)]
pub struct Leases<S> {
    inner: S,
    table: Arc<LeaseTable>,
    /// How many requests in a row leases have answered alone, up to [`STREAK`]; one that they have not takes back many.
    streak: AtomicU32,
}

/// Keys whose leases have charges in flight, and what completes once these have their answers.
type Waits = SmallVec<[(Fingerprint, oneshot::Receiver<()>); 1]>;

/// The most requests that a streak counts. Above half of it a request is tried with leases first, and prepared twice
/// if they cannot answer it.
const STREAK: u32 = 64;

impl<S: Leasing> Leases<S> {
    /// Leases hits of `inner` for `length`; zero: never. `clock` goes on while the machine is suspended.
    pub fn new(inner: S, clock: impl Monotonic, length: Duration) -> Leases<S> {
        let length = Micros::try_from(length.as_micros()).unwrap_or(Micros::MAX);
        let table = Arc::new(LeaseTable::new(Box::new(clock), length));
        Leases { inner, table, streak: AtomicU32::new(0) }
    }

    /// Returns the store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Calls `then` with a charge of each key that hits are granted of.
    pub(crate) fn on_grant(&self, then: impl Fn(&Charge<'_>) + Send + Sync + 'static) {
        // Only the first one is called.
        let _ = self.table.on_grant.set(Box::new(then));
    }

    /// Serves what leases can; none if the inner store charges all of the batch. Adds the keys to wait for to `waits`, if
    /// it may wait.
    fn split<'a>(&self, batch: &Batch<'a>, mut waits: Option<&mut Waits>) -> Option<Split<'a>> {
        if !batch.charges.iter().any(|charge| self.table.may_lease(charge)) {
            return None;
        }
        if batch.together {
            batch.charges.iter().for_each(|charge| self.make_way(charge, waits.as_deref_mut()));
            return None;
        }
        Split::new(batch, |charge| {
            let served = self.serve(charge);
            if served.is_none() {
                self.make_way(charge, waits.as_deref_mut());
            }
            served
        })
    }

    /// Decides a charge by the lease of its key.
    fn serve(&self, charge: &Charge<'_>) -> Option<Decision> {
        if !self.table.may_lease(charge) {
            return None;
        }
        let key = self.table.key(charge)?;
        let mut charges = DueCharges::new();
        let served = self.table.serve(&key, charge, &mut charges);
        self.send(charges);
        served
    }

    /// Makes way for a charge of the inner store: ends the lease of its key and returns what is left, or adds the key
    /// to `waits`.
    fn make_way(&self, charge: &Charge<'_>, waits: Option<&mut Waits>) {
        let key = Some(charge).filter(|charge| self.table.may_lease(charge));
        let Some(key) = key.and_then(|charge| self.table.key(charge)) else { return };
        match (self.table.make_way(&key, charge, waits.is_some()), waits) {
            (Way::Free(charges), _) => self.send(charges),
            (Way::Awaited(answered), Some(waits)) => waits.push((key, answered)),
            (Way::Awaited(_), None) => {}
        }
    }

    /// Notes whether leases have answered a request alone.
    fn note(&self, alone: bool) {
        let streak = self.streak.load(Ordering::Relaxed);
        let next = if alone { (streak + 1).min(STREAK) } else { streak.saturating_sub(STREAK / 4) };
        // Lost updates do not matter.
        if next != streak {
            self.streak.store(next, Ordering::Relaxed);
        }
    }

    fn send(&self, charges: DueCharges) {
        let charges = charges.into_iter().map(|due| LeaseCharge::new(&self.table, due));
        charges.for_each(|charge| self.inner.charge_lease(charge));
    }

    /// Counts what the inner store admitted; asks for hits of keys that are hot.
    fn learn(&self, together: bool, charges: &[Charge<'_>], answers: &[Answer]) {
        if together {
            return;
        }
        for (charge, answer) in zip(charges, answers) {
            let (Some(hits @ 1..), Ok(decision)) = (plain_hits(charge.op), answer) else {
                continue;
            };
            if !decision.allowed || decision.source != Source::Store {
                continue;
            }
            if let Some(key) = self.table.key(charge) {
                self.send(self.table.admitted(&key, charge, hits));
            }
        }
    }

    /// Has the inner store charge what leases do not serve.
    async fn charge_rest<'a>(
        &self,
        split: Option<Split<'a>>,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) {
        let Some(split) = split else {
            return self.charge_inner(batch, answers).await;
        };
        let mut inner = Answers::new();
        if let Some(rest) = split.rest(batch) {
            self.charge_inner(rest, &mut inner).await;
        }
        split.merge(inner, answers);
    }

    /// Charges a batch in the inner store, and learns from the answers.
    async fn charge_inner(&self, batch: Batch<'_>, answers: &mut Answers) {
        let first = answers.len();
        self.inner.charge(batch, answers).await;
        self.learn(batch.together, batch.charges, &answers[first..]);
    }

    /// Charges a batch of which some keys are to be waited for: those behind the wait, for up to half of the budget, and
    /// the others at once.
    async fn charge_waiting(&self, batch: Batch<'_>, waits: Waits, answers: &mut Answers) {
        let (keys, answered): (Vec<_>, Vec<_>) = waits.into_iter().unzip();
        let is_awaited = |charge: &Charge<'_>| {
            batch.together || self.table.key(charge).is_some_and(|key| keys.contains(&key))
        };
        let (behind, at_once): (Vec<_>, Vec<_>) =
            batch.charges.iter().partition(|it| is_awaited(it));
        let (mut now, mut later) = (Answers::new(), Answers::new());
        let charging = async {
            if !at_once.is_empty() {
                self.charge_inner(Batch { charges: &at_once, ..batch }, &mut now).await;
            }
        };
        let waiting = async {
            let start = Instant::now();
            let _ = timeout(batch.budget / 2, join_all(answered)).await;
            let batch = batch.after(start.elapsed());
            let batch = Batch { charges: &behind, ..batch };
            self.charge_rest(self.split(&batch, None), batch, &mut later).await;
        };
        join(charging, waiting).await;
        let (mut now, mut later) = (now.into_iter(), later.into_iter());
        answers.extend(batch.charges.iter().map(|charge| {
            let answer = if is_awaited(charge) { later.next() } else { now.next() };
            answer.unwrap_or(Err(StoreError::Unavailable))
        }));
    }
}

impl<S: Leasing> Store for Leases<S> {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        let mut waits = Waits::new();
        let split = self.split(&batch, Some(&mut waits));
        self.note(split.as_ref().is_some_and(|split| split.rest.is_empty()));
        if waits.is_empty() {
            return self.charge_rest(split, batch, answers).await;
        }
        // In a box, so that the futures of other requests stay small.
        match split {
            None => Box::pin(self.charge_waiting(batch, waits, answers)).await,
            Some(split) => {
                let mut inner = Answers::new();
                if let Some(rest) = split.rest(batch) {
                    Box::pin(self.charge_waiting(rest, waits, &mut inner)).await;
                }
                split.merge(inner, answers);
            }
        }
    }

    /// Answers a batch of one charge from the lease of its key. Of several, what a lease has served could not be returned if
    /// the inner store had to answer the others.
    fn try_charge(&self, batch: Batch<'_>, answers: &mut Answers) -> bool {
        let [charge] = batch.charges else { return false };
        let served = if batch.together { None } else { self.serve(charge) };
        let is_served = served.is_some();
        self.note(is_served);
        answers.extend(served.map(Ok));
        is_served
    }

    /// Whether leases have answered nearly all requests of late.
    fn is_immediate(&self) -> bool {
        self.streak.load(Ordering::Relaxed) > STREAK / 2 && self.table.len() > 0
    }
}

impl<S: Leasing + States> States for Leases<S> {
    /// Reads what the inner store has counted, with what is leased of it here.
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        budget: Duration,
    ) -> Result<KeyState, StoreError> {
        let state = self.inner.read(key, spans, budget).await?;
        let fingerprint = self.table.key(&key.charge());
        let left = fingerprint.and_then(|key| self.table.left(&key));
        Ok(KeyState { leased: left.map(|(hits, ends_in)| LeasedHits { hits, ends_in }), ..state })
    }

    /// Ends the lease too, also if the inner store fails: it may have deleted the state nevertheless.
    async fn reset(&self, key: StateKey<'_>, budget: Duration) -> Result<(), StoreError> {
        let fingerprint = self.table.key(&key.charge());
        let forget = || fingerprint.iter().for_each(|key| self.table.forget(key));
        forget();
        let reset = self.inner.reset(key, budget).await;
        // What was leased meanwhile may be of the state before.
        forget();
        reset
    }
}

//! [`Holds`]: what a request took from the store, to release or cancel it later; none for most requests.
//!
//! A charge can take a hold (hits in flight of a concurrency limit), and can reserve hits. The decision adds both here,
//! each with the operation that undoes it:
//!
//! - The call is cancelled: all holds are released, and all reservations cancelled.
//! - Another descriptor denies the request: its reservations are cancelled at once. Its holds stay, because Envoy
//!   releases them at the end of denied requests, too.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Answered, Decided};
use crate::reserving;
use weir_limit::{Op, Plan, ReservationResult};
use weir_rules::ReserveStats;
use weir_store::{Answer, Answers, Batch, Charge, Entry, Key, OnStoreFailure, Role, Store};

/// The timeout for releasing; no request waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What a request took and is not to keep. Most requests take nothing, and then there is none.
pub type Holds = Option<TakenHolds>;

/// The holds and the reservations of a request that took some.
///
/// [`release`](Self::release) returns hits of concurrency limits and cancels reservations. It is due when the request is
/// done, unless a later request settles what this one has reserved: then the holds are dropped. Without it, hits in
/// flight and reservations lapse after the timeouts of their rules.
#[derive(Debug)]
pub struct TakenHolds(Box<Taken>);

/// In a box: every request has room for its address, and few take something.
#[derive(Debug)]
struct Taken {
    domain: Box<str>,
    together: bool,
    on_failure: Option<OnStoreFailure>,
    holds: Vec<TakenHold>,
    /// The reservations of a request that is denied.
    denied: Vec<TakenHold>,
    /// The counts of reservations that may have been made.
    unknown: Vec<Arc<ReserveStats>>,
}

#[derive(Debug)]
struct TakenHold {
    entries: Box<[(Box<str>, Box<str>)]>,
    plan: Arc<Plan>,
    /// Releases the hold, or cancels the reservation.
    op: Op,
    id: Option<Box<str>>,
    role: Role,
    /// The counts of a reservation; none for a hold, and where the rule has no `reserve`.
    stats: Option<Arc<ReserveStats>>,
}

impl TakenHolds {
    /// Returns whether there is nothing left to release or to cancel.
    pub fn is_empty(&self) -> bool {
        self.0.holds.is_empty() && self.0.denied.is_empty()
    }

    /// Adds to `holds` what was taken of concurrency limits, and what was reserved.
    #[cold]
    pub(super) fn add(holds: &mut Holds, answered: &Answered<'_, '_, '_>) {
        if !answered.are_charged() {
            return;
        }
        for (matched, decided) in answered.descriptors() {
            let Decided::Charged(charge, answer) = decided else { continue };
            let stats = matched.applies.rule().and_then(|rule| rule.reserve_stats.clone());
            let op = match charge.cancelling(answer).map(|cancelling| cancelling.op) {
                None if reserving::is_unknown(charge.op, answer) => {
                    TakenHolds::of(holds, answered).unknown.extend(stats);
                    continue;
                }
                cancel => cancel.or_else(|| charge.held(answer).map(Op::Refund)),
            };
            let Some(op) = op else { continue };
            let entry = |(key, value): &Entry<'_>| (Box::from(*key), Box::from(*value));
            let hold = TakenHold {
                entries: charge.key.entries.iter().map(entry).collect(),
                plan: charge.plan.clone(),
                op,
                id: charge.hold.map(Box::from),
                role: charge.role,
                stats,
            };
            TakenHolds::of(holds, answered).holds.push(hold);
        }
    }

    fn of<'h>(holds: &'h mut Holds, answered: &Answered<'_, '_, '_>) -> &'h mut Taken {
        let taken = holds.get_or_insert_with(|| {
            let (holds, denied, unknown) = Default::default();
            let Batch { together, on_failure, .. } = *answered.batch;
            let domain = answered.request.domain.into();
            TakenHolds(Box::new(Taken { domain, together, on_failure, holds, denied, unknown }))
        });
        &mut taken.0
    }

    /// Notes that the request is denied, to cancel what it reserved. What it may have reserved stays charged.
    #[cold]
    pub(super) fn deny(&mut self) {
        let taken = &mut *self.0;
        let holds = mem::take(&mut taken.holds).into_iter();
        (taken.denied, taken.holds) = holds.partition(TakenHold::is_reservation);
        taken.unknown.drain(..).for_each(|stats| stats.lost());
    }

    /// Takes the reservations of a request that is denied. They are to be [released](Self::release) at once.
    pub fn denied(&mut self) -> Holds {
        let taken = &mut *self.0;
        if taken.denied.is_empty() {
            return None;
        }
        let Taken { together, on_failure, .. } = *taken;
        let (holds, denied, unknown) = (mem::take(&mut taken.denied), Vec::new(), Vec::new());
        let domain = taken.domain.clone();
        Some(TakenHolds(Box::new(Taken { domain, together, on_failure, holds, denied, unknown })))
    }

    /// Releases all holds, and cancels all reservations. If the store fails, holds expire after their time-out, and
    /// what was reserved stays charged.
    pub async fn release(self, store: &impl Store) {
        let taken = self.0;
        for hold in taken.holds.iter().chain(&taken.denied) {
            let entries = hold.entries.iter().map(|(key, value)| (&**key, &**value));
            let entries: Vec<Entry<'_>> = entries.collect();
            let charges = [Charge {
                key: Key { domain: &taken.domain, entries: &entries },
                plan: &hold.plan,
                op: hold.op,
                hold: hold.id.as_deref(),
                role: hold.role,
            }];
            let mut answers = Answers::new();
            store.charge(&taken.batch(&charges), &mut answers).await;
            hold.count(&answers);
        }
    }
}

impl Taken {
    fn batch<'a>(&self, charges: &'a [Charge<'a>]) -> Batch<'a> {
        let Taken { together, on_failure, .. } = *self;
        Batch { together, on_failure, ..Batch::new(charges, TIMEOUT) }
    }
}

impl TakenHold {
    fn is_reservation(&self) -> bool {
        matches!(self.op, Op::Reservation(_))
    }

    /// Counts that a reservation was cancelled, unless it had been settled.
    fn count(&self, answers: &[Answer]) {
        let (Some(stats), [answer]) = (&self.stats, answers) else { return };
        match answer.as_ref().map(|decision| decision.reservation) {
            Ok(ReservationResult::Settled) => stats.cancelled(),
            Ok(ReservationResult::None) | Err(_) => stats.lost(),
            Ok(_) => {}
        }
    }
}

//! A charge, that is what a request does with its hits of one key, while it waits for Redis; its decision then; and the
//! reply, which has the answers to all charges of a request as they come.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::Span;

use super::key::{self, record_key};
use super::options::{RedisOptions, Topology};
use weir_limit::{Micros, Op, Plan, Reservation, ReservationOp, State, hash_hold_id};
use weir_store::local::LeaseCharge;
use weir_store::{Answer, Answers, Charge, Grant, Key, Role, StoreError, key_bytes, reserved};

/// A charge that waits for its answer. Its plan is the limits of the rule, which are charged together.
#[derive(Clone, Debug)]
pub(super) struct PendingCharge {
    pub key: Box<[u8]>,
    /// The key's slot; 0 on a single server.
    pub slot: u16,
    pub plan: Arc<Plan>,
    pub op: Op,
    /// Repairs the state after plain `INCRBY`s: writes its window and expiry. It refunds hits only to a number that is
    /// not a state.
    pub repairs: bool,
    /// The hash of the id of its hold; 0 if it has none.
    pub hold: u64,
    /// The key of what its id has reserved; none if it is not about a reservation.
    pub record: Option<Box<[u8]>>,
    pub role: Role,
    /// The role in which a failure of this charge denies its group; none where it does not.
    pub denial_where_failed: Option<Role>,
    pub group: Option<Group>,
    /// How many redirects the charge has followed.
    pub hops: u8,
    /// Preceded by `ASKING`: the node answers although the slot is still being moved to it.
    pub asking: bool,
    /// Whether the charge is sent in a call of its own.
    pub alone: bool,
    pub reply: Arc<Reply>,
    /// The position of its answer in `reply`.
    pub index: u32,
}

pub(super) struct RedisKey {
    pub text: Box<[u8]>,
    pub slot: u16,
}

/// The outcome of a charge, besides its answer.
#[derive(Debug)]
pub(super) struct Decided {
    pub allowed: bool,
    /// Charges that return what nobody will use.
    pub returning: Vec<PendingCharge>,
}

/// A group of charges that are made all or none, in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub id: NonZeroU32,
    /// A quota outside the group passes, so quotas cannot deny it.
    pub quota_passes: bool,
}

impl RedisKey {
    #[inline]
    pub fn new(options: &RedisOptions, key: &Key<'_>, plan: &Plan, together: bool) -> RedisKey {
        let text = key_bytes(&options.prefix, key, plan, together);
        let slot = match options.topology {
            Topology::Cluster(_) | Topology::Proxy(_) => key::slot(&text),
            Topology::Single(_) | Topology::Sentinel { .. } => 0,
        };
        RedisKey { text, slot }
    }
}

impl PendingCharge {
    pub fn new(
        RedisKey { text, slot }: RedisKey,
        charge: &Charge<'_>,
        reply: &Arc<Reply>,
        index: usize,
    ) -> PendingCharge {
        let (hold, record) = match charge.op {
            Op::Reservation(_) => (0, Some(record_key(&text, charge.hold.unwrap_or_default()))),
            _ => (charge.hold.map_or(0, hash_hold_id), None),
        };
        PendingCharge {
            key: text,
            slot,
            plan: charge.plan.clone(),
            op: charge.op,
            repairs: false,
            hold,
            record,
            role: charge.role,
            denial_where_failed: None,
            group: None,
            hops: 0,
            asking: false,
            alone: false,
            reply: reply.clone(),
            index: index as u32,
        }
    }

    /// Decides the charge from the state before it, applies it to that state, and answers.
    pub fn decide(
        &self,
        state: &mut State,
        mut reservation: Option<Reservation>,
        now: Micros,
    ) -> Decided {
        if let Some(taker) = self.reply.taker() {
            return self.decide_for(taker, state, now);
        }
        let outcome = match self.op {
            Op::Reservation(op) => self.plan.charge_reservation(state, &mut reservation, now, op),
            op => self.plan.charge_hashed(state, now, op, self.hold),
        };
        let allowed = outcome.decision.allowed;
        let reserved = match self.op {
            Op::Reservation(_) => reserved(&outcome.decision),
            _ => None,
        };
        let answered = self.reply.set(self.index as usize, Ok(outcome.decision));
        let orphaned = reserved.filter(|_| !answered);
        Decided {
            allowed,
            returning: orphaned.map(|hits| self.cancelling(hits)).into_iter().collect(),
        }
    }

    #[cold]
    fn decide_for(&self, taker: &Taker, state: &mut State, now: Micros) -> Decided {
        match taker {
            Taker::Grant(granted) => {
                let grant = granted.get_or_init(|| Grant::charge(&self.plan, state, now, self.op));
                let decision = grant.decision.clone();
                let allowed = decision.allowed;
                self.reply.set(self.index as usize, Ok(decision));
                Decided { allowed, returning: Vec::new() }
            }
            Taker::Lease(lease) => {
                Decided { allowed: true, returning: self.decide_lease(lease, state, now) }
            }
        }
    }

    fn decide_lease(
        &self,
        lease: &LeaseCharge,
        state: &mut State,
        now: Micros,
    ) -> Vec<PendingCharge> {
        let before = state.clone();
        let (_, undos) = self.plan.charge_undoable(state, now, self.op);
        let returning = |lease: Arc<LeaseCharge>| PendingCharge {
            op: lease.op,
            reply: Reply::to_lease(lease),
            ..self.clone()
        };
        lease.answer(before, &undos, now).into_iter().map(returning).collect()
    }

    /// Returns the charge that cancels hits that this one has reserved, over the same connection.
    pub fn cancelling(&self, hits: u32) -> PendingCharge {
        PendingCharge {
            op: Op::Reservation(ReservationOp::Cancel(hits)),
            group: None,
            reply: Reply::unawaited(1),
            index: 0,
            ..self.clone()
        }
    }

    pub fn fail(&self, error: StoreError) {
        self.reply.set(self.index as usize, Err(error));
    }
}

pub(super) fn fail_all(charges: impl IntoIterator<Item = PendingCharge>, error: StoreError) {
    charges.into_iter().for_each(|charge| charge.fail(error));
}

/// The answers that a request, a grant, or a lease (hits that are charged ahead of requests) waits for.
#[derive(Debug)]
pub(super) struct Reply {
    inner: Mutex<Inner>,
    /// The request was abandoned: charges that were not sent yet are dropped.
    abandoned: AtomicBool,
    /// The end of the request's timeout; none where nobody waits.
    deadline: Option<Instant>,
    /// The spans of the request's round trips; none if the request is not traced.
    spans: Option<Box<Mutex<ReplySpans>>>,
    /// What needs more than the answer; none for a request.
    taker: Option<Box<Taker>>,
}

/// What needs to know how its one charge is undone, and the time of the store.
#[derive(Debug)]
pub(super) enum Taker {
    /// It is set before its answer.
    Grant(Arc<OnceLock<Grant>>),
    /// It takes the place of the answer, for which nobody waits.
    Lease(Arc<LeaseCharge>),
}

#[derive(Debug)]
struct ReplySpans {
    /// The parent; none once the request has stopped waiting.
    parent: Option<Span>,
    trips: Vec<Arc<TripSpan>>,
}

#[derive(Debug)]
struct Inner {
    answers: Answers,
    missing: usize,
    /// The request was dropped before it had all answers.
    dropped: bool,
    waker: Option<Waker>,
}

impl Reply {
    /// Returns the replies to a number of charges that nobody waits for.
    pub fn unawaited(charges: usize) -> Arc<Reply> {
        Arc::new(Reply::new(charges, StoreError::TimedOut, None, None))
    }

    /// Returns the reply to a charge of a lease. Nobody waits for it, so it has no deadline.
    pub fn to_lease(lease: Arc<LeaseCharge>) -> Arc<Reply> {
        let taker = Some(Box::new(Taker::Lease(lease)));
        Arc::new(Reply { taker, ..Reply::new(1, StoreError::TimedOut, None, None) })
    }

    /// Charges not answered by the deadline fail with `unanswered`. Round trips are recorded below `span`, if any.
    pub fn new(
        charges: usize,
        unanswered: StoreError,
        deadline: Option<Instant>,
        span: Option<&Span>,
    ) -> Reply {
        let answers = (0..charges).map(|_| Err(unanswered)).collect();
        let inner = Inner { answers, missing: charges, dropped: false, waker: None };
        let abandoned = AtomicBool::new(false);
        let spans = span.map(|span| {
            Box::new(Mutex::new(ReplySpans { parent: Some(span.clone()), trips: Vec::new() }))
        });
        Reply { inner: Mutex::new(inner), abandoned, deadline, spans, taker: None }
    }

    /// Returns the reply with what needs more than the answer.
    #[inline]
    pub fn with_taker(self, taker: Option<Box<Taker>>) -> Reply {
        Reply { taker, ..self }
    }

    #[inline]
    pub fn taker(&self) -> Option<&Taker> {
        self.taker.as_deref()
    }

    #[inline]
    pub fn lease(&self) -> Option<&Arc<LeaseCharge>> {
        match self.taker() {
            Some(Taker::Lease(lease)) => Some(lease),
            Some(Taker::Grant(_)) | None => None,
        }
    }

    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.spans.is_some()
    }

    /// Starts a span of a round trip below that of the request, if the request is recorded and still waits.
    pub fn add_trip(&self, start: impl FnOnce(&Span) -> Arc<TripSpan>) -> Option<Arc<TripSpan>> {
        let mut spans = self.spans.as_ref()?.lock();
        if self.inner.lock().missing == 0 {
            return None;
        }
        let trip = start(spans.parent.as_ref()?);
        spans.trips.push(trip.clone());
        Some(trip)
    }

    /// Ends the spans of round trips that have not ended, because the request stops waiting.
    fn end_trips(&self, error: Option<&str>) {
        let Some(spans) = &self.spans else { return };
        let mut spans = spans.lock();
        spans.trips.drain(..).for_each(|trip| trip.end(error));
        spans.parent = None;
    }

    /// Sets the answer to one charge; called once for each. Returns whether the request was not dropped before.
    pub fn set(&self, index: usize, answer: Answer) -> bool {
        let mut inner = self.inner.lock();
        // A request that stopped waiting has taken the answers.
        let Some(place) = inner.answers.get_mut(index) else { return !inner.dropped };
        *place = answer;
        inner.missing = inner.missing.saturating_sub(1);
        wake_if_complete(inner);
        true
    }

    /// Ends the wait for answers that have not come.
    pub fn stop_waiting(&self) {
        let mut inner = self.inner.lock();
        inner.missing = 0;
        wake_if_complete(inner);
    }

    /// Stops waiting because the request was dropped. Returns the answers so far, unless it had stopped waiting before.
    pub fn cancel(&self) -> Option<Answers> {
        let stopped = self.abandoned.swap(true, Ordering::Relaxed);
        self.end_trips(Some("cancelled"));
        (!stopped).then(|| {
            let mut inner = self.inner.lock();
            inner.dropped = true;
            std::mem::take(&mut inner.answers)
        })
    }

    /// Returns whether the request still waits at `now`; its task may not have seen its deadline yet.
    pub fn is_awaited(&self, now: Instant) -> bool {
        !self.abandoned.load(Ordering::Relaxed) && self.deadline.is_none_or(|end| now < end)
    }

    pub fn take(&self) -> Answers {
        self.abandoned.store(true, Ordering::Relaxed);
        let answers = std::mem::take(&mut self.inner.lock().answers);
        if self.is_recorded() {
            // A missing answer is the error of the deadline.
            let error = answers.iter().find_map(|answer| answer.as_ref().err());
            self.end_trips(error.map(|error| format!("{error:?}")).as_deref());
        }
        answers
    }
}

#[inline]
fn wake_if_complete(mut inner: MutexGuard<'_, Inner>) {
    if inner.missing == 0
        && let Some(waker) = inner.waker.take()
    {
        drop(inner);
        waker.wake();
    }
}

#[derive(Debug)]
pub(super) struct AllAnswers<'r>(pub &'r Reply);

impl Future for AllAnswers<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.0.inner.lock();
        if inner.missing == 0 {
            return Poll::Ready(());
        }
        match &mut inner.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// A request's span of a round trip, a child of the span of its charges. It ends when the server has answered, or when
/// the request stops waiting, whichever is first: it cannot outlive its parent.
#[derive(Debug)]
pub(super) struct TripSpan(Mutex<Option<Span>>);

impl TripSpan {
    pub fn new(span: Span) -> TripSpan {
        TripSpan(Mutex::new(Some(span)))
    }

    /// Ends the span, unless it has ended.
    pub fn end(&self, error: Option<&str>) {
        let Some(span) = self.0.lock().take() else { return };
        if let Some(error) = error {
            span.record("error.type", error);
            span.record("otel.status_code", "ERROR");
        }
    }
}

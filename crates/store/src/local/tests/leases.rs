//! Leases over a store in memory, whose answers come when the test says.

mod in_flight;
mod racing;
mod random;
mod waiting;

use std::collections::HashMap;
use std::future::{Future, Pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use crate::local::table::leases::SWEEP_INTERVAL;
use crate::local::*;
use crate::{Key, Role};
use weir_common::clock::{Clock, ManualClock};
use weir_limit::{
    Algorithm, BucketedWindow, Calendar, Decision, Limit, Op, Plan, ReservationOp, SECOND,
    SlidingWindow, Source, State, Unit, UpTo,
};

const LENGTH: Micros = 100_000;

/// Noon, on the second.
const NOON: Micros = 1_800_014_400 * SECOND;

/// A store that all replicas of a test share.
#[derive(Clone, Debug)]
struct Shared {
    clock: Arc<ManualClock>,
    states: Arc<Mutex<HashMap<String, State>>>,
    /// Lease charges in flight; none if they are made at once.
    in_flight: Option<Arc<Mutex<Vec<InFlight>>>>,
    /// The thread of the replica that the test plays. What one thread sends is made in order.
    thread: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct InFlight {
    charge: Arc<LeaseCharge>,
    thread: usize,
    sent: Micros,
    /// The answer, once the charge is made.
    made: Option<(State, Vec<weir_limit::Undo>, Micros)>,
}

impl Shared {
    fn new() -> Shared {
        let clock = Arc::new(ManualClock::new(NOON));
        Shared { clock, states: Arc::default(), in_flight: None, thread: Arc::default() }
    }

    fn delaying() -> Shared {
        Shared { in_flight: Some(Arc::default()), ..Shared::new() }
    }

    fn thread(&self) -> usize {
        self.thread.load(Ordering::Relaxed)
    }

    fn name(charge: &Charge<'_>) -> String {
        format!("{:?} {}", charge.key, charge.plan.shape())
    }

    fn charge_one(&self, charge: &Charge<'_>) -> (State, Decision, Vec<weir_limit::Undo>) {
        let mut states = self.states.lock();
        let state = states.entry(Shared::name(charge)).or_default();
        let before = state.clone();
        let (outcome, undos) = charge.plan.charge_undoable(state, self.clock.now(), charge.op);
        (before, outcome.decision, undos)
    }

    fn make(&self, charge: &LeaseCharge) -> (State, Vec<weir_limit::Undo>, Micros) {
        let (before, _, undos) = charge.with_charge(|charge| self.charge_one(charge));
        (before, undos, self.clock.now())
    }

    /// Makes charges in flight in order: all of them, or those of one thread.
    fn make_all(&self, thread: Option<usize>) {
        let Some(in_flight) = &self.in_flight else { return };
        let unmade = |it: &&mut InFlight| {
            it.made.is_none() && thread.is_none_or(|thread| thread == it.thread)
        };
        for it in in_flight.lock().iter_mut().filter(unmade) {
            it.made = Some(self.make(&it.charge));
        }
    }

    /// Answers the charges in flight, and makes and answers what they return.
    fn answer_all(&self) {
        let in_flight = || std::mem::take(&mut *self.in_flight.as_ref().unwrap().lock());
        loop {
            self.make_all(None);
            let answered = in_flight();
            if answered.is_empty() {
                break;
            }
            answered.into_iter().for_each(|it| self.answer(&it.charge, it.made.unwrap()));
        }
    }

    fn answer(
        &self,
        charge: &LeaseCharge,
        (state, undos, now): (State, Vec<weir_limit::Undo>, Micros),
    ) {
        for returned in charge.answer(state, &undos, now) {
            self.charge_lease(returned);
        }
    }
}

impl Store for Shared {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        self.make_all(Some(self.thread()));
        answers.extend(batch.charges.iter().map(|charge| Ok(self.charge_one(charge).1)));
        None::<Pending<Answers>>
    }

    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        charge.set_sent();
        match &self.in_flight {
            // Nobody waits: those of one replica are made in order.
            Some(in_flight) => {
                let (thread, sent) = (self.thread(), self.clock.now());
                in_flight.lock().push(InFlight { charge, thread, sent, made: None });
            }
            None => {
                let made = self.make(&charge);
                self.answer(&charge, made);
            }
        }
    }
}

impl States for Shared {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        _: Duration,
    ) -> Result<KeyState, StoreError> {
        let states = self.states.lock();
        let state = states.get(&Shared::name(&key.charge())).cloned().unwrap_or_default();
        Ok(key.plan.inspect(&state, self.clock.now(), spans))
    }

    async fn reset(&self, key: StateKey<'_>, _: Duration) -> Result<(), StoreError> {
        self.states.lock().remove(&Shared::name(&key.charge()));
        Ok(())
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let (mut states, charge) = (self.states.lock(), &batch.charges[0]);
        let state = states.entry(Shared::name(charge)).or_default();
        Ok(Grant::charge(charge.plan, state, self.clock.now(), charge.op))
    }
}

fn limit(algorithm: impl Into<Algorithm>, n: u32) -> Limit {
    let minute = Limit::fixed_window(n, Unit::Minute, 1).unwrap();
    Limit { algorithm: algorithm.into(), charge_denied: false, ..minute }
}

fn sliding(n: u32, period: Micros) -> Limit {
    limit(SlidingWindow { n, period }, n)
}

fn ring(n: u32, period: Micros) -> Limit {
    limit(BucketedWindow { n, period, buckets: 5 }, n)
}

/// A fixed window that does not charge what it denies.
fn fixed(n: u32, unit: Unit) -> Limit {
    Limit { charge_denied: false, ..Limit::fixed_window(n, unit, 1).unwrap() }
}

fn calendar(n: u32) -> Limit {
    let calendar = Calendar::new(Unit::Day, "Europe/Berlin").ok().map(Arc::new);
    limit(weir_limit::FixedWindow { n, period: 86_400 * SECOND, calendar }, n)
}

fn plan(limits: impl IntoIterator<Item = Limit>) -> Arc<Plan> {
    Arc::new(Plan::new(limits.into_iter().collect()).with_near_limit_ratio(Some(0.8)))
}

fn leasing() -> LocalOptions {
    LocalOptions { leases_for: Duration::from_micros(LENGTH), ..LocalOptions::default() }
}

/// A replica.
fn leases(shared: &Shared) -> Local<Shared> {
    Local::new(shared.clone(), shared.clock.clone(), leasing())
}

thread_local! {
    /// Its clock goes on by itself where everything waits for it.
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
}

/// Charges a key. If that waits, `answer` is called once; then it waits for as long as it does.
fn charge_with(
    store: &impl Store,
    plan: &Arc<Plan>,
    value: &str,
    op: Op,
    answer: impl FnOnce(),
) -> Decision {
    let entries = [("key", value)];
    let key = Key { domain: "d", entries: &entries };
    let charges = [Charge { key, plan, op, hold: None, role: Role::Enforced }];
    let batch = Batch::new(&charges, Duration::from_secs(1));
    let mut answers = Answers::new();
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut charging = pin!(store.charge(&batch, &mut answers));
            let first = poll_fn(|context| Poll::Ready(charging.as_mut().poll(context))).await;
            if first.is_pending() {
                answer();
                charging.await;
            }
        });
    });
    answers.pop().unwrap().unwrap()
}

/// Charges a key, without answers to what is in flight.
fn charge_now(store: &impl Store, plan: &Arc<Plan>, value: &str, op: Op) -> Decision {
    charge_with(store, plan, value, op, || {})
}

/// Takes hits one by one until the key is leased.
fn heat(store: &Local<Shared>, plan: &Arc<Plan>) {
    for _ in 0..40 {
        charge_now(store, plan, "a", Op::Take(1));
    }
    assert_eq!(store.table.leases(), 1);
}

fn left(store: &Local<Shared>, plan: &Arc<Plan>) -> u64 {
    let entries = [("key", "a")];
    let key = Key { domain: "d", entries: &entries };
    let charge = Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    store.table.left(&charge).map_or(0, |(left, _)| left)
}

/// What the shared store has counted.
fn used(shared: &Shared, plan: &Arc<Plan>) -> u64 {
    let look = charge_now(shared, plan, "a", Op::Take(0));
    u64::from(plan.limits()[0].requests_per_unit) - look.remaining
}

#[test]
fn a_hot_key_is_served_from_hits_that_are_paid() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(10_000, Unit::Hour)]));
    for i in 1..=32 {
        let decision = charge_now(&replica, &plan, "a", Op::Take(1));
        assert_eq!((decision.source, decision.remaining), (Source::Store, 10_000 - i));
    }
    assert_eq!((left(&replica, &plan), used(&shared, &plan)), (31, 63));
    for i in 33..=100 {
        let decision = charge_now(&replica, &plan, "a", Op::Take(1));
        assert_eq!((decision.source, decision.remaining), (Source::Leased, 10_000 - i));
        assert_eq!(used(&shared, &plan), i + left(&replica, &plan));
    }
    // Nobody asks any more.
    shared.clock.advance(LENGTH + SWEEP_INTERVAL);
    replica.send(replica.table.sweep());
    assert_eq!((left(&replica, &plan), used(&shared, &plan)), (0, 100));
    shared.clock.advance(LENGTH);
    replica.send(replica.table.sweep());
    assert_eq!(replica.table.leases(), 0);
}

#[test]
fn the_end_of_a_limit_is_served_hit_by_hit() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([sliding(100, 60 * SECOND)]));
    let decisions: Vec<_> =
        (0..101).map(|_| charge_now(&replica, &plan, "a", Op::Take(1))).collect();
    assert!(decisions[..100].iter().all(|decision| decision.allowed));
    assert_eq!(decisions.iter().filter(|it| it.source == Source::Leased).count(), 8);
    assert!(!decisions[100].allowed);
}

#[test]
fn what_does_not_fit_returns_the_rest_first() {
    let up_to = UpTo { least: 1, most: 3, share: std::num::NonZeroU32::MIN };
    let add = Op::Add { hits: 1, limits: u16::MAX };
    let settle = Op::Reservation(ReservationOp::settle(1));
    for op in [Op::Take(90), Op::Refund(1), Op::UpTo(up_to), add, settle] {
        let shared = Shared::new();
        let (replica, plan) = (leases(&shared), plan([fixed(130, Unit::Hour)]));
        heat(&replica, &plan);
        assert!(left(&replica, &plan) > 0);
        let decision = charge_now(&replica, &plan, "a", op);
        assert!(decision.allowed && decision.source == Source::Store);
        assert_eq!((left(&replica, &plan), used(&shared, &plan)), (0, 130 - decision.remaining));
    }
}

#[test]
fn a_grant_leaves_the_lease_of_its_key_and_its_undo_ends_it() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(1_000, Unit::Hour)]));
    heat(&replica, &plan);
    let (leased, charged) = (left(&replica, &plan), used(&shared, &plan));
    assert!(leased > 0);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let op = Op::UpTo(UpTo { least: 1, most: 30, share: std::num::NonZeroU32::MIN });
    let charges = [Charge { key, plan: &plan, op, hold: None, role: Role::Enforced }];
    let batch = Batch::new(&charges, Duration::from_secs(1));
    let granted = RUNTIME.with(|runtime| runtime.block_on(replica.grant(&batch)).unwrap());
    assert_eq!(granted.decision.granted, 30);
    assert_eq!((left(&replica, &plan), used(&shared, &plan)), (leased, charged + 30));
    for undo in granted.undos {
        charge_now(&replica, &plan, "a", Op::Undo(undo));
    }
    assert_eq!((left(&replica, &plan), used(&shared, &plan)), (0, 40));
}

#[test]
fn a_look_is_answered_from_the_lease() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([ring(1_000, 60 * SECOND)]));
    heat(&replica, &plan);
    let before = left(&replica, &plan);
    let decision = charge_now(&replica, &plan, "a", Op::Take(0));
    assert_eq!((decision.source, decision.remaining), (Source::Leased, 960));
    assert_eq!(left(&replica, &plan), before);
}

#[test]
fn a_lease_ends_with_the_window() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(1_000, Unit::Second)]));
    shared.clock.advance(SECOND - 20_000);
    heat(&replica, &plan);
    // The store's clock may run faster by a thousandth.
    shared.clock.advance(19_979);
    assert_eq!(charge_now(&replica, &plan, "a", Op::Take(1)).source, Source::Leased);
    shared.clock.advance(1);
    assert_eq!(charge_now(&replica, &plan, "a", Op::Take(1)).source, Source::Store);
    shared.clock.advance(20);
    assert_eq!(used(&shared, &plan), 0);
}

#[test]
fn other_numbers_end_the_lease() {
    let shared = Shared::new();
    let (replica, first) = (leases(&shared), plan([fixed(1_000, Unit::Hour)]));
    heat(&replica, &first);
    let lowered = plan([fixed(50, Unit::Hour)]);
    let decision = charge_now(&replica, &lowered, "a", Op::Take(1));
    assert_eq!((decision.source, decision.remaining), (Source::Store, 9));
    assert_eq!(replica.table.leases(), 0);
}

#[test]
fn a_service_that_drains_returns_everything_and_takes_no_more() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(1_000, Unit::Hour)]));
    heat(&replica, &plan);
    replica.table.drain();
    replica.send(replica.table.sweep());
    assert_eq!((replica.table.leases(), used(&shared, &plan)), (0, 40));
    for _ in 0..100 {
        charge_now(&replica, &plan, "a", Op::Take(1));
    }
    assert_eq!((replica.table.leases(), used(&shared, &plan)), (0, 140));
}

#[test]
fn keys_are_bounded_in_number_and_bytes() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(1_000, Unit::Hour)]));
    let heat = |value: &str| {
        for _ in 0..32 {
            charge_now(&replica, &plan, value, Op::Take(1));
        }
    };
    let long = "v".repeat(1 << 20);
    for i in 0..32 {
        heat(&format!("{long}{i}"));
    }
    assert_eq!(replica.table.leases(), 15);
    // Leases that are over make room.
    shared.clock.advance(2 * LENGTH);
    for _ in 0..2 {
        replica.send(replica.table.sweep());
        shared.clock.advance(2 * LENGTH);
    }
    assert_eq!(replica.table.leases(), 0);
    heat("short");
    assert_eq!(replica.table.leases(), 1);
}

#[test]
fn hits_of_other_plans_are_not_leased() {
    let shared = Shared::new();
    let hour = fixed(1_000, Unit::Hour);
    let charging = Limit { charge_denied: true, ..hour.clone() };
    let shadow = Limit { shadow_mode: true, ..hour.clone() };
    for plan in [
        plan([limit(weir_limit::Gcra::new(1_000, 60 * SECOND, 1_000, 0).unwrap(), 1_000)]),
        plan([hour.clone(), charging]),
        plan([hour.clone(), shadow]),
        Arc::new(Plan::new(vec![hour]).without_leases()),
    ] {
        let replica = leases(&shared);
        for _ in 0..100 {
            assert_eq!(charge_now(&replica, &plan, "a", Op::Take(1)).source, Source::Store);
        }
        assert_eq!(replica.table.leases(), 0);
    }
}

#[test]
fn leases_serve_several_keys_of_a_batch_at_once() {
    let shared = Shared::new();
    let (replica, plan) = (leases(&shared), plan([fixed(10_000, Unit::Hour)]));
    for value in ["a", "b"] {
        (0..40).for_each(|_| drop(charge_now(&replica, &plan, value, Op::Take(1))));
    }
    let entries = [[("key", "a")], [("key", "b")]];
    let charges = entries.each_ref().map(|entries| Charge {
        key: Key { domain: "d", entries },
        plan: &plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Enforced,
    });
    let mut answers = Answers::new();
    assert!(replica.start(Batch::new(&charges, Duration::ZERO), &mut answers).is_none());
    let sources: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().source).collect();
    assert_eq!(sources, [Source::Leased; 2]);
}

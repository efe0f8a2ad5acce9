use std::num::NonZeroU32;
use std::sync::Arc;

use crate::conformance::fakes::{Fake, Gated};
use crate::conformance::{self, DAWN, charge, plan, take, try_read, try_reset};
use crate::local::*;
use crate::memory::MemoryStore;
use crate::{Entry, Key, Role};
use weir_common::clock::ManualClock;
use weir_limit::{
    Algorithm, Concurrency, Decision, FixedWindow, Gcra, Limit, Op, Plan, SECOND, Source,
    TokenBucket, Undo, Unit, UpTo,
};

mod bans;
mod cache;
mod property;
mod waits;

type Clocks = Arc<ManualClock>;
type Inner = Arc<Fake<Arc<MemoryStore<Clocks>>>>;
type Denier = Local<Inner>;

const MAX: Duration = Duration::from_millis(250);

/// Two replicas on one store.
fn replicas(deny_locally_for: Duration) -> ([Denier; 2], Clocks) {
    let clock = Arc::new(ManualClock::new(DAWN));
    let shared = Arc::new(MemoryStore::new(clock.clone(), 10_000));
    let options = LocalOptions { deny_locally_for, ..LocalOptions::default() };
    let replica = || Local::new(Fake::new(shared.clone()), clock.clone(), options);
    ([replica(), replica()], clock.clone())
}

/// `n` of a fixed window that does not charge denied hits.
fn quiet(n: u32, unit: Unit) -> Arc<Plan> {
    let limit = Limit::fixed_window(n, unit, 1).unwrap();
    Arc::new(Plan::new(vec![Limit { charge_denied: false, ..limit }]))
}

async fn refund(store: &impl Store, plan: &Arc<Plan>, hits: u64) {
    make(store, plan, Op::Refund(hits)).await;
}

async fn make(store: &impl Store, plan: &Arc<Plan>, op: Op) {
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let back = Charge { key, plan, op, hold: None, role: Role::Enforced };
    assert!(charge(store, &[back], false).await[0].allowed);
}

#[tokio::test]
async fn conforms() {
    let ([store, _], clock) = replicas(Duration::from_secs(3_600));
    conformance::admits_n_in_each_window(&store, &clock).await;
    conformance::counts_each_key_separately(&store).await;
    conformance::looks_and_refunds(&store).await;
    conformance::charges_all_or_none(&store).await;
    conformance::adds_its_answers(&store).await;
    conformance::reservations::conforms(&store, &clock).await;
    conformance::bans::conforms(&store, &clock).await;
}

#[tokio::test]
async fn states_are_those_of_the_inner_store() {
    let ([store, _], clock) = replicas(Duration::ZERO);
    conformance::states::conforms(&store, &clock).await;
    // Denials are repeated, but not after a reset.
    let ([store, _], clock) = replicas(Duration::from_secs(3_600));
    conformance::states::a_reset_key_starts_over_and_no_other(&store).await;
    conformance::states::counts_over_spans(&store, &clock).await;
}

#[tokio::test]
async fn a_reset_ends_the_denials_of_its_key_even_if_it_fails() {
    let ([store, _], _) = replicas(MAX);
    let plan = quiet(1, Unit::Hour);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    for value in ["a", "b", "a", "b"] {
        take(&store, "d", value, &plan, 1).await;
    }
    store.inner().asked();
    let read = try_read(&store, key, &plan, &[]).await.unwrap();
    assert_eq!(read.limits[0].used, 1, "of the store, while denials are repeated");
    store.inner().fail(|_| Some(StoreError::TimedOut));
    assert_eq!(try_reset(&store, key, &plan).await, Err(StoreError::TimedOut));
    store.inner().fail(|_| None);
    assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
    assert_eq!(store.inner().asked(), 1, "it may have been reset");
    try_reset(&store, key, &plan).await.unwrap();
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
    assert_eq!(store.inner().asked(), 1);
    assert!(!take(&store, "d", "b", &plan, 1).await.allowed);
    assert_eq!(store.inner().asked(), 0, "the other key is still known to be denied");
}

#[test]
fn admits_exactly_n_of_racing() {
    let ([store, _], _) = replicas(MAX);
    let store = Arc::new(store);
    let stores = || std::future::ready(store.clone());
    conformance::admits_exactly_n_of_racing(&stores);
    conformance::operations::grants_exactly_n_of_racing(&stores);
    conformance::reservations::reserves_at_most_n_of_racing(&stores);
}

#[tokio::test]
async fn a_denial_is_repeated_until_its_wait_is_over_to_the_microsecond() {
    let ([store, _], clock) = replicas(Duration::from_secs(3_600));
    let plan = quiet(3, Unit::Minute);
    assert!(take(&store, "d", "a", &plan, 3).await.allowed);
    clock.advance(50 * SECOND);
    let first = take(&store, "d", "a", &plan, 1).await;
    assert_eq!((first.allowed, first.retry_after), (false, Some(10 * SECOND)));
    store.inner().asked();

    clock.advance(4 * SECOND);
    let again = take(&store, "d", "a", &plan, 1).await;
    let expected = Decision {
        retry_after: Some(6 * SECOND),
        reset_after: 6 * SECOND,
        source: Source::DeniedLocally,
        near: None,
        ..first
    };
    assert_eq!(again, expected);
    assert_eq!(again.used_before, 3);
    clock.advance(6 * SECOND - 1);
    assert_eq!(take(&store, "d", "a", &plan, 1).await.retry_after, Some(1));
    assert_eq!(store.inner().asked(), 0);
    clock.advance(1);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
    assert_eq!(store.inner().asked(), 1);
}

#[tokio::test]
async fn only_known_denials_need_no_store() {
    let ([store, _], _) = replicas(MAX);
    let plan = quiet(1, Unit::Hour);
    let (a, b) = ([("key", "a")], [("key", "b")]);
    let charge_of = |entries| Charge {
        key: Key { domain: "d", entries },
        plan: &plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Enforced,
    };
    let sources = async |charges: &[Charge<'_>], together| {
        let decisions = conformance::charge(&store, charges, together).await;
        let sources = decisions.iter().map(|decision| decision.source).collect::<Vec<_>>();
        (sources, store.inner().asked())
    };
    take(&store, "d", "a", &plan, 2).await;
    store.inner().asked();
    let of_store = vec![Source::Store];
    assert_eq!(
        sources(&[charge_of(&a)], false).await,
        (of_store.clone(), 1),
        "other hits were denied"
    );
    take(&store, "d", "a", &plan, 1).await;
    store.inner().asked();
    let known = Source::DeniedLocally;
    assert_eq!(sources(&[charge_of(&a), charge_of(&a)], false).await, (vec![known; 2], 0));
    assert_eq!(
        sources(&[charge_of(&a), charge_of(&b)], false).await,
        (vec![known, Source::Store], 1)
    );
    assert_eq!(
        sources(&[charge_of(&a)], true).await,
        (of_store, 1),
        "together always goes to the store"
    );
}

#[tokio::test]
async fn never_longer_than_deny_locally_for() {
    let ([store, _], clock) = replicas(MAX);
    for plan in [quiet(1, Unit::Hour), quiet(0, Unit::Hour)] {
        take(&store, "d", "a", &plan, 1).await;
        assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
        store.inner().asked();
        clock.advance(249_999);
        assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
        assert_eq!(store.inner().asked(), 0);
        clock.advance(1);
        assert!(!take(&store, "d", "a", &plan, 1).await.allowed);
        assert_eq!(store.inner().asked(), 1);
    }
    let ([off, _], _) = replicas(Duration::ZERO);
    for asked in 1..4 {
        take(&off, "d", "a", &plan(0, Unit::Hour), 1).await;
        assert_eq!(off.inner().calls.load(std::sync::atomic::Ordering::Relaxed), asked);
        assert_eq!(off.table.denials(), 0);
    }
}

#[tokio::test]
async fn a_step_of_the_wall_clock_makes_it_neither_longer_nor_shorter() {
    let day = 86_400 * SECOND as i64;
    for step in [-day, day] {
        let ([store, _], clock) = replicas(MAX);
        let plan = quiet(1, Unit::Year);
        take(&store, "d", "a", &plan, 1).await;
        let first = take(&store, "d", "a", &plan, 1).await;
        clock.step(step);
        clock.advance(249_999);
        let again = take(&store, "d", "a", &plan, 1).await;
        assert_eq!(again.source, Source::DeniedLocally);
        assert_eq!(again.retry_after, first.retry_after.map(|wait| wait - 249_999));
        clock.advance(1);
        assert_eq!(take(&store, "d", "a", &plan, 1).await.source, Source::Store);
    }
}

#[tokio::test]
async fn a_lone_window_denies_the_same_hits_or_more_and_asks_for_fewer() {
    let ([store, _], _) = replicas(MAX);
    let plan = quiet(10, Unit::Hour);
    assert!(take(&store, "d", "a", &plan, 6).await.allowed);
    let wait = take(&store, "d", "a", &plan, 5).await.retry_after;
    assert!(wait.is_some());
    store.inner().asked();
    // More than the limit is never allowed.
    for (hits, wait) in [(5, wait), (6, wait), (10, wait), (11, None), (u64::MAX, None)] {
        let decision = take(&store, "d", "a", &plan, hits).await;
        assert_eq!(
            (decision.source, decision.retry_after),
            (Source::DeniedLocally, wait),
            "{hits}"
        );
    }
    assert_eq!(store.inner().asked(), 0);
    assert!(take(&store, "d", "a", &plan, 0).await.allowed, "a look goes to the store");
    assert!(take(&store, "d", "a", &plan, 3).await.allowed);
    // Now 2 hits are denied too, which covers more charges.
    assert!(!take(&store, "d", "a", &plan, 2).await.allowed);
    assert_eq!(store.inner().asked(), 3);
    assert_eq!(take(&store, "d", "a", &plan, 2).await.source, Source::DeniedLocally);
    assert_eq!(take(&store, "d", "a", &plan, 5).await.source, Source::DeniedLocally);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
    assert_eq!(take(&store, "d", "b", &plan, 10).await.source, Source::Store, "another key");
}

#[tokio::test]
async fn more_hits_wait_longer_and_go_to_the_store() {
    let ([store, _], _) = replicas(MAX);
    let minute = Limit::fixed_window(60, Unit::Minute, 1).unwrap();
    let algorithm = Algorithm::Gcra(Gcra::new(60, 60 * SECOND, 10, 0).unwrap());
    let plan = Arc::new(Plan::new(vec![Limit { algorithm, charge_denied: false, ..minute }]));
    assert!(take(&store, "d", "a", &plan, 10).await.allowed);
    for source in [Source::Store, Source::DeniedLocally] {
        for (hits, wait) in [(1, 1), (10, 10), (3, 3)] {
            let decision = take(&store, "d", "a", &plan, hits).await;
            let actual = (decision.source, decision.retry_after);
            assert_eq!(actual, (source, Some(wait * SECOND)), "{hits}");
        }
    }
}

#[tokio::test]
async fn the_limit_that_denies_more_hits_is_returned() {
    let ([store, _], _) = replicas(MAX);
    let limit = |n, unit| {
        let limit = Limit::fixed_window(n, unit, 1).unwrap();
        Limit { charge_denied: false, ..limit }
    };
    let plan = Arc::new(Plan::new(vec![limit(5, Unit::Second), limit(8, Unit::Day)]));
    assert!(take(&store, "d", "a", &plan, 5).await.allowed);
    for source in [Source::Store, Source::DeniedLocally] {
        for (hits, limit, wait) in [(1, 0, SECOND), (4, 1, 86_400 * SECOND)] {
            let decision = take(&store, "d", "a", &plan, hits).await;
            let actual = (decision.source, decision.limit, decision.retry_after);
            assert_eq!(actual, (source, limit, Some(wait)), "{hits}");
        }
    }
}

#[tokio::test]
async fn hits_admitted_here_end_cached_denials_immediately() {
    let ([store, _], clock) = replicas(Duration::from_secs(60));
    let minute = Limit::fixed_window(60, Unit::Minute, 1).unwrap();
    let algorithm = Algorithm::Gcra(Gcra::new(60, 60 * SECOND, 10, 0).unwrap());
    let plan = Arc::new(Plan::new(vec![Limit { algorithm, charge_denied: false, ..minute }]));
    assert!(take(&store, "d", "a", &plan, 10).await.allowed);
    assert_eq!(take(&store, "d", "a", &plan, 10).await.retry_after, Some(10 * SECOND));
    clock.advance(2 * SECOND);
    assert_eq!(take(&store, "d", "a", &plan, 10).await.retry_after, Some(8 * SECOND));
    assert!(take(&store, "d", "a", &plan, 2).await.allowed);
    assert_eq!(take(&store, "d", "a", &plan, 10).await.retry_after, Some(10 * SECOND));
    // Of one batch, in its order.
    clock.advance(SECOND);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let charge_of =
        |hits| Charge { key, plan: &plan, op: Op::Take(hits), hold: None, role: Role::Enforced };
    let decision = charge(&store, &[charge_of(10), charge_of(1), charge_of(10)], false).await;
    let waits: Vec<_> = decision.iter().map(|decision| decision.retry_after).collect();
    assert_eq!(waits, [Some(9 * SECOND), None, Some(10 * SECOND)]);
}

#[tokio::test]
async fn hits_that_are_never_allowed_get_the_reset() {
    let ([store, _], clock) = replicas(Duration::from_secs(86_400));
    for charge_denied in [false, true] {
        let limit = Limit::fixed_window(3, Unit::Minute, 1).unwrap();
        let plan = Arc::new(Plan::new(vec![Limit { charge_denied, ..limit }]));
        for (pass, reset) in [(10, 60), (40, 50), (30, 10), (0, 40), (40, 40), (0, 60)] {
            let decision = take(&store, "d", "a", &plan, 4).await;
            assert_eq!((decision.retry_after, decision.reset_after), (None, reset * SECOND));
            clock.advance(pass * SECOND);
        }
    }
}

#[tokio::test]
async fn refunds_made_here_are_noticed_immediately_and_elsewhere_in_time() {
    let ([here, there], clock) = replicas(MAX);
    let plan = quiet(1, Unit::Hour);
    take(&here, "d", "a", &plan, 1).await;
    for store in [&here, &there] {
        take(store, "d", "a", &plan, 1).await;
        assert_eq!(take(store, "d", "a", &plan, 1).await.source, Source::DeniedLocally);
    }
    clock.advance(1);
    refund(&here, &plan, 1).await;
    clock.advance(249_998);
    assert!(!take(&there, "d", "a", &plan, 1).await.allowed);
    assert!(take(&here, "d", "a", &plan, 1).await.allowed);
    let taken = clock.monotonic();
    make(&here, &plan, Op::Undo(Undo { hits: 1, taken, limits: 1 })).await;
    clock.advance(1);
    assert!(take(&there, "d", "a", &plan, 1).await.allowed);
}

#[tokio::test]
async fn the_least_of_a_reservation_is_denied_as_a_take_and_nothing_else_is() {
    let ([store, _], _) = replicas(MAX);
    let plan = quiet(3, Unit::Hour);
    let make = async |op| {
        let key = Key { domain: "d", entries: &[("key", "a")] };
        let one = Charge { key, plan: &plan, op, hold: None, role: Role::Enforced };
        charge(&store, &[one], false).await.swap_remove(0)
    };
    let up_to = |least| Op::UpTo(UpTo { least, most: 5, share: NonZeroU32::MIN });
    make(Op::Take(3)).await;
    // Either way, a denial of as many hits is learned.
    assert_eq!(make(up_to(2)).await.source, Source::Store);
    assert_eq!(make(Op::Take(2)).await.source, Source::DeniedLocally);
    let denied = make(up_to(2)).await;
    assert_eq!((denied.source, denied.allowed, denied.granted), (Source::DeniedLocally, false, 0));
    for op in [up_to(0), Op::Add { hits: 2, limits: 1 }] {
        let decision = make(op).await;
        assert_eq!((decision.source, decision.allowed), (Source::Store, true), "{op:?}");
    }
}

#[tokio::test]
async fn waits_that_added_or_granted_hits_lengthen_are_asked_for_again() {
    let gcra = Algorithm::Gcra(Gcra::new(60, 60 * SECOND, 5, 5).unwrap());
    let limit = Limit::fixed_window(60, Unit::Minute, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { algorithm: gcra, charge_denied: false, ..limit }]));
    let ([store, _], _) = replicas(MAX);
    assert!(take(&store, "d", "a", &plan, 3).await.allowed);
    let waits = async || {
        let first = take(&store, "d", "a", &plan, 4).await;
        let again = take(&store, "d", "a", &plan, 4).await;
        assert_eq!((first.source, again.source), (Source::Store, Source::DeniedLocally));
        assert_eq!(first.retry_after, again.retry_after);
        first.retry_after
    };
    assert_eq!(waits().await, Some(2 * SECOND));
    make(&store, &plan, Op::UpTo(UpTo { least: 0, most: 1, share: NonZeroU32::MIN })).await;
    assert_eq!(waits().await, Some(3 * SECOND));
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let op = Op::UpTo(UpTo { least: 1, most: 1, share: NonZeroU32::MIN });
    let one = Charge { key, plan: &plan, op, hold: None, role: Role::Enforced };
    assert_eq!(store.grant(&Batch::new(&[one], MAX)).await.unwrap().decision.granted, 1);
    assert_eq!(waits().await, Some(4 * SECOND));
    make(&store, &plan, Op::Add { hits: 4, limits: 1 }).await;
    assert_eq!(waits().await, Some(8 * SECOND));
}

#[tokio::test]
async fn a_denial_from_before_a_refund_is_not_cached_afterwards() {
    let clock = Arc::new(ManualClock::new(DAWN));
    let inner = MemoryStore::new(clock.clone(), 100);
    let plan = quiet(1, Unit::Hour);
    take(&inner, "d", "a", &plan, 1).await;
    let gated = Gated { inner, release: tokio::sync::Semaphore::new(0) };
    let store = Local::new(
        gated,
        clock.clone(),
        LocalOptions { deny_locally_for: MAX, ..LocalOptions::default() },
    );
    // Denied, but the answer has not arrived.
    let mut late = Box::pin(take(&store, "d", "a", &plan, 1));
    assert!(tokio::time::timeout(Duration::from_millis(5), &mut late).await.is_err());
    clock.advance(10);
    // The effect of refunding through this replica, without waiting for the same answer.
    refund(&store.inner().inner, &plan, 1).await;
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let op = Op::Refund(1);
    let back = Charge { key, plan: &plan, op, hold: None, role: Role::Enforced };
    let sent = Sent::new(&Batch::new(&[back], MAX), clock.monotonic());
    store.table.learn(&back, &Err(StoreError::TimedOut), sent);
    store.inner().release.add_permits(3);
    assert!(!late.await.allowed);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
}

#[tokio::test]
async fn plans_with_other_numbers_go_to_the_store() {
    let ([store, _], _) = replicas(MAX);
    let old = quiet(2, Unit::Hour);
    take(&store, "d", "a", &old, 2).await;
    take(&store, "d", "a", &old, 1).await;
    assert_eq!(take(&store, "d", "a", &old, 1).await.source, Source::DeniedLocally);
    let same = quiet(2, Unit::Hour);
    assert_eq!(take(&store, "d", "a", &same, 1).await.source, Source::DeniedLocally);

    let raised = quiet(3, Unit::Hour);
    assert!(take(&store, "d", "a", &raised, 1).await.allowed);
    assert!(!take(&store, "d", "a", &raised, 1).await.allowed);
    assert_eq!(take(&store, "d", "a", &raised, 1).await.source, Source::DeniedLocally);
    let lowered = quiet(1, Unit::Hour);
    let decision = take(&store, "d", "a", &lowered, 1).await;
    assert_eq!((decision.allowed, decision.source), (false, Source::Store));
    assert_eq!(take(&store, "d", "a", &lowered, 1).await.source, Source::DeniedLocally);
}

#[tokio::test]
async fn only_the_unknown_charges_of_a_batch_go_to_the_store() {
    let ([store, _], _) = replicas(MAX);
    let plan = plan(1, Unit::Hour);
    for value in ["b", "d"] {
        take(&store, "d", value, &plan, 1).await;
        take(&store, "d", value, &plan, 1).await;
    }
    store.inner().asked();
    let entries = ["a", "b", "c", "d", "a"].map(|value| [("key", value)]);
    let charge_of = |entries| Charge {
        key: Key { domain: "d", entries },
        plan: &plan,
        op: Op::Take(1),
        hold: None,
        role: Role::Shadow,
    };
    let charges: Vec<_> =
        entries.iter().map(|entries: &[Entry<'_>; 1]| charge_of(entries)).collect();
    let decision = charge(&store, &charges, false).await;
    let actual: Vec<_> =
        decision.iter().map(|decision| (decision.allowed, decision.source)).collect();
    let (asked, known) = (Source::Store, Source::DeniedLocally);
    let expected = [(true, asked), (false, known), (true, asked), (false, known), (false, asked)];
    assert_eq!(actual, expected);
    assert_eq!(store.inner().asked(), 3);
    // All are known now except one that was never denied.
    let decision = charge(&store, &charges, false).await;
    assert_eq!(decision[0].source, Source::DeniedLocally);
    assert_eq!(store.inner().asked(), 1);
    // Together, all go to the store.
    charge(&store, &charges, true).await;
    assert_eq!(store.inner().asked(), 5);
}

#[tokio::test]
async fn a_denial_by_hits_of_the_same_batch_is_not_cached() {
    let ([store, _], _) = replicas(MAX);
    let plan = quiet(1, Unit::Hour);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    let one = Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    let decision = charge(&store, &[one, one], true).await;
    assert_eq!([decision[0].allowed, decision[1].allowed], [true, false]);
    assert!(take(&store, "d", "a", &plan, 1).await.allowed);
}

#[tokio::test]
async fn plans_that_a_denial_changes_and_shadow_plans_always_go_to_the_store() {
    let minute = 60 * SECOND;
    let limit = |algorithm, charge_denied, shadow_mode| Limit {
        algorithm,
        charge_denied,
        shadow_mode,
        ..Limit::fixed_window(1, Unit::Minute, 1).unwrap()
    };
    let fixed = || Algorithm::FixedWindow(FixedWindow { n: 1, period: minute, calendar: None });
    let gcra = || Algorithm::Gcra(Gcra::new(1, minute, 1, 1).unwrap());
    let bucket = |strict| {
        let (amount, interval) = (1, minute);
        Algorithm::TokenBucket(TokenBucket { capacity: 1, amount, interval, strict, max_debt: 0 })
    };
    let concurrency =
        || Algorithm::Concurrency(Concurrency { n: 1, timeout: minute, hold_id: None });
    let plans = [
        (true, vec![limit(fixed(), true, false)]),
        (true, vec![limit(fixed(), false, false), limit(gcra(), false, false)]),
        (true, vec![limit(bucket(false), false, false)]),
        (false, vec![limit(fixed(), false, false), limit(fixed(), true, false)]),
        (false, vec![limit(gcra(), true, false)]),
        (false, vec![limit(bucket(true), false, false)]),
        (false, vec![limit(concurrency(), false, false)]),
        (false, vec![limit(fixed(), false, false), limit(gcra(), false, true)]),
    ];
    for (repeats, limits) in plans {
        let plan = Arc::new(Plan::new(limits));
        let ([store, _], _) = replicas(MAX);
        for _ in 0..2 {
            take(&store, "d", "a", &plan, 1).await;
        }
        let decision = take(&store, "d", "a", &plan, 1).await;
        assert!(!decision.allowed);
        assert_eq!(decision.source == Source::DeniedLocally, repeats, "{plan:?}");
    }
}

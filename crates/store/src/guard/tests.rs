use std::num::NonZeroU32;
use std::time::Duration;

use super::*;
use crate::conformance::fakes::{Fake, Never};
use crate::conformance::states::{try_read, try_reset};
use crate::conformance::{self, DAWN, plan, take};
use crate::{Entry, Key};
use weir_common::clock::ManualClock;
use weir_limit::{
    Algorithm, Gcra, ReduceBucket, ReservationOp, Reserve, TokenBucket, Undo, Unit, UpTo,
};

type Clocks = Arc<ManualClock>;
type Guarded = Guard<Arc<Fake<MemoryStore<Clocks>>>, Clocks>;

fn guarded(on_failure: OnStoreFailure, replicas: u32) -> (Guarded, Clocks) {
    let clock = Arc::new(ManualClock::new(DAWN));
    let inner = Fake::new(MemoryStore::new(clock.clone(), 1_000));
    (Guard::new(inner, clock.clone(), on_failure, replicas, 100), clock)
}

fn down(guard: &Guarded) {
    guard.inner.fail(|_| Some(StoreError::Unavailable));
}

fn up(guard: &Guarded) {
    guard.inner.fail(|_| None);
}

fn charge_of<'a>(entries: &'a [Entry<'a>], plan: &'a Arc<Plan>, op: Op) -> Charge<'a> {
    Charge { key: Key { domain: "d", entries }, plan, op, hold: None, role: Role::Enforced }
}

async fn ask(
    guard: &Guarded,
    charges: &[Charge<'_>],
    together: bool,
    on_failure: Option<OnStoreFailure>,
) -> Answers {
    let mut answers = Answers::new();
    let budget = Duration::from_millis(8);
    let batch = Batch { together, on_failure, ..Batch::new(charges, budget) };
    guard.charge(batch, &mut answers).await;
    answers
}

#[tokio::test]
async fn answers_of_a_healthy_store_are_unchanged() {
    let (guard, clock) = guarded(OnStoreFailure::Deny, 1);
    conformance::admits_n_in_each_window(&guard, &clock).await;
    conformance::looks_and_refunds(&guard).await;
    conformance::charges_all_or_none(&guard).await;
    conformance::charges_now_or_not_at_all(&guard).await;
    conformance::reservations::conforms(&guard, &clock).await;
    assert_eq!(StoreError::ALL.map(|kind| guard.counts().failed(kind)), [0; 7]);
}

#[tokio::test]
async fn states_are_those_of_the_inner_store() {
    let (guard, clock) = guarded(OnStoreFailure::Local, 3);
    conformance::states::conforms(&guard, &clock).await;
}

#[tokio::test]
async fn no_policy_replaces_errors_of_reading_and_resetting() {
    let plan = plan(7, Unit::Minute);
    let key = Key { domain: "d", entries: &[("key", "a")] };
    for policy in OnStoreFailure::ALL {
        let (guard, _) = guarded(policy, 1);
        down(&guard);
        let failed = Err(StoreError::Unavailable);
        assert_eq!(try_read(&guard, key, &plan, &[]).await, failed.clone());
        assert_eq!(try_reset(&guard, key, &plan).await, failed.map(drop));
        assert_eq!(guard.counts().degraded(policy), 0);
    }
}

#[tokio::test]
async fn a_reset_starts_the_local_count_over_too() {
    let plan = plan(4, Unit::Minute);
    let [a, b] = [[("key", "a")], [("key", "b")]];
    let (guard, _) = guarded(OnStoreFailure::Local, 2);
    let key = Key { domain: "d", entries: &a };
    down(&guard);
    let take = async |entries| {
        ask(&guard, &[charge_of(entries, &plan, Op::Take(2))], false, None)
            .await
            .swap_remove(0)
            .unwrap()
    };
    for _ in 0..2 {
        assert!(take(&a).await.allowed);
        assert!(!take(&a).await.allowed);
        assert_eq!(try_reset(&guard, key, &plan).await, Err(StoreError::Unavailable));
    }
    assert!(take(&b).await.allowed);
    up(&guard);
    assert_eq!(try_reset(&guard, key, &plan).await, Ok(()));
    down(&guard);
    assert!(take(&a).await.allowed);
    assert!(!take(&b).await.allowed, "another key keeps its count");
}

#[tokio::test]
async fn each_error_is_answered_by_policy_and_counted() {
    let plan = plan(7, Unit::Minute);
    let entries = [("key", "a")];
    let charges = [charge_of(&entries, &plan, Op::Take(1))];
    for policy in OnStoreFailure::ALL {
        let (guard, _) = guarded(policy, 1);
        for (i, kind) in StoreError::ALL.into_iter().enumerate() {
            guard.inner.fail(move |_| Some(kind));
            let answer = ask(&guard, &charges, false, None).await.swap_remove(0);
            assert_eq!(guard.counts().failed(kind), 1);
            assert_eq!(guard.counts().degraded(policy), i as u64 + 1);
            match (policy, answer) {
                (OnStoreFailure::Error, answer) => assert_eq!(answer, Err(kind)),
                (OnStoreFailure::Allow, Ok(decision)) => {
                    assert!(decision.allowed);
                    assert_eq!((decision.remaining, decision.reset_after), (7, 0));
                    assert_eq!(decision.source, Source::Degraded);
                }
                (OnStoreFailure::Deny, Ok(decision)) => {
                    assert!(!decision.allowed);
                    assert_eq!((decision.remaining, decision.retry_after), (0, Some(SECOND)));
                    assert_eq!(decision.source, Source::Degraded);
                }
                (OnStoreFailure::Local, Ok(decision)) => {
                    assert!(decision.allowed);
                    assert_eq!(decision.used_before, i as u64);
                    assert_eq!(decision.source, Source::Degraded);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn the_policy_of_a_batch_overrides_that_of_the_guard() {
    let plan = plan(7, Unit::Minute);
    let entries = [("key", "a")];
    let charges = [charge_of(&entries, &plan, Op::Take(1))];
    let (guard, _) = guarded(OnStoreFailure::Deny, 1);
    down(&guard);
    assert!(!ask(&guard, &charges, false, None).await[0].as_ref().unwrap().allowed);
    let own = ask(&guard, &charges, false, Some(OnStoreFailure::Allow)).await;
    assert!(own[0].as_ref().unwrap().allowed);
    let own = ask(&guard, &charges, false, Some(OnStoreFailure::Error)).await;
    assert_eq!(own[0], Err(StoreError::Unavailable));
}

#[tokio::test]
async fn only_failed_charges_are_answered_by_policy() {
    let plan = plan(7, Unit::Minute);
    let (a, b) = ([("key", "a")], [("key", "b")]);
    let (guard, _) = guarded(OnStoreFailure::Deny, 1);
    guard.inner.fail(|charge| (charge.key.entries[0].1 == "b").then_some(StoreError::Corrupt));
    let charges = [&b, &a, &b].map(|entries| charge_of(entries, &plan, Op::Take(1)));
    let answers = ask(&guard, &charges, false, None).await;
    let sources = [Source::Degraded, Source::Store, Source::Degraded];
    for (answer, source) in zip(&answers, sources) {
        let decision = answer.as_ref().unwrap();
        assert_eq!((decision.source, decision.allowed), (source, source == Source::Store));
    }
    assert_eq!(guard.counts().failed(StoreError::Corrupt), 2);
}

#[tokio::test]
async fn refunding_and_shadow_limits_are_never_denied() {
    let entries = [("key", "a")];
    let mut watched = Limit::fixed_window(3, Unit::Minute, 1).unwrap();
    watched.shadow_mode = true;
    let enforced = Limit::fixed_window(5, Unit::Hour, 1).unwrap();
    let only_watched = Arc::new(Plan::new(vec![watched.clone()]));
    let both = Arc::new(Plan::new(vec![watched, enforced]));
    let (guard, _) = guarded(OnStoreFailure::Deny, 1);
    down(&guard);
    let charges = [
        charge_of(&entries, &both, Op::Refund(1)),
        charge_of(&entries, &only_watched, Op::Take(1)),
        charge_of(&entries, &both, Op::Take(1)),
    ];
    let answers = ask(&guard, &charges, false, None).await;
    assert!(answers[0].as_ref().unwrap().allowed);
    assert!(answers[1].as_ref().unwrap().allowed);
    let denied = answers[2].as_ref().unwrap();
    assert_eq!((denied.allowed, denied.limit, denied.used_before), (false, 1, 5));
}

#[tokio::test]
async fn the_local_policy_limits_by_the_share_and_starts_empty() {
    let plan = plan(10, Unit::Hour);
    let (guard, clock) = guarded(OnStoreFailure::Local, 3);
    for _ in 0..10 {
        assert!(take(&guard, "d", "a", &plan, 1).await.allowed);
    }
    assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);

    for _outage in 0..2 {
        down(&guard);
        for left in [3, 2, 1, 0] {
            let decision = take(&guard, "d", "a", &plan, 1).await;
            assert!(decision.allowed);
            assert_eq!((decision.remaining, decision.source), (left, Source::Degraded));
        }
        let decision = take(&guard, "d", "a", &plan, 1).await;
        assert_eq!((decision.allowed, decision.used_before), (false, 10));
        // Still the same outage, however few requests there are.
        clock.advance(60 * SECOND);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);

        up(&guard);
        clock.advance(outage::QUIET - 1);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);
        down(&guard);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed, "one outage, not two");
        up(&guard);
        clock.advance(outage::QUIET);
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.source, Source::Store);
        assert!(guard.local.load().is_none(), "memory is freed");
        assert!(!guard.outage.is_active());
    }
}

/// What a store charged before it failed is not in the local counts.
#[tokio::test]
async fn nothing_is_undone_locally() {
    let (guard, _) = guarded(OnStoreFailure::Local, 1);
    let (plan, entries) = (plan(5, Unit::Hour), [("key", "a")]);
    down(&guard);
    ask(&guard, &[charge_of(&entries, &plan, Op::Take(2))], false, None).await;
    let undo = Op::Undo(Undo { hits: 2, taken: DAWN, limits: 1, replaced: None });
    let answers = ask(&guard, &[charge_of(&entries, &plan, undo)], false, None).await;
    assert!(answers[0].as_ref().unwrap().allowed);
    let answers = ask(&guard, &[charge_of(&entries, &plan, Op::Take(0))], false, None).await;
    assert_eq!(answers[0].as_ref().unwrap().used_before, 2);
}

/// Hits that are added are never denied, and what is granted by this replica's share is counted there.
#[tokio::test]
async fn what_was_reserved_in_the_store_is_not_settled_locally() {
    let window = Limit::fixed_window(30, Unit::Minute, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..window }]));
    let entries = [("key", "a")];
    let make = async |guard: &Guarded, id, op| {
        let op = Op::Reservation(op);
        let charge = Charge { hold: Some(id), ..charge_of(&entries, &plan, op) };
        ask(guard, &[charge], false, None).await.swap_remove(0).unwrap()
    };
    let terms = Reserve { least: 1, most: 8, timeout: 600 };
    let reserve = ReservationOp::Reserve(terms);
    let ends = [
        ReservationOp::Settle(3),
        ReservationOp::SettleOrReserve(3, terms),
        ReservationOp::Cancel(3),
    ];
    for end in ends {
        let (guard, _) = guarded(OnStoreFailure::Local, 3);
        assert_eq!(make(&guard, "store", reserve).await.granted, 8);
        down(&guard);
        let found = make(&guard, "store", end).await;
        assert_eq!((found.allowed, found.source), (true, Source::Degraded));
        assert_eq!(found.reservation, ReservationResult::None);
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.used_before, 0);
        // Reserved locally, in the share.
        let reserved = make(&guard, "local", reserve).await;
        assert_eq!((reserved.granted, reserved.remaining), (8, 2));
        assert_eq!(reserved.reservation, ReservationResult::Reserved);
        let without_hits = ReservationOp::SettleOrReserve(0, terms);
        assert_eq!(make(&guard, "another", without_hits).await.granted, 2);
        assert!(!make(&guard, "third", reserve).await.allowed);
        let found = make(&guard, "local", end).await;
        assert_eq!(
            (found.reservation, found.source),
            (ReservationResult::Settled, Source::Degraded)
        );
        let left = if end == ReservationOp::Cancel(3) { 7 } else { 5 };
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.used_before, left);
        // The store knows nothing of it.
        up(&guard);
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.used_before, 8);
        assert_eq!(make(&guard, "store", ReservationOp::Settle(3)).await.reserved, 8);
    }
}

#[tokio::test]
async fn other_policies_reserve_and_settle_nothing() {
    let window = Limit::fixed_window(30, Unit::Minute, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..window }]));
    let entries = [("key", "a")];
    let terms = Reserve { least: 1, most: 8, timeout: 600 };
    for policy in [OnStoreFailure::Allow, OnStoreFailure::Deny] {
        for (op, asks) in [
            (ReservationOp::Reserve(terms), true),
            (ReservationOp::SettleOrReserve(0, terms), true),
            (ReservationOp::SettleOrReserve(2, terms), false),
            (ReservationOp::Settle(2), false),
            (ReservationOp::Cancel(2), false),
        ] {
            let (guard, _) = guarded(policy, 1);
            down(&guard);
            let op = Op::Reservation(op);
            let charge = Charge { hold: Some("r"), ..charge_of(&entries, &plan, op) };
            let found = ask(&guard, &[charge], false, None).await.swap_remove(0).unwrap();
            assert_eq!(found.allowed, policy == OnStoreFailure::Allow || !asks, "{op:?}");
            assert_eq!((found.reservation, found.granted), (ReservationResult::None, 0));
        }
    }
}

#[tokio::test]
async fn each_policy_answers_what_is_added_and_taken_up_to() {
    let plan = plan(10, Unit::Hour);
    let entries = [("key", "a")];
    let up_to = |least| {
        let share = NonZeroU32::MIN;
        Op::UpTo(UpTo { least, most: 9, share })
    };
    let add = Op::Add { hits: 3, limits: 1 };
    for (policy, expected) in [
        (OnStoreFailure::Allow, Some([(true, 0), (true, 0), (true, 0)])),
        (OnStoreFailure::Deny, Some([(false, 0), (true, 0), (true, 0)])),
        // Half of ten; then nothing is left.
        (OnStoreFailure::Local, Some([(true, 5), (true, 0), (true, 0)])),
        (OnStoreFailure::Error, None),
    ] {
        let (guard, _) = guarded(policy, 2);
        down(&guard);
        let charges = [up_to(1), up_to(0), add].map(|op| charge_of(&entries, &plan, op));
        let answers = ask(&guard, &charges, false, None).await;
        let decided: Option<Vec<_>> = answers
            .iter()
            .map(|answer| answer.as_ref().ok().map(|it| (it.allowed, it.granted)))
            .collect();
        assert_eq!(decided, expected.map(Vec::from), "{policy:?}");
        if policy == OnStoreFailure::Local {
            let look = ask(&guard, &[charge_of(&entries, &plan, Op::Take(0))], false, None).await;
            assert!(!look[0].as_ref().unwrap().allowed, "what was added is counted");
        }
    }
}

/// The share of a window changes at once, and what was counted stays counted.
#[tokio::test]
async fn another_number_of_replicas_changes_the_share_of_a_window_during_an_outage() {
    let hour = Limit::fixed_window(12, Unit::Hour, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..hour }]));
    let (guard, _) = guarded(OnStoreFailure::Local, 2);
    down(&guard);
    assert!(take(&guard, "d", "a", &plan, 3).await.allowed);
    for (replicas, allowed) in [(6, false), (4, false), (3, true), (3, false), (2, true), (1, true)]
    {
        guard.replicas.set(replicas);
        assert_eq!(take(&guard, "d", "a", &plan, 1).await.allowed, allowed, "{replicas}");
    }
    assert_eq!(take(&guard, "d", "a", &plan, 0).await.used_before, 6);
}

/// A share with states of its own would start over.
#[tokio::test]
async fn another_number_of_replicas_never_starts_a_count_over() {
    let interval = Unit::Hour.period(1).unwrap();
    let gcra = Algorithm::Gcra(Gcra::new(12, interval, 12, 0).unwrap());
    // One token cannot be divided, so each share is refilled at intervals of its own.
    let (capacity, amount, strict, max_debt) = (12, 1, false, 0);
    let bucket = TokenBucket { capacity, amount, interval, strict, max_debt };
    for algorithm in [gcra, Algorithm::TokenBucket(bucket)] {
        let hour = Limit::fixed_window(12, Unit::Hour, 1).unwrap();
        let plan = Arc::new(Plan::new(vec![Limit { algorithm, ..hour }]));
        let (guard, clock) = guarded(OnStoreFailure::Local, 2);
        down(&guard);
        assert!(take(&guard, "d", "a", &plan, 6).await.allowed);
        for replicas in [3, 5, 1, 7, 2, 4] {
            guard.replicas.set(replicas);
            assert!(!take(&guard, "d", "a", &plan, 1).await.allowed, "{replicas}");
        }
        up(&guard);
        clock.advance(outage::QUIET);
        take(&guard, "d", "a", &plan, 0).await;
        down(&guard);
        // The next outage begins with four.
        assert!(take(&guard, "d", "a", &plan, 3).await.allowed);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);
    }
}

#[tokio::test]
async fn local_windows_follow_steps_of_the_wall_clock_and_the_outage_does_not() {
    let plan = plan(1, Unit::Hour);
    let (guard, clock) = guarded(OnStoreFailure::Local, 1);
    down(&guard);
    assert!(take(&guard, "d", "a", &plan, 1).await.allowed);
    assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);
    clock.step(3_600 * SECOND as i64);
    assert!(take(&guard, "d", "a", &plan, 1).await.allowed);
    for step in [3_600 * SECOND as i64, -7_200 * SECOND as i64] {
        up(&guard);
        clock.step(step);
        take(&guard, "d", "a", &plan, 0).await;
        assert!(guard.outage.is_active());
    }
    clock.advance(outage::QUIET);
    take(&guard, "d", "a", &plan, 0).await;
    assert!(!guard.outage.is_active());
}

#[tokio::test]
async fn a_partly_failing_store_keeps_its_local_counts() {
    let plan = plan(2, Unit::Hour);
    let (guard, clock) = guarded(OnStoreFailure::Local, 1);
    guard.inner.fail(|charge| (charge.key.entries[0].1 == "b").then_some(StoreError::TimedOut));
    let mut allowed = 0;
    for _ in 0..30 {
        clock.advance(SECOND);
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.source, Source::Store);
        allowed += u64::from(take(&guard, "d", "b", &plan, 1).await.allowed);
    }
    assert_eq!(allowed, 2);
}

#[tokio::test]
async fn failed_charges_of_a_batch_are_charged_together_locally() {
    let (wide, narrow) = (plan(10, Unit::Hour), plan(1, Unit::Hour));
    let (a, b) = ([("key", "a")], [("key", "b")]);
    let (guard, _) = guarded(OnStoreFailure::Local, 1);
    down(&guard);
    let both = [charge_of(&a, &wide, Op::Take(1)), charge_of(&b, &narrow, Op::Take(1))];
    for _ in 0..3 {
        ask(&guard, &both, true, None).await;
    }
    assert_eq!(take(&guard, "d", "a", &wide, 0).await.used_before, 1);
    // Separately, the first is charged each time.
    ask(&guard, &both, false, None).await;
    assert_eq!(take(&guard, "d", "a", &wide, 0).await.used_before, 2);
}

#[tokio::test]
async fn local_memory_is_bounded() {
    let plan = plan(2, Unit::Hour);
    let (guard, _) = guarded(OnStoreFailure::Local, 1);
    down(&guard);
    for i in 0..1_000 {
        assert!(take(&guard, "d", &i.to_string(), &plan, 1).await.allowed);
    }
    assert_eq!(guard.local.load_full().unwrap().store.stats().keys, 100);
}

#[test]
fn eight_threads_share_one_local_store() {
    const EACH: u64 = 500;
    let plan = plan(777, Unit::Day);
    let (guard, _) = guarded(OnStoreFailure::Local, 1);
    down(&guard);
    let one = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = (0..EACH).map(|_| runtime.block_on(take(&guard, "d", "a", &plan, 1)));
        all.filter(|decision| decision.allowed).count()
    };
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 777);
    assert_eq!(guard.counts().degraded(OnStoreFailure::Local), 8 * EACH);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_nothing_behind() {
    let clock = Arc::new(ManualClock::new(DAWN));
    let guard = Guard::new(Never, clock, OnStoreFailure::Allow, 1, 100);
    let plan = plan(1, Unit::Hour);
    let wait = Duration::from_millis(5);
    let asked = tokio::time::timeout(wait, take(&guard, "d", "a", &plan, 1)).await;
    assert!(asked.is_err());
    assert_eq!(guard.counts().degraded(OnStoreFailure::Allow), 0);
}

#[tokio::test]
async fn policies_reply_tokens_that_say_whether_a_charge_is_allowed() {
    let bucket = ReduceBucket { max: 10, refill: 10, interval: 60_000, strict: false, at: None };
    let (plan, entries) = (Arc::new(bucket.plan()), [("key", "a")]);
    for (policy, replicas, replies) in [
        (OnStoreFailure::Allow, 1, [10, 10, 10, 10]),
        (OnStoreFailure::Deny, 1, [0, 0, 0, 0]),
        (OnStoreFailure::Local, 1, [10, 10, 6, 6]),
        // A denial has nothing left, whatever the share.
        (OnStoreFailure::Local, 3, [4, 4, 0, 0]),
    ] {
        let (guard, _) = guarded(policy, replicas);
        down(&guard);
        for (take, reply) in [0, 4, 0, 3].into_iter().zip(replies) {
            let charges = [charge_of(&entries, &plan, Op::Take(take))];
            let decision = ask(&guard, &charges, false, None).await.swap_remove(0).unwrap();
            assert_eq!(bucket.tokens_before(take, &decision), reply, "{policy:?}: {take}");
            assert_eq!(
                decision.allowed,
                reply >= take.max(1) || take == 0 && policy != OnStoreFailure::Deny
            );
        }
    }
}

#[tokio::test]
async fn a_local_denial_tells_the_tokens_that_the_share_had() {
    let bucket = ReduceBucket { max: 10, refill: 10, interval: 86_400, strict: false, at: None };
    for (replicas, replies) in [(1, [10, 6, 2, 0]), (2, [5, 1, 0, 0])] {
        let (guard, _) = guarded(OnStoreFailure::Local, replicas);
        down(&guard);
        for reply in replies {
            let decision = take(&guard, "d", "a", &Arc::new(bucket.plan()), 4).await;
            assert_eq!(bucket.tokens_before(4, &decision), reply, "{replicas}: {decision:?}");
            assert_eq!(decision.allowed, reply >= 4);
        }
    }
}

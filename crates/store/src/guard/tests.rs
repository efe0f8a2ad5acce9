use std::iter::zip;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::*;
use crate::conformance::fakes::{Fake, Never};
use crate::conformance::{self, DAWN, plan, take, try_read, try_reset};
use crate::{Charge, Entry, Key, Role};
use weir_common::clock::ManualClock;
use weir_limit::{
    Ban, Limit, Op, Otherwise, Plan, ReduceBucket, ReservationOp, ReservationResult, Reserve,
    Source, Undo, Unit, UpTo,
};

mod local;
mod outage;

type Clocks = Arc<ManualClock>;
type Guarded = Guard<Arc<Fake<MemoryStore<Clocks>>>, Clocks>;

fn guarded(on_failure: OnStoreFailure, replicas: u32) -> (Guarded, Clocks) {
    let clock = Arc::new(ManualClock::new(DAWN));
    let inner = Fake::new(MemoryStore::new(clock.clone(), 1_000));
    (Guard::new(inner, clock.clone(), GuardOptions { on_failure, replicas, max_keys: 100 }), clock)
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
    let timeout = Duration::from_millis(8);
    let batch = Batch { together, on_failure, ..Batch::new(charges, timeout) };
    guard.charge(&batch, &mut answers).await;
    answers
}

#[tokio::test]
async fn answers_of_a_healthy_store_are_unchanged() {
    let (guard, clock) = guarded(OnStoreFailure::Deny, 1);
    conformance::admits_n_in_each_window(&guard, &clock).await;
    conformance::looks_and_refunds(&guard).await;
    conformance::charges_all_or_none(&guard).await;
    conformance::adds_its_answers(&guard).await;
    conformance::reservations::conforms(&guard, &clock).await;
    assert_eq!(StoreError::ALL.map(|kind| guard.counts().failed(kind)), [0; StoreError::ALL.len()]);
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
    let plan = plan(100, Unit::Minute);
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
                    assert_eq!((decision.remaining, decision.reset_after), (100, 0));
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
async fn a_failed_grant_is_answered_as_a_charge_and_undone_by_nothing() {
    let plan = plan(100, Unit::Minute);
    let entries = [("key", "a")];
    let up_to = UpTo { least: 1, most: 4, share: NonZeroU32::MIN };
    let charges = [charge_of(&entries, &plan, Op::UpTo(up_to))];
    for policy in OnStoreFailure::ALL {
        let [(guard, clock), (charged, _)] = [guarded(policy, 2), guarded(policy, 2)];
        down(&guard);
        down(&charged);
        let expected = ask(&charged, &charges, false, None).await.swap_remove(0);
        let granted = guard.grant(&Batch::new(&charges, Duration::from_millis(8))).await;
        assert_eq!((guard.counts().charges(), guard.counts().degraded(policy)), (1, 1));
        if let Ok(grant) = &granted {
            assert_eq!((grant.undos.len(), grant.now), (0, clock.now()));
        }
        assert_eq!(granted.map(|grant| grant.decision), expected, "{policy:?}");
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

/// What a store charged before it failed is not in the local counts.
/// Hits that are added are never denied, and what is granted by this replica's share is counted there.
#[tokio::test]
async fn other_policies_reserve_and_settle_nothing() {
    let window = Limit::fixed_window(30, Unit::Minute, 1).unwrap();
    let plan = Arc::new(Plan::new(vec![Limit { charge_denied: false, ..window }]));
    let entries = [("key", "a")];
    let terms = Reserve { least: 1, most: 8, timeout: 600 };
    for policy in [OnStoreFailure::Allow, OnStoreFailure::Deny] {
        for (op, asks) in [
            (ReservationOp::Reserve { reserve: terms, once: None }, true),
            (ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(terms) }, true),
            (ReservationOp::Settle { used: 2, otherwise: Otherwise::Nothing }, false),
            (ReservationOp::settle(2), false),
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
/// A share with states of its own would start over.
#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_nothing_behind() {
    let clock = Arc::new(ManualClock::new(DAWN));
    let options = GuardOptions { on_failure: OnStoreFailure::Allow, replicas: 1, max_keys: 100 };
    let guard = Guard::new(Never, clock, options);
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

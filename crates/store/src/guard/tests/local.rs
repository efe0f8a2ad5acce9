//! The policy that counts locally while the store fails.

use super::*;

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
        clock.advance(QUIET - 1);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed);
        down(&guard);
        assert!(!take(&guard, "d", "a", &plan, 1).await.allowed, "one outage, not two");
        up(&guard);
        clock.advance(QUIET);
        assert_eq!(take(&guard, "d", "a", &plan, 0).await.source, Source::Store);
        assert!(guard.local.load().is_none(), "memory is freed");
        assert!(!guard.outage.is_active());
    }
}

#[tokio::test]
async fn what_is_counted_locally_can_be_read_until_the_outage_is_over() {
    let (guard, clock) = guarded(OnStoreFailure::Local, 2);
    let plan = plan(10, Unit::Hour);
    let read = |value| {
        let key = Key { domain: "d", entries: &[("key", value)] };
        let local = guard.read_local(StateKey { key, plan: &plan, together: false, id: None });
        local.map(|(share, state)| (share.limits()[0].requests_per_unit, state.limits[0].used))
    };
    take(&guard, "d", "a", &plan, 1).await;
    assert_eq!(read("a"), None);
    down(&guard);
    take(&guard, "d", "a", &plan, 3).await;
    assert_eq!((read("a"), read("b")), (Some((5, 3)), None));
    up(&guard);
    clock.advance(QUIET);
    take(&guard, "d", "a", &plan, 1).await;
    assert_eq!(read("a"), None);
}

#[tokio::test]
async fn nothing_is_undone_locally() {
    let (guard, _) = guarded(OnStoreFailure::Local, 1);
    let (plan, entries) = (plan(5, Unit::Hour), [("key", "a")]);
    down(&guard);
    ask(&guard, &[charge_of(&entries, &plan, Op::Take(2))], false, None).await;
    let undo = Op::Undo(Undo { hits: 2, taken: DAWN, limits: 1 });
    let answers = ask(&guard, &[charge_of(&entries, &plan, undo)], false, None).await;
    assert!(answers[0].as_ref().unwrap().allowed);
    let answers = ask(&guard, &[charge_of(&entries, &plan, Op::Take(0))], false, None).await;
    assert_eq!(answers[0].as_ref().unwrap().used_before, 2);
}

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
    let reserve = ReservationOp::Reserve { reserve: terms, once: None };
    let ends = [
        ReservationOp::settle(3),
        ReservationOp::Settle { used: 3, otherwise: Otherwise::Nothing },
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
        let without_hits = ReservationOp::Settle { used: 0, otherwise: Otherwise::Reserve(terms) };
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
        assert_eq!(make(&guard, "store", ReservationOp::settle(3)).await.reserved, 8);
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
    clock.advance(QUIET);
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
    assert_eq!(guard.local.load_full().unwrap().stats().keys, 100);
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

#[tokio::test]
async fn the_local_policy_knows_no_bans() {
    for replicas in [1, 2] {
        let (guard, clock) = guarded(OnStoreFailure::Local, replicas);
        let lengths = [3_600 * SECOND].into();
        let ban = Ban { after: 1, within: SECOND, lengths, forget: 0 };
        let window = Limit::fixed_window(2, Unit::Minute, 1).unwrap();
        let plan = Arc::new(Plan::new(vec![window]).with_ban(ban));
        down(&guard);
        for _ in 0..3 {
            let decision = take(&guard, "d", "a", &plan, 3).await;
            assert_eq!((decision.allowed, decision.banned), (false, false));
        }
        clock.advance(60 * SECOND);
        assert!(take(&guard, "d", "a", &plan, 1).await.allowed);
    }
}

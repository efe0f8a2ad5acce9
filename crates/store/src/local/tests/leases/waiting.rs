//! Requests wait while it is not known what their lease has charged.

use super::*;
use crate::Answer;

/// A replica whose first grant is in flight.
fn asking() -> (Shared, Local<Shared>, Arc<Plan>) {
    let shared = Shared::delaying();
    let (replica, plan) = (leases(&shared), plan([fixed(400, Unit::Hour)]));
    for _ in 0..32 {
        charge_now(&replica, &plan, "a", Op::Take(1));
    }
    assert_eq!(in_flight(&shared).len(), 1);
    (shared, replica, plan)
}

fn in_flight(shared: &Shared) -> Vec<Op> {
    shared.in_flight.as_ref().unwrap().lock().iter().map(|it| it.charge.op).collect()
}

/// What waits for a grant is decided as if nothing were leased.
#[test]
fn a_charge_waits_for_a_grant() {
    for (op, source, remaining) in [
        (Op::Take(1), Source::Leased, 367),
        (Op::Take(0), Source::Leased, 368),
        (Op::Take(368), Source::Store, 0),
        (Op::Refund(2), Source::Store, 370),
    ] {
        for thread in [0, 1] {
            let (shared, replica, plan) = asking();
            shared.thread.store(thread, Ordering::Relaxed);
            let mut waited = false;
            let decision = charge_with(&replica, &plan, "a", op, || {
                waited = true;
                shared.answer_all();
            });
            assert!(waited && decision.allowed, "{op:?}");
            assert_eq!((decision.source, decision.remaining), (source, remaining), "{op:?}");
        }
    }
}

#[test]
fn a_charge_waits_for_hits_that_are_returned_on_another_thread() {
    let (shared, replica, plan) = asking();
    shared.answer_all();
    assert!(left(&replica, &plan) > 0);
    shared.clock.advance(LENGTH + SWEEP_INTERVAL);
    replica.send(replica.table.sweep());
    assert!(matches!(in_flight(&shared)[..], [Op::Undo(_)]));
    shared.thread.store(1, Ordering::Relaxed);
    let decision = charge_with(&replica, &plan, "a", Op::Take(368), || shared.answer_all());
    assert!(decision.allowed);
    assert_eq!(decision.remaining, 0);
}

/// A lost grant stays charged, and nobody waits any longer.
#[test]
fn a_grant_that_is_lost_frees_those_who_wait_at_once() {
    let (shared, replica, plan) = asking();
    let before = elapsed();
    charge_with(&replica, &plan, "a", Op::Take(1), || {
        shared.in_flight.as_ref().unwrap().lock().clear();
    });
    assert_eq!(elapsed(), before);
    assert_eq!(replica.table.leases(), 0);
}

/// The time that passes where nothing else happens.
fn elapsed() -> tokio::time::Instant {
    RUNTIME.with(|runtime| runtime.block_on(async { tokio::time::Instant::now() }))
}

#[test]
fn nobody_waits_for_more_than_half_of_the_timeout_or_a_lease() {
    let (shared, replica, plan) = asking();
    shared.thread.store(1, Ordering::Relaxed);
    let before = elapsed();
    let decision = charge_now(&replica, &plan, "a", Op::Take(1));
    assert_eq!((decision.source, decision.remaining), (Source::Store, 367));
    assert_eq!(elapsed() - before, Duration::from_millis(500));
    // The grant would be returned.
    shared.clock.advance(LENGTH);
    charge_with(&replica, &plan, "a", Op::Take(1), || panic!("it waits"));
}

#[test]
fn charges_of_other_keys_do_not_wait() {
    let (shared, replica, plan) = asking();
    let (a, b) = ([("key", "a")], [("key", "b")]);
    let charge = |entries| {
        let key = Key { domain: "d", entries };
        Charge { key, plan: &plan, op: Op::Take(1), hold: None, role: Role::Enforced }
    };
    let charges = [charge(&b), charge(&a), charge(&b)];
    let mut answers = Answers::new();
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let batch = Batch::new(&charges, Duration::from_secs(1));
            let mut charging = pin!(replica.charge(&batch, &mut answers));
            assert!(poll_fn(|it| Poll::Ready(charging.as_mut().poll(it))).await.is_pending());
            let b_used = shared.charge_one(&Charge { op: Op::Take(0), ..charges[0] }).1.used_before;
            assert_eq!(b_used, 2);
            shared.answer_all();
            charging.await;
        });
    });
    let remaining = |answer: &Answer| answer.as_ref().map(|it| (it.source, it.remaining)).unwrap();
    let all: Vec<_> = answers.iter().map(remaining).collect();
    assert_eq!(all, [(Source::Store, 399), (Source::Leased, 367), (Source::Store, 398)]);
}

/// The time that a request has waited is not left for the store.
#[test]
fn a_request_that_has_waited_has_less_time() {
    let batch = Batch::new(&[], Duration::from_millis(50)).after(Duration::from_millis(20));
    assert_eq!(
        (batch.timeout, batch.waited),
        (Duration::from_millis(30), Duration::from_millis(20))
    );
}

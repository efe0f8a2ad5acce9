//! What happens while a grant is in flight, and how long it is used.

use std::sync::atomic::Ordering;

use super::*;

impl Shared {
    fn asks(&self) -> usize {
        let in_flight = self.in_flight.as_ref().expect("charges in flight").lock();
        in_flight.iter().filter(|it| it.charge.asks()).count()
    }
}

/// A replica that has asked for its first hits, 32.
fn asking(n: u32) -> (Shared, Local<Shared>, Arc<Plan>) {
    asking_by(leasing(), n)
}

fn asking_by(options: LocalOptions, n: u32) -> (Shared, Local<Shared>, Arc<Plan>) {
    let shared = Shared::delaying();
    let replica = Local::new(shared.clone(), shared.clock.clone(), options);
    let plan = plan([fixed(n, Unit::Hour)]);
    take(&replica, &plan, 32);
    assert_eq!(shared.asks(), 1);
    (shared, replica, plan)
}

/// Takes hits one by one. Returns how many of them a lease served.
fn take(replica: &impl Store, plan: &Arc<Plan>, times: usize) -> usize {
    let served = |_: &usize| {
        let decision = charge_now(replica, plan, "a", Op::Take(1));
        assert!(decision.allowed);
        decision.source == Source::Leased
    };
    (0..times).filter(served).count()
}

#[test]
fn while_a_grant_is_in_flight_hits_are_charged_one_by_one() {
    let (shared, replica, plan) = asking(10_000);
    assert_eq!((take(&replica, &plan, 50), shared.asks()), (0, 1));
    shared.make_all(None);
    shared.answer_all();
    assert_eq!((take(&replica, &plan, 29), shared.asks()), (29, 0));
    // A sixteenth of 31 is left.
    assert_eq!((take(&replica, &plan, 1), shared.asks()), (1, 1));
    assert_eq!((take(&replica, &plan, 1), shared.asks()), (1, 1));
    assert_eq!(take(&replica, &plan, 1), 0);
}

#[test]
fn hits_are_used_for_a_time_from_when_they_were_asked_for() {
    let (shared, replica, plan) = asking(10_000);
    shared.clock.advance(20_000);
    shared.make_all(None);
    shared.clock.advance(40_000);
    shared.answer_all();
    shared.clock.advance(39_999);
    assert_eq!(take(&replica, &plan, 1), 1);
    shared.clock.advance(1);
    assert_eq!(take(&replica, &plan, 1), 0);
}

#[test]
fn the_next_grant_is_asked_for_before_the_last_one_ends() {
    let shared = Shared::delaying();
    let (replica, plan) = (leases(&shared), plan([fixed(10_000, Unit::Hour)]));
    for _ in 0..32 {
        charge_now(&replica, &plan, "a", Op::Take(10));
    }
    shared.clock.advance(20_000);
    shared.make_all(None);
    shared.answer_all();
    shared.clock.advance(54_999);
    assert_eq!((take(&replica, &plan, 1), shared.asks()), (1, 0));
    // The grant was in flight for 20 ms, so the next is asked for 25 ms before the end.
    shared.clock.advance(1);
    assert_eq!((take(&replica, &plan, 1), shared.asks()), (1, 1));
    assert_eq!(left(&replica, &plan), 308);
}

/// What is left may be used up before more can come: 20 ms in which a tenth of that was admitted.
#[test]
fn the_next_grant_is_asked_for_before_the_last_one_is_used_up() {
    let shared = Shared::delaying();
    let (replica, plan) = (leases(&shared), plan([fixed(10_000, Unit::Hour)]));
    for _ in 0..32 {
        charge_now(&replica, &plan, "a", Op::Take(10));
    }
    shared.clock.advance(20_000);
    shared.make_all(None);
    shared.answer_all();
    // 310 are left. About 500 are admitted in 100 ms, so 200 in two trips.
    assert_eq!((take(&replica, &plan, 120), shared.asks()), (120, 0));
    assert_eq!((take(&replica, &plan, 20), shared.asks()), (20, 1));
}

#[test]
fn a_grant_that_comes_too_late_is_returned_and_not_asked_for_again_at_once() {
    let (shared, replica, plan) = asking(10_000);
    shared.make_all(None);
    shared.clock.advance(LENGTH);
    shared.answer_all();
    assert_eq!((used(&shared, &plan), left(&replica, &plan)), (32, 0));
    assert_eq!((take(&replica, &plan, 31), shared.asks()), (0, 0));
    take(&replica, &plan, 1);
    assert_eq!(shared.asks(), 1);
}

#[test]
fn nothing_is_asked_for_again_at_once_where_little_is_left() {
    let (shared, replica, plan) = asking(95);
    shared.make_all(None);
    shared.answer_all();
    assert_eq!((left(&replica, &plan), replica.table.leases()), (0, 0));
    assert_eq!((take(&replica, &plan, 31), shared.asks()), (0, 0));
}

#[test]
fn a_grant_for_other_numbers_is_returned() {
    let (shared, replica, first) = asking(10_000);
    shared.make_all(None);
    let raised = plan([fixed(20_000, Unit::Hour)]);
    take(&replica, &raised, 1);
    shared.answer_all();
    assert_eq!((used(&shared, &first), replica.table.leases()), (33, 0));
}

#[test]
fn a_grant_that_comes_while_the_service_drains_is_returned() {
    let (shared, replica, plan) = asking(10_000);
    shared.make_all(None);
    replica.table.drain();
    replica.send(replica.table.sweep());
    shared.answer_all();
    assert_eq!((used(&shared, &plan), left(&replica, &plan)), (32, 0));
    assert_eq!(replica.table.in_flight.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_leased_of_a_state_that_is_reset_is_lost() {
    use futures_util::FutureExt as _;
    let entries = [("key", "a")];
    let reset = |replica: &Local<Shared>, plan: &Arc<Plan>| {
        let key = StateKey {
            key: Key { domain: "d", entries: &entries },
            plan,
            together: false,
            id: None,
        };
        replica.reset(key, Duration::from_secs(1)).now_or_never().expect("an answer").unwrap();
    };
    let lost = |replica: &Local<Shared>| replica.table.counts.lost.load(Ordering::Relaxed);
    // While a grant is in flight.
    let (shared, replica, plan) = asking(10_000);
    shared.make_all(None);
    reset(&replica, &plan);
    take(&replica, &plan, 3);
    shared.answer_all();
    assert_eq!((used(&shared, &plan), left(&replica, &plan), lost(&replica)), (3, 0, 31));
    assert_eq!(replica.table.leases(), 0);
    // With a lease.
    let (shared, replica, plan) = asking(10_000);
    shared.make_all(None);
    shared.answer_all();
    reset(&replica, &plan);
    assert_eq!((used(&shared, &plan), left(&replica, &plan), lost(&replica)), (0, 0, 31));
}

#[test]
fn a_grant_ends_the_denials_of_its_key() {
    let deny_locally_for = Duration::from_secs(5);
    let (shared, replica, plan) = asking_by(LocalOptions { deny_locally_for, ..leasing() }, 10_000);
    shared.make_all(None);
    // Others take the rest.
    assert!(charge_now(&shared, &plan, "a", Op::Take(10_000 - 63)).allowed);
    let decision = charge_now(&replica, &plan, "a", Op::Take(1));
    assert!(!decision.allowed);
    let repeated = charge_now(&replica, &plan, "a", Op::Take(1));
    assert_eq!(repeated.source, Source::DeniedLocally);
    shared.answer_all();
    assert_eq!(take(&replica, &plan, 31), 31);
}
